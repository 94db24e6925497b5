use highwater::{OwnedRequest, Next, Response, Router};

async fn timing(request: OwnedRequest, next: Next) -> Response {
    next.run(request).await
}

fn main() {
    let _ = Router::new().layer(timing);
}
