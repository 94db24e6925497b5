//! What is the service manager told about the server? Nothing: only on Linux is there a service manager that listens.

/// Every worker accepts.
pub(super) const READY: &str = "READY=1\n";

/// The drain has begun.
pub(super) const STOPPING: &str = "STOPPING=1\n";

/// Every worker has turns.
pub(super) const ALIVE: &str = "WATCHDOG=1\n";

/// No service manager expects `WATCHDOG=1`.
pub(super) fn patience() -> Option<std::time::Duration> {
    None
}

/// Notifies nobody.
pub(super) fn notify(_: &str) {}
