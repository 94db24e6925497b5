use highwater::Router;

fn main() {
    let _ = Router::new().get("/{n}", |n| format!("{n}"));
}
