//! wip
mod args;
mod policy;
mod queue;
mod reading;
mod source;
mod text;
