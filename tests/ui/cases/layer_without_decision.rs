use highwater::{Request, Router, layer};

fn authorize(request: &Request<'_>) -> bool {
    request.header("authorization").is_some()
}

fn main() {
    let _ = Router::new().layer(layer::on_request(authorize));
}
