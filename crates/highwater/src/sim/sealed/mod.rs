//! A seal that no user sees, and its other side: connections of the simulator whose bytes are sealed.
//!
//! ```text
//!  client ─▶ peer ──hello──▶            ◀── the worker over a channel with `ToySeal`
//!              │  ◀──hello──            (begin: admitted like a request)
//!              │  ──finished──▶         established, with a welcome of its own
//!              │  ◀──data, …, alert or close──▶
//! ```
//!
//! A record is its kind, its length, its payload and a checksum over its number, kind and payload; from the hellos on, the
//! payload is enciphered. It is as much of TLS as the worker can notice: flights, records in pieces, own messages, alerts, a
//! closing message.
//!
//! `server` is the server's side, a [`Seal`](crate::server::Seal). `peer` is the client's, in the network: clients above it send and
//! receive plaintext, and the facts for the checks are about plaintext, too. It shares no code with `server`, and checks every byte as
//! the worker commands it:
//!
//! * nothing is sent but whole records, in order, with the right checksums;
//! * what ends without a reset ends with the closing message, or with an alert if the client broke the rules;
//! * nothing follows either, and no content follows a broken record;
//! * every handshake that was completed is counted, and no more begin in a turn than the turn has time for.

mod peer;
mod server;

pub(in crate::sim) use self::peer::Peer;
pub(in crate::sim) use self::server::ToySealer;

#[cfg(test)]
mod tests {
    use super::super::{Kind, Kinds, run_with};

    /// Purpose: the worker serves HTTP/1 and a protocol with streams over sealed connections under `SEALED_SEEDS` seeds.
    #[test]
    fn seeds() {
        let seeds = std::env::var("SEALED_SEEDS");
        let seeds: u64 = seeds.map_or(30, |seeds| seeds.parse().expect("a number of seeds"));
        let (mut failed, mut answers) = (Vec::new(), 0);
        for seed in 0..seeds {
            match run_with(seed, Kinds::NONE.with(Kind::Sealed).with(Kind::Multiplexed)) {
                Ok(report) => answers += report.answers,
                Err(failure) => failed.push(failure.to_string()),
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
        assert!(answers as u64 > 10 * seeds, "{answers}");
    }
}
