//! Ready-made layers that most services need.
//!
//! Give them to [`Router::layer`](crate::Router::layer), in the order in which a request is to pass them.
//! Both of these cover everything of their router, refusals included; changes that they make to every
//! response alike cost a [`fixed`](crate::fixed) answer nothing.
//!
//! ```
//! use highwater::layers::{cors, security_headers};
//! use highwater::{Router, fixed};
//!
//! let app = Router::new()
//!     .layer(security_headers())
//!     .layer(cors().origin("https://shop.example"))
//!     .get("/health", fixed("ok"));
//! # app.build().unwrap();
//! ```

#[cfg(feature = "compression")]
mod compression;
mod cors;
mod security_headers;

#[cfg(feature = "compression")]
pub use compression::{COMPRESSED_AT_ONCE_MAX, Compression, compression};
pub use cors::{Cors, cors};
pub use security_headers::{SecurityHeaders, security_headers};
