//! What a tower layer around native routes does to the content of their requests: which limit holds, how long it lasts, and what
//! a failure says.
#![forbid(unsafe_code)]

use highwater::server::ServerConfig;
use highwater::testing::{Client, Setup};
use highwater::tower::Body;
use highwater::{Body as Content, BodyStream, Bytes, Error, Handler as _, Response, Router};
use http_body_util::BodyExt as _;
use tower_http::limit::RequestBodyLimitLayer;
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

/// Passes the content of the request on as that of its response.
async fn echo(content: BodyStream) -> Response {
    Response::from(Content::stream(content))
}

/// The same, by way of a task.
fn relayed(mut content: BodyStream) -> Response {
    let (mut sender, body) = Content::channel();
    tokio::task::spawn_local(async move {
        while let Some(Ok(piece)) = content.next().await {
            if sender.send(piece).await.is_err() {
                return;
            }
        }
        sender.finish();
    });
    Response::from(body)
}

/// Counts what comes.
async fn count(mut content: BodyStream) -> Result<usize, Error> {
    let mut length = 0;
    while let Some(piece) = content.next().await {
        length += piece?.len();
    }
    Ok(length)
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

/// Purpose: a streamed body that a layer has wrapped lasts as long as its reader, which may be the response's own content or a
/// task of the handler's.
#[test]
fn streams_outlive_their_handler() {
    let sent: Vec<u8> = (0..4 * MIB).map(|at| (at / 7) as u8).collect();
    let max = sent.len() as u64;
    for is_layered in [false, true] {
        let routes =
            Router::new().post("/echo", echo.body_max(max)).post("/relayed", relayed.body_max(max));
        let client = Client::new(if is_layered { routes.layer(wrapped!()) } else { routes });
        for path in ["/echo", "/relayed"] {
            let answer = client.post(path, sent.clone());
            assert_eq!((answer.status.as_u16(), answer.body.len()), (200, sent.len()), "{path}");
            assert!(answer.body == sent, "{path} {is_layered}");
        }
    }
}

/// Purpose: `RequestBodyLimitLayer` refuses longer content with 413 without a declared length, too, whether the handler takes
/// the content whole or as it comes.
#[test]
fn limits_of_layers_are_413() {
    let routes =
        Router::new().post("/whole", length).post("/stream", async |content: BodyStream| {
            Ok::<_, Error>(count(content).await?.to_string())
        });
    let client = Client::new(routes.layer(RequestBodyLimitLayer::new(5)));
    for path in ["/whole", "/stream"] {
        for (content, status) in [("hello", "200"), ("hello!", "413")] {
            let mut connection = client.connect();
            let size = content.len();
            connection.send(format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\n{content}\r\n0\r\n\r\n"
            ));
            let answer = String::from_utf8_lossy(connection.received()).into_owned();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{path} {content}: {answer}"
            );
        }
    }
}
