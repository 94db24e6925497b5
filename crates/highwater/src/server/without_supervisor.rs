//! Which states of the server are reported to the service manager? None: only Linux has a service manager that expects them.

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
