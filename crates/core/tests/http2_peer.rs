//! Frames and field blocks against another implementation, `h2`: what one side writes the other reads, in both
//! directions, over many messages of one connection, so that both tables of fields are in use.

use std::collections::BTreeMap;

use highwater_core::http2::hpack::{self, Indexing};
use highwater_core::http2::{Block, Decoder, FRAME_SIZE_DEFAULT, Frame, PREFACE, Setting, encode};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Names with their values, in the order of each name; the order between names is not `h2`'s to keep.
type Fields = BTreeMap<String, Vec<Vec<u8>>>;

/// Bytes that may be under way: so few that frames are split.
const PIPE: usize = 100;
/// Of one list of fields.
const LIST_MAX: usize = 1 << 20;

fn name() -> impl Strategy<Value = String> {
    let known = [
        "content-type",
        "accept",
        "cookie",
        "etag",
        "set-cookie",
        "date",
        "authorization",
        "server",
    ];
    prop_oneof![
        proptest::sample::select(known.to_vec()).prop_map(str::to_owned),
        "x-[a-z0-9-]{1,12}"
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-c]{0,2}".prop_map(String::into_bytes),
        "[!-~][ -~]{0,80}".prop_map(String::into_bytes),
        proptest::collection::vec(0x80_u8..=0xff, 1..40)
    ]
}

fn fields() -> impl Strategy<Value = Fields> {
    proptest::collection::btree_map(name(), proptest::collection::vec(value(), 1..3), 0..8)
}

fn headers(fields: &Fields) -> http::HeaderMap {
    let mut headers = http::HeaderMap::new();
    for (name, values) in fields {
        for value in values {
            let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a token");
            headers.append(
                name,
                http::HeaderValue::from_bytes(value).expect("without control characters"),
            );
        }
    }
    headers
}

fn of_headers(headers: &http::HeaderMap) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in headers {
        fields.entry(name.to_string()).or_default().push(value.as_bytes().to_vec());
    }
    fields
}

/// Our side of a connection: the codecs, and nothing that knows what a frame is for.
struct Side {
    io: DuplexStream,
    decoder: Decoder,
    fields_in: hpack::Decoder,
    fields_out: hpack::Encoder,
    block: Block,
    /// Messages by stream: fields, content, and whether they are complete.
    messages: BTreeMap<u32, (Fields, Vec<u8>, bool)>,
    /// Whose field block is incomplete, and whether it ends its stream.
    open: (u32, bool),
}

impl Side {
    fn new(io: DuplexStream, table: usize) -> Side {
        Side {
            io,
            decoder: Decoder::default(),
            fields_in: hpack::Decoder::new(table),
            fields_out: hpack::Encoder::new(),
            block: Block::default(),
            messages: BTreeMap::new(),
            open: (0, false),
        }
    }

    /// Encodes a message without content, or the beginning of one.
    fn message(
        &mut self,
        stream: u32,
        first: &[(&str, &str)],
        fields: &Fields,
        is_last: bool,
        out: &mut Vec<u8>,
    ) {
        encode::headers(stream, is_last, FRAME_SIZE_DEFAULT, out, |block| {
            self.fields_out.begin(block);
            for (name, value) in first {
                self.fields_out.field(
                    name.as_bytes(),
                    value.as_bytes(),
                    Indexing::Incremental,
                    block,
                );
            }
            for (name, values) in fields {
                for value in values {
                    let indexing = Indexing::usual(name.as_bytes());
                    self.fields_out.field(name.as_bytes(), value, indexing, block);
                }
            }
        });
    }

    /// Reads until `count` messages are complete.
    async fn read(&mut self, count: usize) {
        while self.messages.values().filter(|message| message.2).count() < count {
            let mut buffer = [0; 77];
            let len = self.io.read(&mut buffer).await.expect("the other side is there");
            assert!(len > 0, "the other side has closed the connection: {:?}", self.messages);
            let (mut input, mut out) = (&buffer[..len], Vec::new());
            let mut decoder = std::mem::take(&mut self.decoder);
            while let Some(frame) = decoder.next(&mut input).expect("h2 writes what is allowed") {
                self.on_frame(frame, &mut out);
            }
            self.decoder = decoder;
            self.io.write_all(&out).await.expect("the other side reads");
        }
    }

    fn on_frame(&mut self, frame: Frame<'_>, out: &mut Vec<u8>) {
        match frame {
            Frame::Settings(settings) => {
                for setting in settings.iter() {
                    if let Setting::HeaderTableSize(size) = setting {
                        self.fields_out.set_limit(size as usize);
                    }
                }
                encode::settings_ack(out);
            }
            Frame::Headers { stream, fragment, is_whole, is_last, .. } => {
                self.open = (stream, is_last);
                self.add(fragment, is_whole);
            }
            Frame::Continuation { stream, fragment, is_whole } => {
                assert_eq!(stream, self.open.0);
                self.add(fragment, is_whole);
            }
            Frame::Data { stream, piece, is_last, .. } => {
                let message = self.messages.get_mut(&stream).expect("content comes after fields");
                message.1.extend_from_slice(piece);
                message.2 = is_last;
            }
            Frame::SettingsAck | Frame::WindowUpdate { .. } => {}
            other => panic!("h2 has no reason for {other:?}"),
        }
    }

