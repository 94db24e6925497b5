//! The rules and configurations, by Prometheus itself.

use std::fs;
use std::process::Command;

use highwater_testkit::{Client, PATIENCE, Process, lasting_ports, within};
use highwater_tests::source;
use serde_json::Value;

use crate::expressions::{self, promtool};
use crate::{documents, path, read, server, tls_server};

/// Purpose: the rules are rules, and each alert fires when it should and not when it should not.
#[test]
fn the_rules_do_what_they_say() {
    promtool(&["check", "rules", "highwater.rules.yml"]);
    promtool(&["test", "rules", "highwater.test.yml"]);
}

/// Purpose: without a test, an alert would never have been seen to fire.
#[test]
fn every_alert_is_tested() {
    let tests = read("prometheus/highwater.test.yml");
    for (name, _) in rules().into_iter().filter(|(name, _)| name.starts_with("Highwater")) {
        let fires = tests
            .split("alertname: ")
            .skip(1)
            .any(|test| test.starts_with(&format!("{name}\n")) && !test.contains("exp_alerts: []"));
        let rests = tests.contains(&format!("alertname: {name}\n        exp_alerts: []"));
        assert!(fires && rests, "{name}: show it firing and not firing");
    }
}

/// Purpose: rules look at metrics that a server has; a rule about a name of yesterday is silent.
#[test]
fn rules_look_at_what_exists() {
    let page = tls_server().metrics_page();
    let rules = rules();
    let recorded: Vec<&str> = rules.iter().map(|(name, _)| name.as_str()).collect();
    for (rule, query) in &rules {
        let mut strangers = expressions::strangers(&expressions::names(query), &page);
        strangers.retain(|name| !recorded.contains(&name.as_str()));
        assert!(strangers.is_empty(), "{rule}: {strangers:?}");
    }
}

/// Names and queries of all rules.
fn rules() -> Vec<(String, String)> {
    let document = documents(&read("prometheus/highwater.rules.yml")).remove(0);
    let groups = document["groups"].as_array().expect("groups");
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let of_rule = |rule: &Value| {
        let name = text(&rule["alert"]).or_else(|| text(&rule["record"])).expect("a name");
        (name, text(&rule["expr"]).expect("a query"))
    };
    rules.map(of_rule).collect()
}

/// Purpose: the configurations are valid. Debian's Prometheus is built without Kubernetes, so there
/// the pods of a cluster are played by static targets that carry the labels which Kubernetes gives:
/// the one port is kept of the one pod that asks for it, under the names autoscalers go by.
#[test]
fn configurations_find_their_targets() {
    promtool(&["check", "config", "prometheus.yml"]);
    let pod = |scrape: &str, port: &str| {
        serde_json::json!({
            "targets": [format!("10.0.0.1:{}", if port == "metrics" { 9090 } else { 8080 })],
            "labels": {
                "__meta_kubernetes_namespace": "default",
                "__meta_kubernetes_pod_name": "highwater-search-1",
                "__meta_kubernetes_pod_label_app_kubernetes_io_name": "highwater-search",
                "__meta_kubernetes_pod_container_port_name": port,
                "__meta_kubernetes_pod_annotation_prometheus_io_scrape": scrape,
            },
        })
    };
    let mut config = documents(&read("prometheus/kubernetes.yml")).remove(0);
    config["rule_files"] = Value::Array(Vec::new());
    let job = config["scrape_configs"][0].as_object_mut().expect("a job");
    assert_eq!(job.remove("kubernetes_sd_configs"), Some(serde_json::json!([{ "role": "pod" }])));
    let pods = [pod("true", "metrics"), pod("true", "http"), pod("false", "metrics")];
    job.insert("static_configs".to_owned(), Value::from(pods.to_vec()));
    let file = write("kubernetes.yml", &config.to_string());
    let found = promtool(&["check", "service-discovery", "--timeout=2s", &file, "highwater"]);
    let found: Value =
        serde_json::from_str(&found[found.find('[').expect("a list")..]).expect("JSON");
    let kept = found
        .as_array()
        .expect("targets")
        .iter()
        .filter(|target| target["labels"] != serde_json::json!({}));
    let kept: Vec<&Value> = kept.map(|target| &target["labels"]).collect();
    assert_eq!(kept.len(), 1, "{found:#}");
    assert_eq!(kept[0]["instance"], "10.0.0.1:9090");
    let named = ["namespace", "pod", "service"].map(|label| &kept[0][label]);
    assert_eq!(named, ["default", "highwater-search-1", "highwater-search"]);
}

