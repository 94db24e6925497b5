//! The state that a client expects an item to be in.

use std::cell::Cell;
use std::fmt;

use http::StatusCode;
use serde_core::Serialize;

use crate::app::error::Error;
use crate::app::extract::Preconditions;
use crate::content::entity_tag;

/// The state in which a client expects an item, by `If-Match` and `If-None-Match`. Without these fields, it expects no
/// particular state.
pub struct Expected<T> {
    preconditions: Preconditions,
    version: fn(&T) -> String,
    is_checked: Cell<bool>,
}

impl<T> Expected<T> {
    pub(super) fn new(preconditions: Preconditions, version: fn(&T) -> String) -> Self {
        Expected { preconditions, version, is_checked: Cell::new(false) }
    }

    /// Compares the expected state with the current item, or with `None` if there is none. Call it where the item cannot change
    /// before you change it: under the same lock, or in the same transaction.
    ///
    /// If a resource changes an item without having checked the client's condition, the answer is 500.
    ///
    /// # Errors
    /// 412 `precondition_failed` if the client expects another state, 404 `not_found` if there is no item.
    pub fn check(&self, current: Option<&T>) -> Result<(), Error> {
        self.is_checked.set(true);
        let tag = current.filter(|_| self.is_conditional());
        let tag = tag.map(|item| entity_tag::of_version(&(self.version)(item)));
        self.preconditions.check(tag.as_deref())?;
        current.map(drop).ok_or_else(no_such_item)
    }

    /// The same by the item's version, as [`Resource::version`](super::Resource::version) makes it, for stores that know the
    /// version without reading the whole item.
    ///
    /// # Errors
    /// As [`Expected::check`].
    pub fn check_version(&self, current: Option<&str>) -> Result<(), Error> {
        self.is_checked.set(true);
        let tag = current.map(entity_tag::of_version);
        self.preconditions.check(tag.as_deref())?;
        current.map(drop).ok_or_else(no_such_item)
    }

    /// Whether the client has named a state.
    pub fn is_conditional(&self) -> bool {
        self.preconditions.is_conditional()
    }

    /// Refuses to go on if a state has to be named and is not.
    pub(super) fn begin(&self, is_required: bool) -> Result<(), Error> {
        match is_required && !self.preconditions.has_if_match() {
            true => Err(Error::new(
                StatusCode::PRECONDITION_REQUIRED,
                "precondition_required",
                "the request must name the state it is about: send `If-Match` with the `ETag` of the item",
            )),
            false => Ok(()),
        }
    }

    /// What the client gets for what the resource has done.
    pub(super) fn end<R>(&self, method: &str, done: Result<R, Error>) -> Result<R, Error> {
        match done {
            Ok(_) if self.is_conditional() && !self.is_checked.get() => {
                Err(Error::internal(format!(
                    "`{method}` of the resource of `{}` has not checked the client's condition; call \
                     `expected.check(current)?` before it changes anything",
                    std::any::type_name::<T>()
                )))
            }
            done => done,
        }
    }
}

impl<T> fmt::Debug for Expected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expected").field(&self.preconditions).finish()
    }
}

pub(super) fn no_such_item() -> Error {
    Error::not_found("there is no such item")
}

/// A version that changes with all that clients see.
pub(super) fn version_of_content(item: &impl Serialize) -> String {
    // What cannot be serialized cannot be answered either, and is a 500 there.
    let content = serde_json::to_vec(item).unwrap_or_default();
    entity_tag::of_content(&content).trim_matches('"').to_owned()
}
