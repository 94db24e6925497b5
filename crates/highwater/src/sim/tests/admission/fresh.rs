//! For how long does a connection count as one that has had no request?

use highwater_core::http::Limits;

use super::cork::Client;
use super::*;
use crate::metrics::Timeout;

/// Purpose: a connection of HTTP/2 whose request is answered at once is work no longer, and if it is closed later, then for
/// being idle. It once held its place until a tenth of a second after it was accepted, and was counted as one of a client that
/// had sent no request in time.
#[test]
fn an_answered_stream_ends_it() {
    let mut stage = Stage::new();
    let mut client = Client::connect(&mut stage);
    assert_eq!(stage.metrics.load.get(), 1, "its request is on its way");
    client.ask(&mut stage);
    stage.settle();
    assert_eq!((client.receive(&mut stage), stage.metrics.load.get()), (vec![200], 0));
    let idle = u64::try_from(Limits::default().idle_timeout.as_millis()).expect("it is a minute");
    stage.turn_after(idle + 10);
    stage.settle();
    let timeouts = [Timeout::Idle, Timeout::Header].map(|kind| stage.metrics.timeouts(kind));
    assert_eq!(timeouts, [1, 0]);
}
