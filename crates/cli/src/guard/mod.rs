//! wip
mod args;
mod latency;
mod policy;
mod reading;
mod source;
mod text;
