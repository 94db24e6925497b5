//! Ready-made layers that most services need.
//!
//! Add them with [`Router::layer`](crate::Router::layer), in the order in which a request passes them. [`cors`],
//! [`security_headers`], [`access_log`] and [`request_id`] cover all answers of their router, including refusals; changes that
//! are the same for every response cost a [`fixed`](crate::fixed) answer nothing.
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

mod access_log;
mod cache_control;
#[cfg(feature = "compression")]
mod compression;
mod cors;
mod csrf;
#[cfg(feature = "cookies")]
mod csrf_token;
mod etag;
mod idempotency;
mod rate_limit;
mod request_id;
mod response_cache;
mod security_headers;
mod spans;

pub use access_log::{AccessLog, access_log};
#[cfg(feature = "compression")]
pub use compression::{COMPRESSED_AT_ONCE_MAX, Compression, compression};
pub use cors::{Cors, cors};
pub use csrf::{Csrf, csrf};
#[cfg(feature = "cookies")]
pub use csrf_token::{CsrfToken, CsrfTokens, csrf_tokens};
pub use etag::{TAGGED_BYTES_MAX, etag};
pub use idempotency::{Idempotency, IdempotencyKey, idempotency};
pub use rate_limit::{RateLimit, rate_limit};
pub use request_id::{RequestIdLayer, request_id};
#[cfg(feature = "redis")]
pub use response_cache::RedisStore;
pub use response_cache::{ResponseCache, response_cache};
pub use security_headers::{SecurityHeaders, security_headers};
pub use spans::spans;
