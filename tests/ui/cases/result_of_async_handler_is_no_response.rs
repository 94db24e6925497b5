use highwater::Router;

async fn count() -> u64 {
    42
}

fn main() {
    let _ = Router::new().get("/", count);
}
