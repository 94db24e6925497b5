//! A client of HTTP/2 that is not ours (`h2`), plain or over TLS (`tokio-rustls`).

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::SendStream;
use h2::client::SendRequest;
use highwater_testkit::{Answer, PATIENCE};
use http::{Request, Version};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection, kept.
#[derive(Clone)]
pub(crate) struct Http2(SendRequest<Bytes>);

/// Connects, over TLS if its settings are given, and works with the connection.
///
/// # Panics
/// If it takes longer than [`PATIENCE`].
pub(crate) fn with_client(
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    work: impl AsyncFnOnce(Http2),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("it is built").block_on(async {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let Some(tls) = tls else { return over(stream, work).await };
        let name = ServerName::try_from("localhost").expect("a name");
        let secured = TlsConnector::from(tls).connect(name, stream).await.expect("it is trusted");
        assert_eq!(secured.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        over(secured, work).await;
    });
}

async fn over<S>(stream: S, work: impl AsyncFnOnce(Http2))
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    let driving = tokio::spawn(async move { drop(connection.await) });
    tokio::time::timeout(PATIENCE, work(Http2(client))).await.expect("nothing hangs");
    driving.abort();
}

impl Http2 {
    /// One request, and its answer.
    pub(crate) async fn call(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut client = self.0.clone().ready().await.expect("it is open");
        let uri = format!("http://localhost{target}");
        let request = Request::builder().method(method).uri(uri).version(Version::HTTP_2);
        let request =
            fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(()).expect("it is valid");
        let (answer, stream) = client.send_request(request, body.is_empty()).expect("it is open");
        let sending = async {
            if !body.is_empty() {
                send(stream, body).await;
            }
        };
        let (answer, ()) = tokio::join!(answer, sending);
        let (head, mut content) = answer.expect("it answers").into_parts();
        let text = |value: &http::HeaderValue| value.to_str().expect("text").to_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
        let mut answer =
            Answer { status: head.status.as_u16(), headers: headers.collect(), body: Vec::new() };
        while let Some(piece) = content.data().await {
            let piece = piece.expect("the answer is complete");
            content.flow_control().release_capacity(piece.len()).expect("it came");
            answer.body.extend_from_slice(&piece);
        }
        answer
    }
}

/// Sends a body, as far as the server's windows allow at a time.
async fn send(mut stream: SendStream<Bytes>, mut body: &[u8]) {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let Some(Ok(room)) = poll_fn(|context| stream.poll_capacity(context)).await else {
            return; // It was answered before its end; the answer is what counts.
        };
        let (piece, rest) = body.split_at(room.min(body.len()));
        body = rest;
        if stream.send_data(Bytes::copy_from_slice(piece), body.is_empty()).is_err() {
            return;
        }
    }
}
