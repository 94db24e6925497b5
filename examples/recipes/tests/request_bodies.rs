//! What a tower layer around native routes does to the content of their requests: which limit holds.
#![forbid(unsafe_code)]

use highwater::server::ServerConfig;
use highwater::testing::{Client, Setup};
use highwater::tower::Body;
use highwater::{Bytes, Handler as _, Router};
use http_body_util::BodyExt as _;
use tower_http::map_request_body::MapRequestBodyLayer;
use tower_http::set_status::SetStatusLayer;

const MIB: usize = 1 << 20;

/// A layer that replaces the content of requests by itself, in another type.
macro_rules! wrapped {
    () => {
        MapRequestBodyLayer::new(|content: Body| content.map_frame(|frame| frame))
    };
}

/// A layer that leaves the content of requests alone.
fn untouched() -> SetStatusLayer {
    SetStatusLayer::new(highwater::StatusCode::ACCEPTED)
}

async fn length(content: Bytes) -> String {
    content.len().to_string()
}

fn client(router: Router, body_max: usize) -> Client {
    let mut config = ServerConfig::default();
    config.limits.body_max = body_max as u64;
    Setup::new(router).config(config).start()
}

/// Purpose: content that is taken whole behind a layer has the limit of the server, or that of its route, as without a layer.
#[test]
fn the_limit_is_the_servers() {
    let routes = || Router::new().post("/", length).post("/own", length.body_max(3));
    for routes in [routes(), routes().layer(untouched()), routes().layer(wrapped!())] {
        let client = client(routes, 3 * MIB);
        assert_eq!(client.post("/", vec![b'a'; 2 * MIB]).text(), (2 * MIB).to_string());
        assert_eq!(client.post("/", vec![b'a'; 3 * MIB]).text(), (3 * MIB).to_string());
        assert_eq!(client.post("/", vec![b'a'; 3 * MIB + 1]).status, 413);
        assert_eq!(client.post("/own", "abc").text(), "3");
        assert_eq!(client.post("/own", "abcd").status, 413);
    }
}

/// Purpose: content that a layer has made longer is held to the limit of the server, which may be a small one.
#[test]
fn longer_content_is_refused() {
    let double = || {
        MapRequestBodyLayer::new(|content: Body| {
            content.map_frame(|frame| frame.map_data(|data| Bytes::from([&*data, &data].concat())))
        })
    };
    let client = client(Router::new().post("/", length).layer(double()), 10);
    assert_eq!(client.post("/", "12345").text(), "10");
    assert_eq!(client.post("/", "123456").status, 413);
}
