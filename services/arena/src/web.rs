//! Common parts of web APIs, each in a route of its own below `/web`: compression, files, uploads, a rate limit, layers, JSON
//! in both directions. The servers in `bench/peers` answer the same.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use highwater::files::StaticFiles;
use highwater::layers::{compression, cors, rate_limit, request_id, security_headers};
use highwater::{Handler as _, IntoResponse as _, Json, Router};

use crate::content::{Order, Receipt, records};

const HELLO: &str = "Hello, World!";
/// Requests of a client in a second, which no benchmark reaches.
const REQUESTS: u32 = 1_000_000_000;
/// Largest upload; beyond it 413.
const UPLOAD_MAX: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Adds the routes below `/web`, with the files of `folder`.
pub fn routes(router: Router, folder: &Path) -> Router {
    let records = records();
    let list = move || Json(&records).into_response();
    let limit = rate_limit(REQUESTS, Duration::from_secs(1));
    router
        .merge(Router::new().layer(compression()).get("/web/list", list))
        .merge(Router::new().layer(limit).get("/web/limited", || HELLO))
        .merge(five_layers())
        .files("/web/files", StaticFiles::new(folder))
        .post("/web/upload", upload.body_max(UPLOAD_MAX))
        .post("/web/orders", order)
}

/// A timeout is a setting of the router here, and a layer elsewhere.
fn five_layers() -> Router {
    let mut headers = security_headers();
    // The other servers set one field, too.
    for name in [
        "x-frame-options",
        "referrer-policy",
        "cross-origin-opener-policy",
        "cross-origin-resource-policy",
    ] {
        headers = headers.without(name);
    }
    Router::new()
        .layer(request_id())
        .layer(cors().any_origin())
        .layer(headers)
        .layer(compression())
        .timeout(TIMEOUT)
        .get("/web/layers", async || HELLO)
}

fn upload(body: Bytes) -> String {
    body.len().to_string()
}

fn order(Json(order): Json<Order>) -> Json<Receipt> {
    Json(Receipt::from(order))
}

#[cfg(test)]
mod tests {
    use highwater::Method;
    use highwater::testing::Client;

    use super::*;

    fn client() -> (tempfile::TempDir, Client) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("4k.txt"), "x".repeat(4096)).expect("it is writable");
        let client = Client::new(routes(Router::new(), folder.path()));
        (folder, client)
    }

    /// Purpose: what is measured is there: one route is compressed for those who accept it, one is limited, one has its five
    /// layers, none of which changes the others.
    #[test]
    fn layers_are_there() {
        let (_folder, client) = client();
        let encoding = |path: &str| {
            let answer = client.request(Method::GET, path).header("accept-encoding", "gzip").send();
            answer.header("content-encoding").map(str::to_owned)
        };
        assert_eq!(encoding("/web/list").as_deref(), Some("gzip"));
        assert_eq!([encoding("/web/layers"), encoding("/web/files/4k.txt")], [None, None]);
        let size = client.get("/web/list").body.len();
        assert!((8000..9000).contains(&size), "{size} bytes");

        let limited = client.get("/web/limited");
        assert_eq!(limited.text(), HELLO);
        assert!(limited.header("ratelimit").is_some());

        let layers =
            client.request(Method::GET, "/web/layers").header("origin", "https://a.example").send();
        assert_eq!((layers.status.as_u16(), layers.text()), (200, HELLO));
        assert_eq!(layers.header("access-control-allow-origin"), Some("*"));
        assert_eq!(layers.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(layers.header("x-request-id").map(str::len), Some(16));
        assert_eq!([layers.header("x-frame-options"), layers.header("ratelimit")], [None, None]);
    }

    /// Purpose: uploads are counted to their limit, files have their content, and an order is understood.
    #[test]
    fn contents() {
        let (_folder, client) = client();
        assert_eq!(client.get("/web/files/4k.txt").body.len(), 4096);
        let upload = |size: usize| client.post("/web/upload", vec![b'x'; size]);
        assert_eq!(upload(1 << 20).text(), "1048576");
        assert_eq!(upload((1 << 20) + 1).status, 413);
        let order = r#"{"customer":"Ada","items":[{"sku":"tea","quantity":2,"cents":450},{"sku":"jam","quantity":1,"cents":1}]}"#;
        let answer = client
            .request(Method::POST, "/web/orders")
            .header("content-type", "application/json")
            .body(order)
            .send();
        assert_eq!(answer.text(), r#"{"customer":"Ada","skus":["tea","jam"],"total_cents":901}"#);
    }
}
