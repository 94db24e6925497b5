//! The original target of a request whose head was changed.

use super::guard::Panic;
use super::request::Request;

impl Request<'_> {
    /// The target as it was sent, before any [rewrite](super::Router::rewrite): for logs, and for links and redirects,
    /// which the client resolves against the target that it knows.
    pub fn original_target(&self) -> &str {
        let replaced = self.routed().replaced.as_ref();
        match replaced.and_then(|replaced| replaced.target.as_ref()) {
            Some(new) => &new.sent,
            None => self.target(),
        }
    }

    /// The path as it was sent, as [`original_target`](Request::original_target).
    pub fn original_path(&self) -> &str {
        let replaced = self.routed().replaced.as_ref();
        match replaced.and_then(|replaced| replaced.target.as_ref()) {
            Some(new) => &new.sent_path,
            None => self.path(),
        }
    }

    /// The query as it was sent, as [`original_target`](Request::original_target).
    pub(crate) fn original_query(&self) -> Option<&str> {
        self.original_target().split_once('?').map(|(_, query)| query)
    }

    /// The id that [`layers::request_id`](crate::layers::request_id) has given the request; `None` if no such layer covers
    /// it.
    pub fn id(&self) -> Option<&str> {
        self.with_head(|head| head.given_id())
    }

    /// The panic of a rewrite, instead of which the request is answered.
    pub(super) fn rewrite_panic(&self) -> Option<&Panic> {
        self.routed().replaced.as_ref()?.panic.as_ref()
    }
}
