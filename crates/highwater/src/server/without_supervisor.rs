//! What does the service manager learn of the server? Nothing: only Linux has one that listens for it.

/// Every worker accepts.
pub(super) const READY: &str = "READY=1\n";

/// The drain has begun.
pub(super) const STOPPING: &str = "STOPPING=1\n";

/// Notifies nobody.
pub(super) fn notify(_: &str) {}