/// A file of this test's own.
fn write(name: &str, content: &str) -> String {
    let folder = source::root().join("target/deploy-tests");
    fs::create_dir_all(&folder).expect("the build's own folder");
    let file = folder.join(format!("{}-{name}", std::process::id()));
    fs::write(&file, content).expect("a file of our own");
    file.to_string_lossy().into_owned()
}

/// A real Prometheus, stopped when dropped.
struct Prometheus {
    address: std::net::SocketAddr,
    port: u16,
}

impl Prometheus {
    /// With `config`.
    fn start(config: &str) -> Self {
        let port = lasting_ports(1);
        Self::script(port, &["start", config]);
        Prometheus { address: ([127, 0, 0, 1], port).into(), port }
    }

    fn script(port: u16, arguments: &[&str]) {
        let output = Command::new(source::root().join("scripts/services/prometheus.sh"))
            .args(arguments)
            .env("HW_PROMETHEUS_PORT", port.to_string())
            .output()
            .expect("there is bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The data of an answer of its interface.
    fn get(&self, path: &str) -> Value {
        let answer = Client::connect(self.address).get(path).json();
        assert_eq!(answer["status"], "success", "{answer}");
        answer["data"].clone()
    }

    /// What a query gives now: each series' value.
    fn query(&self, query: &str) -> Vec<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let data = self.get(&format!("/api/v1/query?query={encoded}"));
        let results = data["result"].as_array().expect("a vector").iter();
        results
            .map(|result| result["value"][1].as_str().expect("a text").parse().expect("a number"))
            .collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        Self::script(self.port, &["stop"]);
        let services = source::root().join("target/services");
        // Its data directory is useless afterwards, and harmless.
        let _ = fs::remove_dir_all(services.join(format!("prometheus-{}", self.port)));
        let _ = fs::remove_file(services.join(format!("prometheus-{}.lock", self.port)));
    }
}

/// Our configuration, but for the address, the pace, and where the rules are.
fn config(server: &Process) -> String {
    let rules = path("prometheus/highwater.rules.yml");
    let config = read("prometheus/prometheus.yml");
    let config = config.replace("127.0.0.1:9090", &server.metrics().to_string());
    let config = config.replace("highwater.rules.yml", &rules.to_string_lossy());
    config.replace("_interval: 5s", "_interval: 200ms")
}

/// Purpose: a real Prometheus scrapes a real server without a complaint, evaluates every rule, and
/// every query of the dashboard over a busy server finds something.
#[test]
fn prometheus_scrapes_and_evaluates() {
    let server = server();
    let prometheus = Prometheus::start(&write("prometheus.yml", &config(&server)));
    let mut client = server.connect();
    let mut ask = || (0..20).for_each(|_| assert_eq!(client.get("/").status, 200));
    let settled = within(PATIENCE, || {
        ask();
        prometheus.query("rate(http_goodput_total[1m])").first().is_some_and(|rate| *rate > 0.0)
    });
    assert!(settled, "no goodput: {}", prometheus.get("/api/v1/targets"));
    let target = &prometheus.get("/api/v1/targets")["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&"up".into(), &"".into()));
    let evaluated = within(PATIENCE, || {
        let groups = prometheus.get("/api/v1/rules");
        let groups = groups["groups"].as_array().expect("groups").clone();
        let mut rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
        rules.all(|rule| rule["health"] == "ok")
    });
    assert!(evaluated, "{:#}", prometheus.get("/api/v1/rules"));
    for query in [
        "http_scaling_demand_ratio",
        "http_scaling_connection_limit > 0",
        "http_scaling_connection_headroom > 0",
        "job:highwater_servers_wanted:ceil",
        "instance:http_shed_cpu:ratio1m",
        "highwater_gate_info == 1",
        "http_rejections_total{layer=\"kernel\",reason=\"reset\"}",
        "histogram_quantile(0.99, sum by (le) (rate(http_queue_delay_seconds_bucket[1m])))",
    ] {
        let found = within(PATIENCE, || !prometheus.query(query).is_empty());
        assert!(found, "{query} finds nothing");
    }
    assert_eq!(prometheus.query("ALERTS{alertname=\"HighwaterTargetDown\"}"), Vec::<f64>::new());
}
