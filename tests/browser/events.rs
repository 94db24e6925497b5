//! Do a browser's own WebSocket and EventSource agree with ours?

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use highwater::sse::{Event, LastEventId, Sse};
use highwater::{
    Closed, Error, FromRequest, Html, Request, Router, Running, Server, ServerConfig, Tls,
    WebSocket, websocket,
};

use serde_json::json;

use super::browser::Browser;

/// Echoes; on `close`, closes with a code and a reason of the application's.
async fn echo(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        if message.as_text() == Some("close") {
            socket.close(highwater::websocket::CloseCode(4321), "as you wish").await;
        } else {
            socket.send(message).await?;
        }
    }
    Ok(())
}

/// Two events for each connection, numbered on from the last that the browser has; then the stream ends, and the browser
/// comes back.
async fn events(last: LastEventId) -> Sse {
    let next = last.number().map_or(0, |last| last + 1);
    Sse::run(move |mut events| async move {
        let first = Event::data(format!("first\nof {next}")).id(next).event("pair");
        events.send(first.retry(Duration::from_millis(50))).await?;
        events.send(Event::comment("no page sees this")).await?;
        events.send(Event::data("second").id(next + 1)).await
    })
}

/// The version of HTTP by which a request has come.
struct Version(String);

impl FromRequest for Version {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(Version(format!("{:?} {}", request.version(), request.method())))
    }
}

/// Says how it was opened, and no more.
async fn says_how(mut socket: WebSocket, Version(version): Version) -> Result<(), Closed> {
    socket.send(version).await
}

fn router() -> Router {
    Router::new()
        .get("/", || {
            Html("<!DOCTYPE html><link rel=\"icon\" href=\"data:,\"><title>events</title>")
        })
        .get("/ws", websocket(echo).protocols(["chat.v2"]))
        .get("/how", websocket(says_how))
        .get("/events", events)
}

fn config() -> ServerConfig {
    ServerConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        metrics: None,
        workers: NonZeroUsize::new(1),
        ..ServerConfig::default()
    }
}

fn serve() -> Running {
    Server::new(router()).config(config()).start().expect("loopback has free ports")
}

/// The same over TLS, where browsers speak HTTP/2.
fn serve_secured() -> Running {
    let listen = vec!["127.0.0.1:0,tls".parse().expect("it is an address")];
    let server = Server::new(router()).tls(Tls::self_signed());
    let config = ServerConfig { listen, ..config() };
    server.config(config).start().expect("loopback has free ports")
}

/// Opens a socket, says text, bytes and `close`, and notes what it hears.
const TALK: &str = "window.received = []; (() => {
  const socket = new WebSocket(location.origin.replace('http', 'ws') + '/ws', ['chat.v1', 'chat.v2']);
  socket.binaryType = 'arraybuffer';
  socket.onopen = () => {
    received.push('open ' + socket.protocol);
    socket.send('tide ⇑ high');
    socket.send(new Uint8Array(100000).fill(7));
    socket.send('close');
  };
  socket.onmessage = ({data}) => received.push(data instanceof ArrayBuffer ? 'bytes ' + data.byteLength : data);
  socket.onclose = ({code, reason, wasClean}) => received.push(`closed ${code} ${reason} ${wasClean}`);
})()";

/// Opens a socket to the same server under another name, which is another origin.
const FOREIGN: &str = "window.foreign = ''; (() => {
  const socket = new WebSocket('ws://localhost:' + location.port + '/ws');
  socket.onopen = () => { foreign = 'open'; };
  socket.onclose = ({code}) => { foreign = 'closed ' + code; };
})()";

/// Asks a socket how it was opened.
const HOW: &str = "window.how = ''; (() => {
  const socket = new WebSocket(location.origin.replace('http', 'ws') + '/how');
  socket.onmessage = ({data}) => { how = data; };
  socket.onclose = ({code}) => { how += ', closed ' + code; };
})()";

/// Listens until it has come back twice.
const LISTEN: &str = "window.events = []; (() => {
  const source = new EventSource('/events');
  const note = ({type, data, lastEventId}) => {
    events.push(`${type} ${lastEventId} ${JSON.stringify(data)}`);
    if (events.length === 6) source.close();
  };
  source.addEventListener('pair', note);
  source.onmessage = note;
})()";

/// Opens the page, whose socket exchanges text, bytes, a code and a reason with its handler.
fn talks(browser: &mut Browser, url: &str) {
    browser.open(url);
    browser.until("document.title === 'events'");
    browser.value(TALK);
    browser.until("received.length === 4");
    let expected = "open chat.v2|tide ⇑ high|bytes 100000|closed 4321 as you wish true";
    assert_eq!(browser.value("received.join('|')"), expected);
}

/// Purpose: a page and a handler understand each other, through code that is not ours: protocols, text, bytes, codes and
/// reasons; a page of another origin does not get in.
#[test]
fn a_page_talks() {
    let Some(mut browser) = Browser::start() else { return };
    let mut server = serve();
    talks(&mut browser, &format!("http://{}/", server.address()));
    browser.value(FOREIGN);
    browser.until("foreign !== ''");
    assert_eq!(browser.value("foreign"), "closed 1006");
    drop(browser);
    server.stop().expect("it served");
}

/// Purpose: over TLS a browser speaks HTTP/2, and opens its WebSockets on streams by itself; a page notices nothing of it.
#[test]
fn a_page_talks_over_http2() {
    let Some(mut browser) = Browser::start() else { return };
    let mut server = serve_secured();
    browser.call("Security.setIgnoreCertificateErrors", json!({ "ignore": true }));
    talks(&mut browser, &format!("https://{}/", server.address()));
    browser.value(HOW);
    browser.until("how.includes('closed')");
    assert_eq!(browser.value("how"), "HTTP/2.0 CONNECT, closed 1000");
    assert_eq!(browser.complaints(), []);
    drop(browser);
    server.stop().expect("it served");
}

/// Purpose: a browser that comes back names the last event it has got, so that none is lost and none comes twice; types,
/// ids and lines of data are what was sent.
#[test]
fn a_page_comes_back() {
    let Some(mut browser) = Browser::start() else { return };
    let mut server = serve();
    browser.open(&format!("http://{}/", server.address()));
    browser.until("document.title === 'events'");
    browser.value(LISTEN);
    browser.until("events.length === 6");
    let expected =
        [0, 2, 4].map(|id| format!("pair {id} \"first\\nof {id}\"|message {} \"second\"", id + 1));
    assert_eq!(browser.value("events.join('|')"), expected.join("|"));
    assert_eq!(browser.complaints(), []);
    drop(browser);
    server.stop().expect("it served");
}
