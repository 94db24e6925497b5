use highwater::Router;

struct Todo {
    _title: String,
}

fn show() -> Todo {
    Todo { _title: String::new() }
}

fn main() {
    let _ = Router::new().get("/", show);
}
