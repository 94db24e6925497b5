//! Who sent a request? Layers that answer 401 without valid credentials, and pass on what they learned.
//!
//! | layer | proof | hands on |
//! |---|---|---|
//! | [`basic`] | a user and a password | what the check returns, as [`Extension<T>`](crate::Extension) |
//! | [`bearer`] | a token that only the application understands | the same |
//! | `jwt` (feature `jwt`) | a token that is signed | `Claims<T>`, `Subject` |
//!
//! Each covers the router that it is given to, its [`fixed`](crate::fixed) answers and files included; requests without a proof do not
//! reach its handlers. What everybody may ask for, such as a health check, belongs into another router. A 401 names what is wanted
//! in `WWW-Authenticate` (RFC 9110 §11.6.1), and the document of an operation (feature `openapi`) that they cover has their security scheme.
//! Where the check has to wait, for a database or a slow hash, take [`BasicCredentials`] or [`BearerToken`] in an extractor of your
//! own ([`FromRequestAsync`](crate::FromRequestAsync)).
//!
//! Needs the feature `auth`.

mod basic;
mod bearer;
mod field;
#[cfg(feature = "jwt")]
mod jwt;

pub use crate::secret::same;
pub use basic::{BasicCredentials, basic};
pub use bearer::{BearerToken, bearer};
#[cfg(feature = "jwt")]
pub use jwt::{
    Claims, Denied, Jwt, JwtKey, JwtKeyError, REMEMBERED_MAX, Subject, TOKEN_BYTES_MAX, issue, jwt,
};
