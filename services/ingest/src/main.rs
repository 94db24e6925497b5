//! Highwater's ingest gateway: records in by HTTP, out to a journal or Kafka, none lost.
#![forbid(unsafe_code)]

fn main() {}
