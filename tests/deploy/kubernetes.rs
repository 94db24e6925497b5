//! The manifests: read into the types that are generated from Kubernetes' and KEDA's own schemas,
//! written again, and compared, so that an unknown field, a missing one and a value of the wrong
//! kind are all found. Then what they say about each other and about us.

use std::process::Command;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::schemas::certificate::Certificate;
use crate::schemas::scaled_object::ScaledObject;
use crate::{documents, expressions, read, server};

const FILES: &[&str] = &[
    "k8s/search.yaml",
    "k8s/search-tls.yaml",
    "k8s/certificate.yaml",
    "k8s/todos.yaml",
    "k8s/ingest.yaml",
    "k8s/ingress.yaml",
    "k8s/hpa.yaml",
    "k8s/prometheus-adapter.yaml",
    "k8s/keda-prometheus.yaml",
    "k8s/keda-metrics-api.yaml",
];

/// Reads `document` as a `T` and answers how that differs from what was written.
fn check<T: DeserializeOwned + Serialize>(document: &Value) -> Result<(), String> {
    let understood: T =
        serde_json::from_value(document.clone()).map_err(|error| error.to_string())?;
    let mut again = serde_json::to_value(understood).expect("it was JSON");
    strip_empty(&mut again);
    let mut written = document.clone();
    strip_empty(&mut written);
    if again == written { Ok(()) } else { Err(difference(&written, &again, "")) }
}

/// Absent and empty are the same to Kubernetes, and the types write one of them.
fn strip_empty(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(strip_empty);
            let is_empty = |value: &Value| value.is_null() || *value == Value::Object(Map::new());
            members.retain(|name, value| name == "emptyDir" || !is_empty(value));
        }
        Value::Array(elements) => elements.iter_mut().for_each(strip_empty),
        _ => {}
    }
}

/// The first place where two values differ.
fn difference(written: &Value, understood: &Value, place: &str) -> String {
    match (written, understood) {
        (Value::Object(a), Value::Object(b)) => {
            let differs = a.iter().find(|(name, value)| b.get(*name) != Some(value));
            differs.map_or_else(
                || format!("{place}: something was added"),
                |(name, value)| match b.get(name) {
                    Some(other) => difference(value, other, &format!("{place}.{name}")),
                    None => format!("{place}.{name}: no such field"),
                },
            )
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let differs = (0..a.len()).find(|&index| a[index] != b[index]).unwrap_or(0);
            difference(&a[differs], &b[differs], &format!("{place}[{differs}]"))
        }
        _ => format!("{place}: {written} is understood as {understood}"),
    }
}

fn validate(document: &Value) -> Result<(), String> {
    match (document["apiVersion"].as_str(), document["kind"].as_str()) {
        (Some("apps/v1"), Some("Deployment")) => check::<Deployment>(document),
        (Some("apps/v1"), Some("StatefulSet")) => check::<StatefulSet>(document),
        (Some("v1"), Some("Service")) => check::<Service>(document),
        (Some("v1"), Some("ConfigMap")) => check::<ConfigMap>(document),
        (Some("policy/v1"), Some("PodDisruptionBudget")) => check::<PodDisruptionBudget>(document),
        (Some("networking.k8s.io/v1"), Some("NetworkPolicy")) => check::<NetworkPolicy>(document),
        (Some("networking.k8s.io/v1"), Some("Ingress")) => check::<Ingress>(document),
        (Some("autoscaling/v2"), Some("HorizontalPodAutoscaler")) => {
            check::<HorizontalPodAutoscaler>(document)
        }
        (Some("cert-manager.io/v1"), Some("Certificate")) => check::<Certificate>(document),
        (Some("keda.sh/v1alpha1"), Some("ScaledObject")) => check::<ScaledObject>(document),
        other => Err(format!("{other:?}: say here what schema that has")),
    }
}

fn all() -> Vec<(&'static str, Value)> {
    let of_file = |file| documents(&read(file)).into_iter().map(move |document| (file, document));
    FILES.iter().copied().flat_map(of_file).collect()
}

