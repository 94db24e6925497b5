//! Which answers did each route give, by method and class of status?
//!
//! A table for each endpoint, with a place for every method that has a name and every class: to count is to add to one
//! number. So the number of series has a bound, whatever clients send: a page has only those that were counted.

use highwater_core::http::Method;

use super::Server;
use super::exposition::{Kind, Page};
use super::tally::Tally;

/// Bits of an [`Answer`] that are its status: no status has more than three digits.
const STATUS_BITS: u32 = 10;

/// The classes of statuses, as they are labelled; the first is for those that no RFC defines.
const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// How methods are labelled, by their discriminants; the last is for those without a name, as OpenTelemetry has it.
const METHODS: [&str; Method::NAMED.len() + 1] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "_OTHER"];

/// The status of an answer, and the method that was asked with: so small that a turn can keep them in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer(u16);

impl Answer {
    /// An answer with `status` to a request with `method`.
    #[inline]
    pub(crate) fn new(method: Method, status: u16) -> Self {
        debug_assert!(status < 1 << STATUS_BITS);
        Answer((method as u16) << STATUS_BITS | status)
    }

    #[inline]
    pub(super) fn status(self) -> u16 {
        self.0 & ((1 << STATUS_BITS) - 1)
    }

    #[inline]
    fn method(self) -> usize {
        usize::from(self.0 >> STATUS_BITS)
    }

    #[inline]
    fn class(self) -> usize {
        let class = usize::from(self.status() / 100);
        if class < CLASSES.len() { class } else { 0 }
    }
}

/// One endpoint's answers by method and class.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Classes([[Tally; CLASSES.len()]; METHODS.len()]);

impl Classes {
    /// The count that the answer belongs to.
    #[inline]
    pub(super) fn of(&self, answer: Answer) -> &Tally {
        &self.0[answer.method()][answer.class()]
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().flatten().map(Tally::get).sum()
    }
}

pub(super) fn write(page: &mut Page, server: &Server) {
    let help = "Responses, by method, by the route that was found, and by class of status; route has the names of \
                http_requests_by_endpoint, and methods without a name here are _OTHER.";
    let mut family = page.family("http_endpoint_responses_total", help, Kind::Counter);
    for (route, indices) in &server.endpoints {
        for (method, method_name) in METHODS.iter().enumerate() {
            for (class, class_name) in CLASSES.iter().enumerate() {
                let count = server
                    .sum_endpoints(indices, |endpoint| endpoint.answers.0[method][class].get());
                if count > 0 {
                    let labels =
                        [("method", *method_name), ("route", route), ("status", class_name)];
                    family.sample(&labels, count);
                }
            }
        }
    }
}

#[cfg(test)]
impl From<u16> for Answer {
    /// To a `GET`.
    fn from(status: u16) -> Self {
        Answer::new(Method::Get, status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: every method and every status has its place, and strange ones share one.
    #[test]
    fn places() {
        for (index, method) in Method::NAMED.into_iter().enumerate() {
            assert_eq!(METHODS[index], method.as_str());
            let answer = Answer::new(method, 999);
            assert_eq!((answer.method(), answer.status(), answer.class()), (index, 999, 0));
        }
        let table = Classes::default();
        for (status, class) in [(99, 0), (100, 1), (204, 2), (304, 3), (499, 4), (599, 5), (600, 0)]
        {
            table.of(Answer::new(Method::Other, status)).add(1);
            assert_eq!(Answer::from(status).class(), class, "{status}");
        }
        let counts: Vec<u64> = table.0[METHODS.len() - 1].iter().map(Tally::get).collect();
        assert_eq!(counts, [2, 1, 1, 1, 1, 1]);
    }
}
