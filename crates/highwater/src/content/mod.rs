//! What do header fields say about content? Codings, ranges, validators and media types (RFC 9110 §8, §12 to §14).
//!
//! Pure functions from values of fields to decisions: no request, no response, no clock. Malformed values are ignored, as
//! the RFC requires, and never an error.

#[cfg(any(feature = "compression", feature = "files"))]
pub(crate) mod coding;
pub(crate) mod entity_tag;
#[cfg(feature = "files")]
pub(crate) mod media_type;
pub(crate) mod precondition;
#[cfg(feature = "files")]
pub(crate) mod range;
pub(crate) mod weight;
