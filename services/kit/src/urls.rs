//! Where is a running service to be found?

use highwater::server::Running;

/// The URLs of the metrics and of the dashboard, or `off`.
pub fn of_metrics(running: &Running) -> [String; 2] {
    ["/metrics", "/"].map(|path| match running.metrics_address() {
        Some(address) => format!("http://{address}{path}"),
        None => "off".to_owned(),
    })
}
