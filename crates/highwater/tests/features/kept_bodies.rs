//! Bodies of requests that outlive their handlers: the rest of theirs, or an error, and nothing else.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use highwater::server::TransportChoice;
use highwater::{BodyStream, Router, StatusCode};
use highwater_testkit::read_some;

use crate::answers::{Answer, Answers};
use crate::served::{HANG, start};
use crate::transports::on_each_transport;

fn answer(stream: &mut TcpStream, answers: &mut Answers) -> Answer {
    let mut bytes = Vec::new();
    loop {
        if let Some(answer) = answers.next(&mut bytes) {
            return answer;
        }
        let mut piece = [0; 1024];
        let len = read_some(stream, &mut piece).expect("it answers");
        assert!(len > 0, "it answers before it closes");
        bytes.extend_from_slice(&piece[..len]);
    }
}

async fn read_all(mut body: BodyStream) -> Result<String, String> {
    let mut all = Vec::new();
    while let Some(piece) = body.next().await {
        all.extend_from_slice(&piece.map_err(|error| error.to_string())?);
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

on_each_transport! {
    /// Purpose: a handler that answers at once and leaves its body to a task gives it an end: what the client sends after the
    /// answer is dropped, and the task learns that its body is incomplete. Once, it waited, and then got the body of the next
    /// request on the connection, which may be another client's behind a proxy.
    fn a_body_ends_with_the_answer(transport) {
        let (sender, receiver) = mpsc::channel();
        let keep = move |body: BodyStream| {
            let sender = sender.clone();
            tokio::task::spawn_local(async move {
                let _ = sender.send(read_all(body).await);
            });
            StatusCode::ACCEPTED
        };
        let later = async || {
            tokio::time::sleep(Duration::from_millis(100)).await;
            "later"
        };
        let server = start(Router::new().post("/keep", keep).post("/later", later), transport);
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_read_timeout(Some(HANG)).expect("it is open");
        let mut answers = Answers::default();
        stream.write_all(b"POST /keep HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nfirst").expect("open");
        assert_eq!(answer(&mut stream, &mut answers).status, 202);
        stream.write_all(b"12345POST /later HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n").expect("open");
        thread::sleep(Duration::from_millis(20));
        stream.write_all(b"second").expect("open");
        assert_eq!(answer(&mut stream, &mut answers).content, "later");
        let read = receiver.recv_timeout(HANG).expect("it does not wait for ever");
        assert!(read.is_err(), "{read:?}");
    }
}
