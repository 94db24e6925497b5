//! Which layers are between a client and its dialer?

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use highwater_sys::dial::Dial;

use super::super::client::{Client, Plan};
use super::super::demand::Demand;
use super::super::frames::Closes;
use super::super::http2::{self, Http2};
use super::super::series::Span;
use super::super::tls::{self, TlsDialer};
use super::super::tunnels::Tunnels;
use super::super::upgrade::Message;
use super::super::wire::Wire;
use super::super::ws::WebSockets;
use super::{Finished, Shared, drive};

/// What a client thread needs beside its dialer.
pub(super) struct Load {
    pub(super) plan: Plan,
    pub(super) demand: Demand,
    pub(super) span: Span,
    pub(super) deadline: Option<Duration>,
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
    pub(super) http2: Option<http2::Setup>,
    /// Its part of the connections that are held open.
    pub(super) idle: u32,
}

impl Load {
    /// Drives a client over `dialer`, with TLS if it is asked for.
    pub(super) fn over<D: Dial>(
        self,
        dialer: D,
        tls: Option<(tls::Sessions, Vec<Vec<u8>>)>,
    ) -> Finished {
        let Some((sessions, messages)) = tls else { return self.speak(dialer) };
        let handshakes = sessions.handshakes();
        let (mut tally, spent) = self.speak(TlsDialer::new(dialer, sessions, messages))?;
        tally.tls = Some(handshakes.take());
        Ok((tally, spent))
    }

    /// Drives it in the protocol that is asked for.
    fn speak<D: Dial>(self, dialer: D) -> Finished {
        if let Some(message) =
            self.plan.requests.list.first().and_then(|request| request.ws.clone())
        {
            return self.speak_frames(dialer, message);
        }
        let Some(setup) = self.http2 else { return self.drive(dialer) };
        let http2 = Http2::new(dialer, setup);
        let frames = http2.frames();
        let (mut tally, spent) = self.drive(http2)?;
        tally.http2 = Some(frames.take());
        Ok((tally, spent))
    }

    /// WebSocket, on connections of its own or on streams.
    fn speak_frames<D: Dial>(self, dialer: D, message: Message) -> Finished {
        let (seed, idle) = (self.number as u64, self.idle);
        let frames = Rc::<RefCell<Closes>>::default();
        let (mut tally, spent) = match self.http2 {
            None => {
                let message = Some(message);
                self.drive(WebSockets::new(dialer, message, seed, idle, frames.clone()))?
            }
            Some(setup) => {
                let tunnels = Tunnels::new(dialer, setup.streams, &message, frames.clone());
                self.drive(WebSockets::new(tunnels, None, seed, idle, frames.clone()))?
            }
        };
        tally.ws = Some(frames.take());
        Ok((tally, spent))
    }

    fn drive<W: Wire>(self, dialer: W) -> Finished {
        let give_up = self.plan.give_up;
        let client = Client::new(dialer, self.plan, self.demand, self.span, self.deadline);
        drive(client, self.span, give_up, &self.shared, self.number)
    }
}