fn the(kind: &str, name: &str) -> Value {
    let is_it = |document: &Value| document["kind"] == kind && document["metadata"]["name"] == name;
    let found = all().into_iter().find(|(_, document)| is_it(document));
    found.unwrap_or_else(|| panic!("no {kind} {name}")).1
}

/// Purpose: what a cluster would refuse, or worse, ignore, is found before it gets there.
#[test]
fn manifests_follow_their_schemas() {
    let documents = all();
    assert_eq!(documents.len(), 31);
    for (file, document) in documents {
        validate(&document).unwrap_or_else(|problem| panic!("deploy/{file}: {problem}"));
    }
}

/// Purpose: a validator that accepts everything proves nothing: slips of every kind are seen, and
/// said where they are.
#[test]
fn slips_are_seen() {
    let slip = |kind: &str, pointer: &str, name: &str, value: Value, place: &str| {
        let mut document = the(kind, "highwater-search");
        document.pointer_mut(pointer).expect("it is there")[name] = value;
        let problem = validate(&document).expect_err(name);
        assert!(problem.contains(place), "{problem}, expected {place}");
    };
    let pod = "/spec/template/spec";
    slip("Deployment", pod, "terminationGracePeriod", 30.into(), "terminationGracePeriod: no such");
    slip("Deployment", pod, "securityContext", "none".into(), "invalid type");
    let container = "/spec/template/spec/containers/0";
    slip("Deployment", container, "livenessprobe", Value::from(1), "containers[0].livenessprobe");
    slip("HorizontalPodAutoscaler", "/spec", "maxReplicas", "20".into(), "invalid type");
    slip(
        "HorizontalPodAutoscaler",
        "/spec/metrics/0/pods",
        "selector",
        1.into(),
        "selector: no such",
    );
    slip("ScaledObject", "/spec/fallback", "behavior", "guess".into(), "unknown variant");
    slip(
        "ScaledObject",
        "/spec/triggers/0/metadata",
        "threshold",
        Value::from(0.8),
        "invalid type",
    );
    slip("ScaledObject", "/spec", "pollInterval", 15.into(), "pollInterval: no such field");
    slip("Certificate", "/spec", "dnsName", "a".into(), "dnsName: no such field");
    slip("Certificate", "/spec/privateKey", "algorithm", "DSA".into(), "unknown variant");
}

/// What runs pods: its kind, its name, and whether clients connect to it.
const WORKLOADS: &[(&str, &str, bool)] = &[
    ("Deployment", "highwater-search", true),
    ("Deployment", TLS, true),
    ("Deployment", "highwater-todos", true),
    ("Deployment", "highwater-todos-worker", false),
    ("StatefulSet", "highwater-ingest", true),
];

/// The workload that speaks TLS itself: clients reach it past the ingress.
const TLS: &str = "highwater-search-tls";

/// Purpose: objects that name each other, and ports and labels that do, name what exists.
#[test]
fn manifests_fit_together() {
    for &(kind, name, has_clients) in WORKLOADS {
        let workload = the(kind, name);
        let template = &workload["spec"]["template"];
        let labels = &template["metadata"]["labels"];
        assert_eq!(&workload["spec"]["selector"]["matchLabels"], labels);
        let container = &template["spec"]["containers"][0];
        let ports = container["ports"].as_array().expect("ports");
        let has_port = |name: &Value| ports.iter().any(|port| port["name"] == *name);
        let services = [name.to_owned(), format!("{name}-metrics")];
        for service in services.iter().filter(|_| has_clients) {
            let service = the("Service", service);
            assert_eq!(&service["spec"]["selector"], labels);
            assert!(has_port(&service["spec"]["ports"][0]["targetPort"]), "{service}");
        }
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert!(has_port(&container[probe]["httpGet"]["port"]), "{name}: {probe}");
        }
        let budget = the("PodDisruptionBudget", name);
        assert_eq!(&budget["spec"]["selector"]["matchLabels"], labels);
        let policy = the("NetworkPolicy", name);
        assert_eq!(&policy["spec"]["podSelector"]["matchLabels"], labels);
        for rule in policy["spec"]["ingress"].as_array().expect("rules") {
            let ports = rule["ports"].as_array().expect("a rule without ports opens all of them");
            assert!(ports.iter().all(|port| has_port(&port["port"])), "{rule}");
            // Only the service is open to all clients.
            let opens_metrics = ports.iter().any(|port| port["port"] == "metrics");
            let is_for_all = rule["from"].as_array().is_none_or(|from| from.is_empty());
            assert_eq!(opens_metrics, !is_for_all, "{rule}");
        }
        has_rights_and_time(name, &template["spec"], has_clients);
    }
    for (file, document) in all() {
        let target = &document["spec"]["scaleTargetRef"];
        let is_target = |&(kind, name, _): &(&str, &str, bool)| {
            target["name"] == name && target.get("kind").is_none_or(|written| written == kind)
        };
        assert!(target.is_null() || WORKLOADS.iter().any(is_target), "{file}: {target}");
    }
    let set = the("StatefulSet", "highwater-ingest");
    the("Service", set["spec"]["serviceName"].as_str().expect("a name"));
}

