//! The drivers against the driver contract, over real loopback sockets: bytes that are taken instead of delivered (R11).

mod common;

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use common::*;
use highwater_core::driver::{Close, ConnId, Reading, Then};
use highwater_sys::DriverConfig;

/// The most that a delivery of [`Reading::Brief`] has.
const BRIEF_MAX: usize = 4096;

/// What came over one connection: delivered and taken, in the order in which it came.
#[derive(Default)]
struct Came {
    bytes: Vec<u8>,
    /// How much of the log is in it.
    seen: usize,
    taken: usize,
}

impl Came {
    /// Adds what was delivered since the last call. Returns the lengths of these deliveries.
    fn deliveries<D: Subject>(&mut self, rig: &Rig<D>, id: ConnId) -> Vec<usize> {
        let mut lengths = Vec::new();
        for seen in &rig.log[std::mem::replace(&mut self.seen, rig.log.len())..] {
            if let Seen::Received(of, bytes) = seen
                && *of == id
            {
                self.bytes.extend_from_slice(bytes);
                lengths.push(bytes.len());
            }
        }
        lengths
    }

    /// Takes what has arrived, at most `max`. Its memory stays below twice its content.
    fn take<D: Subject>(&mut self, rig: &mut Rig<D>, id: ConnId, max: u64) -> usize {
        self.bytes.shrink_to_fit();
        let before = self.bytes.len();
        let len = rig.driver.take(id, &mut self.bytes, max);
        assert!(self.bytes.len() == before + len && len as u64 <= max, "{len} bytes");
        let most = 2 * self.bytes.len().max(8);
        assert!(self.bytes.capacity() <= most, "{} of {most}", self.bytes.capacity());
        self.taken += len;
        len
    }
}

/// A connection whose first delivery was made.
fn begun<D: Subject>(rig: &mut Rig<D>) -> (TcpStream, ConnId, Came) {
    let (mut client, id) = rig.accepted();
    client.write_all(b"!").unwrap();
    rig.until_seen(&Seen::Received(id, b"!".to_vec()));
    let mut came = Came::default();
    came.deliveries(rig, id);
    (client, id, came)
}

on_each! {
    /// Purpose: a body arrives whole and in order, delivered in small pieces and taken in large ones, in memory that
    /// grows for what is here.
    fn a_body_is_taken<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id, mut came) = begun(&mut rig);
        let sent = [&b"!"[..], &pattern(3_000_000)].concat();
        let upload = sent[1..].to_vec();
        let uploader = thread::spawn(move || client.write_all(&upload).map(|()| client));
        rig.driver.read(id, Reading::Brief);
        rig.until("the upload", |rig| {
            let lengths = came.deliveries(rig, id);
            assert!(lengths.len() <= 1 && lengths.iter().all(|len| *len <= BRIEF_MAX), "{lengths:?}");
            if !lengths.is_empty() {
                came.take(rig, id, (sent.len() - came.bytes.len()) as u64);
                rig.driver.read(id, Reading::Brief);
            }
            came.bytes.len() >= sent.len()
        });
        assert!(came.bytes == sent);
        assert!(came.taken > sent.len() / 4, "only {} bytes were taken", came.taken);
        drop(uploader.join().unwrap().unwrap());
        rig.until_seen(&Seen::Eof(id));
    }
}

on_each! {
    /// Purpose: no more is taken than was asked for, and what is left is delivered.
    fn the_rest_is_delivered<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id, mut came) = begun(&mut rig);
        let sent = [&b"!"[..], &pattern(20_000)].concat();
        client.write_all(&sent[1..]).unwrap();
        rig.driver.read(id, Reading::Brief);
        rig.until("a delivery", |rig| !came.deliveries(rig, id).is_empty());
        assert_eq!(came.take(&mut rig, id, 0), 0);
        came.take(&mut rig, id, 10);
        came.take(&mut rig, id, 3000);
        rig.stream(id);
        rig.until("the rest", |rig| {
            came.deliveries(rig, id);
            came.bytes.len() >= sent.len()
        });
        assert!(came.bytes == sent && came.taken > 0, "{} taken", came.taken);
    }
}

