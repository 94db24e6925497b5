//! Does a service of tonic do under `highwater::serve` what it does under tonic's own server? Each check is made there, on
//! Highwater over each driver, by prior knowledge and over TLS, and behind nginx and HAProxy.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod numbers;
mod proxied;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use common::{HIGHWATER, Server, Under, config};
use futures_util::{StreamExt as _, stream};
use highwater::{PeerCertificates, Pem, Tls};
use http_body_util::BodyExt as _;
use numbers::{COUNT_MAX, Number, Numbers, NumbersClient};
use proxied::Proxy;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::sync::mpsc;
use tonic::service::Routes;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request};
use tower::Service as _;

/// How long a check may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// An authority, and the certificate and key that it has given to `localhost`, in PEM.
struct Certificates {
    authority: CertifiedIssuer<'static, KeyPair>,
    chain: String,
    der: Vec<u8>,
    key: String,
}

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there is randomness");
        let authority =
            CertifiedIssuer::self_signed(params, key).expect("the parameters are right");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("there is randomness");
        let issued = params.signed_by(&key, &authority).expect("the parameters are right");
        let (chain, der) = (issued.pem(), issued.der().to_vec());
        Certificates { chain, der, key: key.serialize_pem(), authority }
    }

    fn server(&self) -> Tls {
        Tls::pem(Pem::text(self.chain.as_str()), Pem::text(self.key.as_str()))
    }

    fn client(&self) -> ClientTlsConfig {
        let authority = Certificate::from_pem(self.authority.pem());
        ClientTlsConfig::new().ca_certificate(authority).domain_name("localhost")
    }
}

/// A server of this application, over TLS if there are certificates.
fn highwater(under: Under, app: Router, tls: Option<Tls>) -> Server {
    let Under::Highwater(transport) = under else { panic!("{under:?} is not ours") };
    Server::run(move |listener, stopped| {
        Box::pin(async move {
            let app = app.into_make_service_with_connect_info::<SocketAddr>();
            let serve = highwater::serve(listener, app).config(config(transport));
            let serve = if let Some(tls) = tls { serve.tls(tls) } else { serve };
            serve.with_graceful_shutdown(async { drop(stopped.await) }).await
        })
    })
}

/// tonic's own server.
fn tonic_server(numbers: Numbers) -> Server {
    Server::run(move |listener, stopped| {
        Box::pin(async move {
            tonic::transport::Server::builder()
                .add_service(numbers)
                .serve_with_incoming_shutdown(
                    tonic::transport::server::TcpIncoming::from(listener),
                    async { drop(stopped.await) },
                )
                .await
                .map_err(std::io::Error::other)
        })
    })
}

/// The content of the answer to a `GET`.
async fn get_text(channel: Channel, path: &str) -> String {
    let request = axum::http::Request::get(path).body(tonic::body::Body::empty());
    ask(channel, request.expect("it is valid")).await
}

/// The content of the answer.
async fn ask(mut channel: Channel, request: axum::http::Request<tonic::body::Body>) -> String {
    poll_fn(|context| channel.poll_ready(context)).await.expect("the connection is open");
    let response = channel.call(request).await.expect("it answers");
    let content = response.into_body().collect().await.expect("it is complete").to_bytes();
    String::from_utf8(content.into()).expect("it is text")
}

/// Works with a connection to `server`.
fn connected(server: &Server, tls: Option<ClientTlsConfig>, work: impl AsyncFnOnce(Channel)) {
    connected_to(server.address, tls, work);
}

/// Works with a connection to `address`.
fn connected_to(
    address: SocketAddr,
    tls: Option<ClientTlsConfig>,
    work: impl AsyncFnOnce(Channel),
) {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).expect("a URI");
    let endpoint = match tls {
        Some(tls) => endpoint.tls_config(tls).expect("the certificates are right"),
        None => endpoint,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("it is built").block_on(async {
        let channel = endpoint.connect().await.expect("it listens");
        tokio::time::timeout(PATIENCE, work(channel)).await.expect("nothing hangs");
    });
}

