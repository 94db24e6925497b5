use highwater::Router;

fn echo(body: &'static str) -> String {
    body.to_string()
}

fn main() {
    let _ = Router::new().post("/", echo);
}
