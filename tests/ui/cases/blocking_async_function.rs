use highwater::{Router, blocking};

async fn report() -> &'static str {
    "done"
}

fn main() {
    let _ = Router::new().get("/", blocking(report));
}