/// Makes a check under every server.
fn everywhere(check: impl AsyncFn(NumbersClient, Numbers)) {
    let work = async |channel: Channel, numbers: &Numbers| {
        check(NumbersClient::new(channel), numbers.clone()).await;
    };
    let numbers = Numbers::default();
    let own = tonic_server(numbers.clone());
    connected(&own, None, async |channel| work(channel, &numbers).await);
    let certificates = Certificates::new();
    for under in HIGHWATER {
        let numbers = Numbers::default();
        let app = || Routes::new(numbers.clone()).into_axum_router();
        let plain = highwater(under, app(), None);
        connected(&plain, None, async |channel| work(channel, &numbers).await);
        let numbers = Numbers::default();
        let app = Routes::new(numbers.clone()).into_axum_router();
        let secured = highwater(under, app, Some(certificates.server()));
        let tls = Some(certificates.client());
        connected(&secured, tls, async |channel| work(channel, &numbers).await);
    }
    for name in ["nginx", "HAProxy"] {
        let numbers = Numbers::default();
        let server = highwater(HIGHWATER[0], Routes::new(numbers.clone()).into_axum_router(), None);
        let Some(proxy) = Proxy::start(name, server.address, &certificates) else { continue };
        let tls = Some(certificates.client());
        connected_to(proxy.address, tls, async |channel| work(channel, &numbers).await);
    }
}

/// Purpose: one message there and one back, with metadata both ways; and a large one, beyond every window of flow control.
#[test]
fn unary() {
    everywhere(async |mut client, _| {
        let mut request = Request::new(Number::from(7));
        request.metadata_mut().insert("x-caller", "me".parse().expect("it is ASCII"));
        let response = client.unary("Square", request).await.expect("it answers");
        assert_eq!(response.metadata().get("x-called-by").expect("it was said"), "me");
        assert_eq!(response.into_inner(), Number::from(49));
        let padding: Vec<u8> = (0..1_000_000_u32).map(|place| place as u8).collect();
        let large = Number { value: 3, padding: padding.clone() };
        let response = client.unary("Square", Request::new(large)).await.expect("it answers");
        assert!(response.into_inner() == Number { value: 9, padding });
    });
}

/// Purpose: clients act on the status, which comes in trailers or, without a message, in the header fields: with its text, its
/// details and its metadata; and a method that is not there is told from one that fails.
#[test]
fn statuses() {
    everywhere(async |mut client, _| {
        let status = client.unary("Square", Request::new(Number::from(-1))).await;
        let status = status.expect_err("it is below 0");
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "no number below 0"));
        assert_eq!(status.details(), b"why");
        assert_eq!(status.metadata().get("x-least").expect("it was said"), "0");
        let status = client.unary("Cube", Request::new(Number::from(1))).await;
        assert_eq!(status.expect_err("there is none").code(), Code::Unimplemented);
    });
}

/// Purpose: messages of a server come one by one, and the status behind them; if it fails on the way, those before count.
#[test]
fn server_streaming() {
    everywhere(async |mut client, _| {
        for (last, code) in [(0, None), (3, None), (COUNT_MAX + 1, Some(Code::ResourceExhausted))] {
            let mut numbers = client.count(last).await.expect("it answers").into_inner();
            let mut next = 1;
            let failed = loop {
                match numbers.message().await {
                    Ok(Some(number)) => assert_eq!(number.value, next),
                    Ok(None) => break None,
                    Err(status) => break Some(status.code()),
                }
                next += 1;
            };
            assert_eq!((next - 1, failed), (last.min(COUNT_MAX), code));
        }
    });
}

/// Purpose: a request of many messages, without a length, arrives whole: none, a few, and more than any window holds.
#[test]
fn client_streaming() {
    everywhere(async |mut client, _| {
        for (count, padding) in [(0, 0), (3, 0), (300, 10_000)] {
            let number = move |value| Number { value, padding: vec![1; padding] };
            let sum = client.sum(stream::iter(1..=count).map(number)).await.expect("it answers");
            let wanted = count * (count + 1) / 2 + count * padding as i64;
            assert_eq!(sum.into_inner().value, wanted);
        }
    });
}

