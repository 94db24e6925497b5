//! A provider that is a plain socket, so that it can misbehave below HTTP.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use highwater_search::catalog::{Catalog, EVENTS_MAX};
use highwater_search::event::Event;
use highwater_search::store::{Record, Store, StoreError};

/// What a stub provider does with one connection, after it has read the request.
pub(crate) type Act = Box<dyn FnOnce(&mut TcpStream) + Send>;

/// Serves one connection per act, in order. Returns its URL and the heads of the requests it got.
pub(crate) fn stub(acts: Vec<Act>) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/feed.xml", listener.local_addr().expect("bound"));
    let (heads, received) = mpsc::channel();
    thread::spawn(move || {
        for act in acts {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let mut head = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
            while !head.ends_with("\r\n\r\n")
                && reader.read_line(&mut head).is_ok_and(|read| read > 0)
            {}
            let _ = heads.send(head);
            act(&mut stream);
        }
    });
    (url, received)
}

/// Sends bytes, or finds out that the poller has hung up, which is its right.
pub(crate) fn send(bytes: impl Into<Vec<u8>>) -> Act {
    let bytes = bytes.into();
    Box::new(move |stream| drop(stream.write_all(&bytes)))
}

pub(crate) fn response(head: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{head}\r\n").as_bytes(), body].concat()
}

pub(crate) fn ok(body: impl AsRef<[u8]>) -> Act {
    send(response("", body.as_ref()))
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("a Vec takes everything");
    encoder.finish().expect("a Vec takes everything")
}

/// A store that forgets: these tests are about the poller.
struct Forgetful;

impl Store for Forgetful {
    fn load(&mut self) -> Result<Vec<Record>, StoreError> {
        Ok(Vec::new())
    }

    fn apply(&mut self, _: &[Event], _: i64) -> Result<(), StoreError> {
        Ok(())
    }
}

/// An empty catalog.
pub(crate) fn catalog() -> Catalog {
    Catalog::open(Box::new(Forgetful), EVENTS_MAX).expect("nothing to load")
}
