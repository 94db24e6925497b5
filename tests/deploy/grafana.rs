//! The dashboard.

use serde_json::Value;

use crate::{expressions, read, server};

/// Every query of the dashboard, with Grafana's variables put in.
fn queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let annotations = dashboard["annotations"]["list"].as_array().expect("annotations");
    let written =
        targets.chain(annotations).map(|target| target["expr"].as_str().expect("a query"));
    let put_in = |query: &str| {
        query.replace("$__rate_interval", "1m").replace("$job", ".+").replace("$instance", ".+")
    };
    written.map(put_in).collect()
}

/// Purpose: a panel without data looks like a server without trouble, so each query must be one that
/// Prometheus understands, about metrics that a server has.
#[test]
fn every_query_asks_for_what_exists() {
    let dashboard: Value = serde_json::from_str(&read("grafana/highwater.json")).expect("JSON");
    let queries = queries(&dashboard);
    assert!(queries.len() >= 20, "the reader of the dashboard finds {} queries", queries.len());
    expressions::parse("dashboard", &queries);
    let page = server().metrics_page();
    for query in &queries {
        assert!(!query.contains('$'), "an undefined variable: {query}");
        let strangers = expressions::strangers(&expressions::names(query), &page);
        assert!(strangers.is_empty(), "{strangers:?} is no metric of ours: {query}");
    }
}

/// Purpose: Grafana gives panels of one number or of one place to the wrong data, silently.
#[test]
fn panels_have_ids_and_places_of_their_own() {
    let dashboard: Value = serde_json::from_str(&read("grafana/highwater.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let number = |panel: &Value, name: &str| panel["gridPos"][name].as_u64().expect("a number");
    for (index, panel) in panels.iter().enumerate() {
        let (x, y) = (number(panel, "x"), number(panel, "y"));
        let (width, height) = (number(panel, "w"), number(panel, "h"));
        assert!(x + width <= 24, "{}: wider than the grid", panel["title"]);
        for other in &panels[..index] {
            assert_ne!(panel["id"], other["id"]);
            let apart = x + width <= number(other, "x")
                || number(other, "x") + number(other, "w") <= x
                || y + height <= number(other, "y")
                || number(other, "y") + number(other, "h") <= y;
            assert!(apart, "{} covers {}", panel["title"], other["title"]);
        }
    }
}