    fn add(&mut self, fragment: &[u8], is_whole: bool) {
        self.block.add(fragment, LIST_MAX).expect("is bounded by the test");
        if is_whole {
            let (mut fields, block) = (Fields::new(), self.block.take());
            let decoded = self.fields_in.decode(&block, LIST_MAX, &mut |field| {
                let name = String::from_utf8(field.name.to_vec()).expect("a token");
                fields.entry(name).or_default().push(field.value.to_vec());
            });
            assert!(!decoded.expect("h2 compresses as the RFC says").is_too_large);
            self.messages.insert(self.open.0, (fields, Vec::new(), self.open.1));
        }
    }
}

/// `h2` as the server: answers each request with the next of `replies`, and returns the requests' fields.
async fn serve(io: DuplexStream, replies: Vec<(Fields, Vec<u8>)>) -> Vec<Fields> {
    let mut connection = h2::server::handshake(io).await.expect("our preface is right");
    let (mut seen, mut replies) = (Vec::new(), replies.into_iter());
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted.expect("our request is right");
        seen.push(of_headers(request.headers()));
        let (fields, content) = replies.next().expect("as many as requests");
        let mut response = http::Response::new(());
        *response.headers_mut() = headers(&fields);
        let mut stream = respond.send_response(response, false).expect("the stream is open");
        stream.send_data(content.into(), true).expect("the stream is open");
    }
    seen
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Purpose: a server that is not ours reads our requests, and we read its answers, field by field.
    #[test]
    fn requests_to_h2(exchanges in proptest::collection::vec((fields(), fields(), proptest::collection::vec(any::<u8>(), 0..300)), 1..12), table in 0_u32..9000) {
        runtime().block_on(async {
            let (ours, theirs) = tokio::io::duplex(PIPE);
            let replies = exchanges.iter().map(|(_, reply, content)| (reply.clone(), content.clone())).collect();
            let server = tokio::spawn(serve(theirs, replies));
            let mut side = Side::new(ours, table as usize);
            // What is in force until the server has acknowledged ours.
            side.fields_in = hpack::Decoder::new((table as usize).max(hpack::SIZE_DEFAULT));
            let mut out = PREFACE.to_vec();
            encode::settings(&[Setting::HeaderTableSize(table), Setting::EnablePush(false)], &mut out);
            for (index, (request, reply, content)) in exchanges.iter().enumerate() {
                let stream = 2 * index as u32 + 1;
                let first = [(":method", "GET"), (":scheme", "http"), (":path", "/a?b"), (":authority", "host")];
                side.message(stream, &first, request, true, &mut out);
                side.io.write_all(&out).await.expect("the server reads");
                out.clear();
                side.read(index + 1).await;
                let (mut fields, body, _) = side.messages[&stream].clone();
                assert_eq!(fields.remove(":status"), Some(vec![b"200".to_vec()]));
                assert_eq!((&fields, &body), (reply, content));
            }
            drop(side);
            let requests: Vec<Fields> = exchanges.iter().map(|exchange| exchange.0.clone()).collect();
            assert_eq!(server.await.expect("the server did not panic"), requests);
        });
    }

    /// Purpose: we read the requests of a client that is not ours, and it reads our answers.
    #[test]
    fn requests_from_h2(exchanges in proptest::collection::vec((fields(), fields()), 1..12)) {
        runtime().block_on(async {
            let (ours, theirs) = tokio::io::duplex(PIPE);
            let asked = exchanges.clone();
            let client = tokio::spawn(async move {
                let (mut client, connection) = h2::client::handshake(theirs).await.expect("our settings are right");
                let driver = tokio::spawn(connection);
                let mut answers = Vec::new();
                for (request, _) in asked {
                    let mut head = http::Request::new(());
                    *head.uri_mut() = "http://host/a?b".parse().expect("a URI");
                    *head.headers_mut() = headers(&request);
                    let (answer, _) = client.send_request(head, true).expect("the connection is open");
                    let answer = answer.await.expect("our answer is right");
                    answers.push((answer.status().as_u16(), of_headers(answer.headers())));
                }
                driver.abort();
                answers
            });
            let mut side = Side::new(ours, hpack::SIZE_DEFAULT);
            let mut preface = [0; PREFACE.len()];
            side.io.read_exact(&mut preface).await.expect("a preface");
            assert_eq!(&preface, PREFACE);
            let mut out = Vec::new();
            encode::settings(&[Setting::MaxConcurrentStreams(100)], &mut out);
            for (index, (request, reply)) in exchanges.iter().enumerate() {
                side.io.write_all(&out).await.expect("the client reads");
                out.clear();
                side.read(index + 1).await;
                let stream = 2 * index as u32 + 1;
                let mut fields = side.messages[&stream].0.clone();
                fields.retain(|name, _| !name.starts_with(':'));
                assert_eq!(&fields, request);
                side.message(stream, &[(":status", "404")], reply, true, &mut out);
            }
            side.io.write_all(&out).await.expect("the client reads");
            let expected: Vec<_> = exchanges.iter().map(|exchange| (404, exchange.1.clone())).collect();
            assert_eq!(client.await.expect("the client did not panic"), expected);
        });
    }
}
