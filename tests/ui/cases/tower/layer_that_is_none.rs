use highwater::{MiddlewareRequest, Next, Response, Router};

async fn timing(request: MiddlewareRequest, next: Next) -> Response {
    next.run(request).await
}

fn main() {
    let _ = Router::new().layer(timing);
}
