//! Answers of the server's own: to requests that it refuses for load, and to input that is not a valid request.

use highwater_core::http::Reject;
use highwater_core::time::{Clock, Instant};

use super::super::Parts;
use super::super::encode::Rest;
use super::super::protocol::{Protocol, Stream};
use super::ExchangeMut;
use crate::app::{Error, Response, Target};
use crate::metrics::Rejection;

impl<C: Clock, P: Protocol> ExchangeMut<'_, C, P> {
    /// Answers a request that is refused for load: with `response` if layers made one for it, else with
    /// refusal number `number`, which is encoded.
    #[cold]
    pub(in super::super) fn refuse(
        &mut self,
        target: Target,
        reason: Rejection,
        number: u32,
        response: Option<Response>,
    ) {
        match response {
            None => self.refuse_with(target, reason, number),
            Some(response) => {
                let Parts { turn, metrics, .. } = &mut *self.parts;
                let status = response.status().as_u16();
                metrics.rejected(reason);
                turn.statistics.refused(metrics, self.exchange, status, reason.is_for_load());
                self.give(response);
            }
        }
    }

    /// Answers refusal number `number`, in the form of `target`'s scope.
    pub(in super::super) fn refuse_with(&mut self, target: Target, reason: Rejection, number: u32) {
        let Parts { turn, encoder, metrics, .. } = &mut *self.parts;
        let refusal = self.app.refusal(target, number);
        metrics.rejected(reason);
        let is_for_load = reason.is_for_load();
        turn.statistics.refused(metrics, self.exchange, refusal.status(), is_for_load);
        let (before, status) = (self.stream.pending(), refusal.status());
        encoder.fixed(&mut self.stream, turn.now, refusal);
        self.note_answer(status, before);
        self.follow(Rest::None);
    }

    /// Answers input that is not a valid request, or came too slowly.
    pub(super) fn reject(&mut self, reject: Reject) {
        self.parts.metrics.reject(reject);
        self.exchange.be_no_request(self.parts.unmatched, self.parts.turn.now);
        self.exchange.deadline = Instant::MAX;
        let response = self.exchange.fail(self.app, self.reject_error(reject));
        self.answer(response);
    }

    /// The error for a peer whose input is refused; names the limit if it is beyond one.
    fn reject_error(&self, reject: Reject) -> Error {
        let limits = &self.parts.encoder.limits;
        let most = match reject {
            Reject::BodyTooLarge => format!("{} bytes", self.stream.body_max()),
            Reject::UriTooLong => format!("{} bytes", limits.uri_max),
            Reject::HeaderTooLarge => {
                format!("{} bytes and {} fields", limits.header_max, limits.header_count_max)
            }
            _ => return Error::of_reject(reject),
        };
        Error::of_reject(reject).with_message(format!("{}; at most {most}", reject.reason()))
    }
}