on_each! {
    /// Purpose: nothing is taken while a delivery is to come: it would overtake bytes.
    fn nothing_overtakes<D>() {
        for reading in [Reading::Once, Reading::Brief, Reading::Stream] {
            let mut rig = Rig::<D>::new();
            let (mut client, id, mut came) = begun(&mut rig);
            rig.driver.read(id, reading);
            client.write_all(&pattern(100)).unwrap();
            thread::sleep(Duration::from_millis(5));
            assert_eq!(came.take(&mut rig, id, 100), 0, "{reading:?}");
            rig.until("the bytes", |rig| {
                came.deliveries(rig, id);
                came.bytes.len() == 101
            });
            assert!(came.bytes[1..] == pattern(100), "{reading:?}");
        }
    }
}

on_each! {
    /// Purpose: bytes keep their order whatever is commanded, also where a receive is being cancelled or finds no buffer.
    fn any_order_of_commands<D>() {
        for buffer_count in [1, 4, 512] {
            let config = DriverConfig { buffer_count, ..DriverConfig::default() };
            let mut rig = Rig::<D>::with(&config);
            let (mut client, id, mut came) = begun(&mut rig);
            let sent = [&b"!"[..], &pattern(2_000_000)].concat();
            let upload = sent[1..].to_vec();
            let uploader = thread::spawn(move || {
                for (round, piece) in upload.chunks(9_973).enumerate() {
                    client.write_all(piece)?;
                    if round % 7 == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                }
                Ok::<_, std::io::Error>(client)
            });
            let commands =
                [Reading::Brief, Reading::Stream, Reading::Brief, Reading::Stop, Reading::Once];
            let mut round = 0;
            rig.until("everything", |rig| {
                came.deliveries(rig, id);
                came.take(rig, id, [7, 1 << 40, 20_000][round % 3]);
                rig.driver.read(id, commands[round % commands.len()]);
                if round % 4 == 0 {
                    rig.driver.read(id, Reading::Brief);
                }
                round += 1;
                rig.poll(Duration::from_micros(100));
                came.deliveries(rig, id);
                came.bytes.len() >= sent.len()
            });
            assert!(came.bytes == sent, "{buffer_count} buffers, {} taken", came.taken);
            drop(uploader.join().unwrap().unwrap());
        }
    }
}

on_each! {
    /// Purpose: the end is not taken, but reported; then nothing is taken any more.
    fn the_end_is_reported<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id, mut came) = begun(&mut rig);
        let sent = [&b"!"[..], &pattern(20_000)].concat();
        client.write_all(&sent[1..]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        rig.driver.read(id, Reading::Brief);
        rig.until("a delivery", |rig| !came.deliveries(rig, id).is_empty());
        while came.take(&mut rig, id, 1 << 40) > 0 {}
        assert!(!rig.log.contains(&Seen::Eof(id)));
        rig.stream(id);
        rig.until_seen(&Seen::Eof(id));
        came.deliveries(&rig, id);
        assert!(came.bytes == sent && came.taken > 0, "{} taken", came.taken);
        assert_eq!(came.take(&mut rig, id, 10), 0);
        rig.send(id, b"answer", Then::Close);
        rig.until_seen(&Seen::Closed(id));
    }
}

on_each! {
    /// Purpose: a reset in the middle of a body closes the connection, whether or not bytes are being taken; and a closed
    /// connection has nothing to take.
    fn a_reset_is_reported<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id, mut came) = begun(&mut rig);
        rig.driver.read(id, Reading::Brief);
        client.write_all(&pattern(20_000)).unwrap();
        rig.until("a delivery", |rig| !came.deliveries(rig, id).is_empty());
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        while came.take(&mut rig, id, 1000) > 0 {}
        rig.stream(id);
        rig.until_seen(&Seen::Closed(id));

        let (mut client, id, mut came) = begun(&mut rig);
        rig.driver.read(id, Reading::Brief);
        client.write_all(&pattern(20_000)).unwrap();
        rig.until("a delivery", |rig| !came.deliveries(rig, id).is_empty());
        rig.send(id, b"", Then::Close);
        assert_eq!(came.take(&mut rig, id, 1000), 0, "nothing more is received");
        rig.driver.close(id, Close::Reset);
        rig.until("both closed", |rig| rig.open() == 0);
    }
}
