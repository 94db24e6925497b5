//! Highwater service.
fn main() {}
