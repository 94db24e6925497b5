use highwater::{Router, State};

struct Db;

fn show(State(_): State<Db>) -> &'static str {
    "ok"
}

fn main() {
    let _ = Router::new().state(Db).get("/", show);
}
