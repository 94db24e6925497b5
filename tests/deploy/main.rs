//! Do the tools read the files under `deploy` as intended?
//!
//! Each is read by the tool it is for, or by the schema of that tool, and what it names (metrics,
//! ports, flags, objects) is looked up where it is defined: on a running server's page, in the
//! manifests beside it. A file that refers to a metric of yesterday fails here, not in production.
#![forbid(unsafe_code)]

mod certificates;
mod containers;
mod expressions;
mod grafana;
mod kubernetes;
mod prometheus;
mod proxies;
mod schemas;
mod streams;

use std::fs;
use std::path::PathBuf;

use highwater_testkit::Process;
use highwater_tests::source;

/// A file below `deploy`.
fn path(name: &str) -> PathBuf {
    source::root().join("deploy").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

/// The documents of a YAML file.
fn documents(text: &str) -> Vec<serde_json::Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents
        .map(|document| {
            serde::Deserialize::deserialize(document).unwrap_or_else(|error| panic!("{error}"))
        })
        .collect()
}

/// A server like those that are deployed.
fn server() -> Process {
    highwater_tests::server::serve(env!("CARGO_BIN_EXE_strained"), &[], None)
}

/// Like [`server`], with a listener that speaks TLS beside the plain one.
fn tls_server() -> Process {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let files = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    write_certificate(&files);
    let [certificate, key] = files.each_ref().map(|file| file.to_str().expect("a plain name"));
    highwater_tests::server::serve(
        env!("CARGO_BIN_EXE_strained"),
        &["--listen", "127.0.0.1:0,tls", "--tls-cert", certificate, "--tls-key", key],
        None,
    )
}

/// Writes a certificate for `localhost` and its key into these files.
fn write_certificate([certificate, key]: &[PathBuf; 2]) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    fs::write(certificate, own.cert.pem()).expect("it is ours");
    fs::write(key, own.signing_key.serialize_pem()).expect("it is ours");
}
