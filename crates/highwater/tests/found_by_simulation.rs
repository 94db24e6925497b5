//! What the simulator has found, each as the shortest story that shows it.

use highwater::http::HeaderValue;
use highwater::testing::Client;
use highwater::{Response, Router};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// Purpose: a 101 says `Connection: upgrade` once. Both the response and the connection wrote it.
#[test]
fn an_upgrade_is_announced_once() {
    let client = Client::new(Router::new().get("/", || {
        Response::upgrade(HeaderValue::from_static("echo"), |upgraded| async move {
            upgraded.outgoing.finish();
        })
    }));
    let mut connection = client.connect();
    connection.send(GET);
    let heard = String::from_utf8_lossy(connection.heard()).into_owned();
    assert_eq!(heard.matches("connection: upgrade\r\n").count(), 1, "{heard}");
}