/// Purpose: both sides speak in turn on one stream: each answer comes before the next question is asked, so nothing is held
/// back until an end.
#[test]
fn both_ways() {
    everywhere(async |mut client, _| {
        let (questions, asked) = mpsc::channel(1);
        let asked = stream::unfold(asked, async |mut asked: mpsc::Receiver<Number>| {
            Some((asked.recv().await?, asked))
        });
        questions.send(Number::from(1)).await.expect("it is open");
        let mut answers = client.running(asked).await.expect("it answers").into_inner();
        let mut sum = 1;
        for value in 2..=50 {
            assert_eq!(answers.message().await.expect("no failure").expect("no end").value, sum);
            questions.send(Number::from(value)).await.expect("it is open");
            sum += value;
        }
        assert_eq!(answers.message().await.expect("no failure").expect("no end").value, sum);
        drop(questions);
        assert_eq!(answers.message().await.expect("no failure"), None);
    });
}

/// Purpose: a call that a client gives up ends on the server as well.
#[test]
fn deadlines() {
    everywhere(async |mut client, numbers| {
        let mut request = Request::new(Number::from(1));
        request.set_timeout(Duration::from_millis(50));
        let status = client.unary("Never", request).await.expect_err("it never answers");
        assert!(matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded), "{status:?}");
        while numbers.dropped.load(SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let response = client.unary("Square", Request::new(Number::from(2))).await;
        assert_eq!(response.expect("the connection goes on").into_inner().value, 4);
    });
}

/// Purpose: a hundred calls on one connection do not get in each other's way.
#[test]
fn at_the_same_time() {
    everywhere(async |client, _| {
        let calls = (0..100).map(|value| {
            let mut client = client.clone();
            async move {
                let response = client.unary("Square", Request::new(Number::from(value))).await;
                assert_eq!(response.expect("it answers").into_inner().value, value * value);
                let numbers = client.count(value).await.expect("it answers").into_inner();
                assert_eq!(numbers.count().await as i64, value);
            }
        });
        futures_util::future::join_all(calls).await;
    });
}

/// Purpose: a service sees who calls: the peer's address, and over TLS what certificate it has shown; beside gRPC, the
/// application has ordinary routes on the same port.
#[test]
fn callers_are_known() {
    async fn who(
        ConnectInfo(peer): ConnectInfo<SocketAddr>,
        client: Option<axum::Extension<PeerCertificates>>,
    ) -> String {
        let shown = client.map(|client| client.leaf().to_vec());
        format!("{} {:?}", peer.ip(), shown)
    }
    let certificates = Certificates::new();
    let authority = Pem::text(certificates.authority.pem());
    let app = || Routes::new(Numbers::default()).into_axum_router().route("/who", get(who));
    let own = Identity::from_pem(&certificates.chain, &certificates.key);
    let shown = &certificates.der;
    for under in HIGHWATER {
        let tls = certificates.server().client_ca(authority.clone());
        let secured = highwater(under, app(), Some(tls));
        let tls = certificates.client().identity(own.clone());
        connected(&secured, Some(tls), async |channel| {
            let seen = get_text(channel.clone(), "/who").await;
            assert_eq!(seen, format!("127.0.0.1 {:?}", Some(shown)));
            let response =
                NumbersClient::new(channel).unary("Square", Request::new(Number::from(5))).await;
            assert_eq!(response.expect("it answers").into_inner().value, 25);
        });
        let plain = highwater(under, app(), None);
        connected(&plain, None, async |channel| {
            assert_eq!(get_text(channel, "/who").await, "127.0.0.1 None");
        });
    }
}

/// Purpose: layers of tower pass on content whose length nobody has said, which is common over HTTP/2; it has no
/// `Transfer-Encoding` there that would tell.
#[test]
fn layers_pass_content_on() {
    let app = || {
        highwater::Router::new()
            .layer(tower_http::cors::CorsLayer::permissive())
            .post("/length", |content: highwater::Bytes| content.len().to_string())
    };
    for under in HIGHWATER {
        let Under::Highwater(transport) = under else { continue };
        let server = Server::highwater(transport, app());
        connected(&server, None, async |channel| {
            for count in [0, 1, 50] {
                let pieces = stream::iter(0..count).map(|_| Ok::<_, Infallible>(vec![7; 1000]));
                let content = axum::body::Body::from_stream(pieces);
                let request =
                    axum::http::Request::post("/length").body(tonic::body::Body::new(content));
                let length = ask(channel.clone(), request.expect("it is valid")).await;
                assert_eq!(length, (count * 1000).to_string());
            }
        });
    }
}
