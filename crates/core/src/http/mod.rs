//! What is an HTTP message, whatever its wire format (RFC 9110)?
//!
//! The types that an application and a protocol share. A protocol's decoder makes a [`Head`] and says how the
//! [`Body`] arrives; the application plans for it ([`BodyPlan`]), and answers with a status, with fields that
//! it gives to a [`FieldWriter`], and with a [`Payload`]. [`Reject`] is a decoder's refusal, [`Limits`] are
//! its bounds.
//!
//! ```text
//!  http1::Connection ─▶ Head, Body, Reject ─▶ application
//!                    ◀─ BodyPlan, status, FieldWriter, Payload ◀─┘
//! ```
//!
//! It knows nothing of a connection's bytes, of framing, or of when a connection ends: `http1` decides that,
//! and this module does not depend on it.

mod body;
mod collected;
mod deadline_field;
mod fields;
mod head;
pub(crate) mod host;
mod limits;
mod method;
mod owned;
mod reject;
mod reply;
pub(crate) mod runs;
mod status;
pub(crate) mod syntax;
mod trailers;
mod version;

pub use body::{Body, BodyPlan};
pub use fields::{Fields, OwnedFields};
pub use head::Head;
pub use limits::{Http2Limits, Limits};
pub use method::Method;
pub use owned::OwnedHead;
pub use reject::Reject;
pub use reply::{FieldWriter, LengthMismatch, Payload, PreparedFields};
pub use status::reason;
pub use version::Version;

pub(crate) use collected::Collected;
pub use collected::make_room;
pub(crate) use deadline_field::{REQUEST_DEADLINE, REQUEST_TIMEOUT};
pub(crate) use fields::Span;
pub(crate) use head::{REQUEST_ID, Upgrade};
pub(crate) use reply::digits;
pub(crate) use trailers::is_left_out;
