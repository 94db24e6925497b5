//! Who sent a request? Layers that answer 401 without valid credentials, and pass on what they learned.
//!
//! | layer | credentials | passes on |
//! |---|---|---|
//! | [`basic`] | a user and a password | the result of the check, as [`Extension<T>`](crate::Extension) |
//! | [`bearer`] | a token that only the application understands | the same |
//! | `jwt` (feature `jwt`) | a token that is signed | `Claims<T>`, `Subject` |
//!
//! Each covers the router to which it is added, including its [`fixed`](crate::fixed) answers and files; requests without valid
//! credentials do not reach its handlers. Put public routes, such as a health check, into another router. A 401 names the
//! required credentials in `WWW-Authenticate` (RFC 9110 §11.6.1), and the OpenAPI document (feature `openapi`) shows the
//! security scheme of each operation that a layer covers. Where the check has to wait, for a database or a slow hash, take
//! [`BasicCredentials`] or [`BearerToken`] in an extractor of your own ([`FromRequestAsync`](crate::FromRequestAsync)).
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
