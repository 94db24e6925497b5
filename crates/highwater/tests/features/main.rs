//! What applications and their clients get of the library, feature by feature: a module for each, in one program.
//!
//! Thirty programs took longer to compile and link than to run. A test beside this folder has a program of its own because it
//! looks at its whole process (threads, descriptors, what is allocated), changes it (a subscriber for events, signals), starts it
//! once more, or measures.
#![forbid(unsafe_code)]

#[path = "../answers/mod.rs"]
mod answers;
#[path = "../secured/mod.rs"]
mod secured;
#[path = "../served/mod.rs"]
mod served;
#[path = "../transports/mod.rs"]
mod transports;

mod access_log;
mod auth;
mod awaited;
mod cached_and_guarded;
mod compression;
mod csv;
mod disconnected;
mod embedded;
mod files;
mod half_close;
mod heads;
mod held_uploads;
mod http2;
mod idempotency;
mod kept_bodies;
mod large_bodies;
mod layers;
mod multipart;
mod openapi;
mod per_client;
mod proxy_header;
mod ready_layers;
mod request_ids;
mod resource;
mod rewrites;
mod routing;
mod runtime;
mod sse;
mod testing_http2;
mod tls;
mod tls_sessions;
mod tunnel;
mod websocket;
mod websocket_clients;
mod websocket_deflate;
mod websocket_deflate_clients;
mod websocket_http2;
mod websocket_memory;
mod worker_local;
