//! Both drivers against the driver contract, over real loopback sockets.

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;

use common::*;
use highwater_core::driver::Then;

on_both! {
    /// Purpose: a request arrives, its answer leaves, the buffer comes back, twice on a connection.
    fn round_trip<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        client.write_all(b"first").unwrap();
        rig.until_seen(&Seen::Received(id, b"first".to_vec()));
        rig.send(id, b"one", Then::Keep);
        rig.stream(id);
        rig.until_seen(&Seen::Sent(id));
        let mut answer = [0; 3];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"one");

        client.write_all(b"second").unwrap();
        rig.until_seen(&Seen::Received(id, b"second".to_vec()));
        rig.send(id, b"two", Then::Keep);
        rig.until("second Sent", |rig| rig.count(|seen| *seen == Seen::Sent(id)) == 2);
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"two");

        drop(client);
        rig.until_seen(&Seen::Eof(id));
    }
}

on_both! {
    /// Purpose: a client that finishes sending first still gets its answer, then the close.
    fn half_close_is_answered<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        client.write_all(b"last").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        rig.until("the request", |rig| rig.received(id) == b"last");
        rig.stream(id);
        rig.until_seen(&Seen::Eof(id));
        rig.send(id, b"answer", Then::Close);
        rig.until_seen(&Seen::Closed(id));
        assert!(rig.log.contains(&Seen::Sent(id)));
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"answer");
    }
}
