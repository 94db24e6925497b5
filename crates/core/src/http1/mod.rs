//! HTTP/1.1, sans-I/O.