/// Purpose: every host of the ingress has a certificate and leads to a port that its service has; each service with
/// clients has a host, and nobody outside reaches a metrics port.
#[test]
fn the_ingress_leads_to_services() {
    let spec = the("Ingress", "highwater")["spec"].clone();
    let texts = |value: &Value| -> Vec<String> {
        let values = value.as_array().expect("a list").iter();
        values.map(|value| value.as_str().expect("a text").to_owned()).collect()
    };
    let with_tls = texts(&spec["tls"][0]["hosts"]);
    let rules = spec["rules"].as_array().expect("rules");
    let hosts: Vec<&str> = rules.iter().filter_map(|rule| rule["host"].as_str()).collect();
    assert_eq!(hosts, with_tls);
    let mut reached = Vec::new();
    for path in rules.iter().flat_map(|rule| rule["http"]["paths"].as_array().expect("paths")) {
        let backend = &path["backend"]["service"];
        let name = backend["name"].as_str().expect("a name");
        let service = the("Service", name);
        let ports = service["spec"]["ports"].as_array().expect("ports");
        assert!(ports.iter().any(|port| port["name"] == backend["port"]["name"]), "{backend}");
        assert!(ports.iter().all(|port| port["targetPort"] != "metrics"), "{backend}");
        reached.push(name.to_owned());
    }
    let with_clients: Vec<&str> =
        WORKLOADS.iter().filter(|it| it.2 && it.1 != TLS).map(|it| it.1).collect();
    assert_eq!(reached, with_clients);
}

/// A pod has the time to drain, what it mounts, and no rights beyond what it needs.
fn has_rights_and_time(name: &str, pod: &Value, has_clients: bool) {
    let container = &pod["containers"][0];
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    let wait = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64();
    assert_eq!(wait.is_some(), has_clients, "{name}: load balancers learn late that a pod ends");
    // --drain-timeout is 10 s by default.
    assert!(grace > wait.unwrap_or(0) + 10, "{name} is killed while it drains");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
    let context = &container["securityContext"];
    assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
    assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]), "{name}");
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let is_data = mount["mountPath"] == "/data";
        let may_write = is_data || mount["mountPath"] == "/tmp";
        assert!(may_write || mount["readOnly"] == true, "{name} writes to /data and /tmp only");
        let is_there = |volume: &Value| volume["name"] == mount["name"];
        let mut volumes = pod["volumes"].as_array().into_iter().flatten();
        let is_claim = !volumes.any(is_there);
        // A claim's volume is declared by its StatefulSet.
        assert!(!is_claim || is_data, "{name}: {mount} mounts nothing");
    }
}

