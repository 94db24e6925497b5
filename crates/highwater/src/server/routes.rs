//! Which routes does a server have? A list for people, one line each.

use std::fmt::Write as _;

use crate::admission::{Concurrency, Priority};
use crate::app::EndpointInfo;

/// Methods, path, how the handler runs, and its own settings, in columns; in the order of registration.
pub(super) fn list(endpoints: &[EndpointInfo]) -> String {
    let width = |of: fn(&EndpointInfo) -> &str| {
        endpoints.iter().map(|endpoint| of(endpoint).chars().count()).max().unwrap_or_default()
    };
    let (methods, path) = (width(EndpointInfo::methods), width(EndpointInfo::pattern));
    let mut list = String::new();
    for endpoint in endpoints {
        let (first, second) = (endpoint.methods(), endpoint.pattern());
        let (kind, settings) = (endpoint.kind(), settings(endpoint));
        // A `String` takes everything.
        let _ = writeln!(list, "{first:methods$}  {second:path$}  {kind}{settings}");
    }
    list
}

/// The path that a browser is to open first: the root if something is there; else, unless there is a page of documentation
/// (`has_docs`), the first one without parameters.
pub(super) fn first_page(endpoints: &[EndpointInfo], has_docs: bool) -> Option<&str> {
    let is_page = |endpoint: &&EndpointInfo| {
        endpoint.methods().split(',').any(|method| matches!(method, "GET" | "*"))
    };
    let mut pages = endpoints.iter().filter(is_page).map(EndpointInfo::pattern);
    let is_root = |pattern: &str| pattern == "/" || pattern.starts_with("/{*");
    match (pages.clone().any(is_root), has_docs) {
        (true, _) => Some("/"),
        (false, true) => None,
        (false, false) => pages.find(|pattern| !pattern.contains('{')),
    }
}

/// What was set for an endpoint, each with two spaces in front.
fn settings(endpoint: &EndpointInfo) -> String {
    let mut text = String::new();
    let mut add = |setting: String| text.extend(["  ", &setting]);
    if endpoint.name() != endpoint.pattern() {
        add(format!("name={}", endpoint.name()));
    }
    if let Some(timeout) = endpoint.timeout() {
        add(format!("timeout={timeout:?}"));
    }
    match endpoint.concurrency() {
        Some(Concurrency::Fixed(max)) => add(format!("concurrency={max}")),
        Some(Concurrency::Auto) => add("concurrency=auto".to_owned()),
        None => {}
    }
    if endpoint.priority() != Priority::default() {
        add(format!("priority={}", endpoint.priority()));
    }
    if endpoint.is_detached() {
        add("detached".to_owned());
    }
    if endpoint.is_never_shed() {
        add("never-shed".to_owned());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::app::{Handler, Router, blocking, fixed};

    /// Purpose: the list has what an operator looks for: every path with its prefix, how it runs, and what was set for it.
    #[test]
    fn every_route_has_a_line() {
        let ready = async || "ready";
        let slow = blocking(|| "slow").timeout(Duration::from_secs(5)).concurrency_limit(8);
        let urgent = (|| "urgent").priority(Priority::High).name("urgent").detached();
        let api = Router::new().get("/todos/{id}", ready).put("/todos/{id}", slow);
        let app = Router::new()
            .get("/", fixed("index"))
            .nest("/api", api)
            .any("/urgent", urgent)
            .get("/health", (|| "ok").never_shed())
            .build()
            .unwrap_or_else(|error| panic!("{error}"));
        let expected = "\
GET  /                fixed
*    /urgent          inline  name=urgent  priority=high  detached
GET  /health          inline  never-shed
GET  /api/todos/{id}  async
PUT  /api/todos/{id}  blocking  timeout=5s  concurrency=8
";
        assert_eq!(list(app.endpoints()), expected);
        assert_eq!(list(&[]), "");
    }

    /// Purpose: the log names an address that shows something.
    #[test]
    fn the_first_page_is_there() {
        let router = |pattern: &str| Router::new().get(pattern, || "page").post("/x", || "made");
        for (router, without, with) in [
            (router("/"), Some("/"), Some("/")),
            (router("/{*path}"), Some("/"), Some("/")),
            (router("/users"), Some("/users"), None),
            (router("/users/{id}"), None, None),
            (Router::new().any("/any", || "page"), Some("/any"), None),
        ] {
            let app = router.build().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(first_page(app.endpoints(), false), without);
            assert_eq!(first_page(app.endpoints(), true), with);
        }
    }
}
