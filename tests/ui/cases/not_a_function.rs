use highwater::Router;

fn main() {
    let _ = Router::new().get("/", "Hello");
}