/// Purpose: probes ask for paths that a server answers, and a pod starts only with flags it knows.
#[test]
fn the_pod_speaks_the_servers_language() {
    // The service's own flags are in its own tests; all the others every server knows.
    const OWN: &[&str] = &["--data", "--ack", "--sink", "--topic", "--partitions"];
    let server = server();
    let help = Command::new(env!("CARGO_BIN_EXE_strained")).arg("--help").output();
    let help = String::from_utf8(help.expect("it runs").stdout).expect("it is text");
    for &(kind, name, _) in WORKLOADS {
        let workload = the(kind, name);
        let container = &workload["spec"]["template"]["spec"]["containers"][0];
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let path = container[probe]["httpGet"]["path"].as_str().expect("a path");
            assert_eq!(server.get_metrics(path).status, 200, "{name}: {probe}: {path}");
        }
        let flags = container["args"].as_array().expect("arguments").iter();
        let flags = flags.map(|flag| flag.as_str().expect("a text"));
        for flag in flags.filter(|flag| flag.starts_with("--")) {
            let flag = flag.split('=').next().expect("there is a first");
            let is_known = OWN.contains(&flag) || help.contains(&format!("{flag} "));
            assert!(is_known, "{name}: {flag} is no flag of ours");
        }
    }
}

/// Purpose: autoscalers ask for metrics and members that a server has, in words that Prometheus and
/// KEDA understand.
#[test]
fn autoscalers_ask_for_what_exists() {
    let server = server();
    let page = server.metrics_page();
    let hpas = ["highwater-search", "highwater-todos", "highwater-ingest"];
    let metrics = hpas.map(|name| the("HorizontalPodAutoscaler", name)["spec"]["metrics"].clone());
    let metrics: Vec<&Value> =
        metrics.iter().flat_map(|metrics| metrics.as_array().expect("metrics")).collect();
    let saturation = "http_scaling_saturation_ratio";
    let on_saturation =
        metrics.iter().filter(|metric| metric["pods"]["metric"]["name"] == saturation);
    assert_eq!(on_saturation.count(), hpas.len());
    let rule = &documents(&read("k8s/prometheus-adapter.yaml"))[0]["data"]["config.yaml"];
    let rule = &documents(rule.as_str().expect("a text"))[0]["rules"][0];
    let offered = rule["seriesQuery"].as_str().expect("a selector");
    let mut queries = vec![offered.to_owned()];
    for metric in metrics {
        let name = metric["pods"]["metric"]["name"].as_str().expect("a name");
        assert!(page.contains(&format!("\n{name} ")), "{name} is no metric of ours");
        let stem = name.strip_prefix("http_scaling_").and_then(|name| name.strip_suffix("_ratio"));
        assert!(stem.is_some_and(|stem| offered.contains(stem)), "the adapter hides {name}");
        let query = rule["metricsQuery"].as_str().expect("a query");
        let query = query.replace("<<.Series>>", name).replace("<<.GroupBy>>", "pod");
        queries.push(query.replace("<<.LabelMatchers>>", "namespace=\"default\",pod=~\"a|b\""));
    }
    for file in ["k8s/keda-prometheus.yaml", "k8s/keda-metrics-api.yaml"] {
        let trigger = &documents(&read(file))[0]["spec"]["triggers"][0];
        let metadata = &trigger["metadata"];
        if trigger["type"] == "prometheus" {
            assert_eq!(metadata["ignoreNullValues"], "false", "no data must not mean no load");
            let query = metadata["query"].as_str().expect("a query");
            let strangers = expressions::strangers(&expressions::names(query), &page);
            assert!(strangers.is_empty(), "{strangers:?}");
            queries.push(query.to_owned());
        } else {
            let answer = server.get_metrics("/scaling").json();
            let member = metadata["valueLocation"].as_str().expect("a member");
            assert!(answer[member].is_number(), "{member} of {answer}");
            assert!(metadata["url"].as_str().is_some_and(|url| url.ends_with(":9090/scaling")));
        }
    }
    expressions::parse("autoscalers", &queries);
}

/// Purpose: the signals are flat numbers, which is all that simple scalers can read.
#[test]
fn scaling_is_a_flat_object_of_numbers() {
    let server = server();
    let answer = server.get_metrics("/scaling").json();
    let members = answer.as_object().expect("an object");
    assert!(members.len() >= 10 && members.values().all(Value::is_number), "{answer}");
    assert!(members["demand_ratio"].as_f64().is_some_and(|ratio| ratio < 0.5), "{answer}");
    assert_eq!(members["needs_scaleout"], 0);
}
