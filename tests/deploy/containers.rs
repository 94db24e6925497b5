//! The image, the compose files and the systemd unit, each read by the tool it is for.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use highwater_tests::source;
use serde_json::Value;

use crate::{documents, path, read, server};

pub(crate) fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A folder of this test's own.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = source::root().join(format!("target/deploy-tests/{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the build's own folder");
    folder
}

/// Purpose: hadolint, which parses the file as Docker does and its shell lines with ShellCheck, finds nothing in it, and
/// does find what is wrong with one that has a slip.
#[test]
fn the_dockerfile_is_read_by_hadolint() {
    let lint = |file: &Path| {
        let output = Command::new(source::root().join("scripts/hadolint.sh")).arg(file).output();
        output.expect("there is bash")
    };
    let output = lint(&path("Dockerfile"));
    assert!(output.status.success(), "{}", text_of(&output));
    let text = read("Dockerfile");
    let place = folder("dockerfile");
    for (right, wrong, rule) in [
        ("WORKDIR /source", "WORKDIR source", "DL3000"),
        ("ENTRYPOINT [\"/service\"]", "ENTRYPOINT /service", "DL3025"),
        ("COPY . .", "COPPY . .", "unexpected"),
    ] {
        assert!(text.contains(right), "{right}");
        fs::write(place.join("Dockerfile"), text.replace(right, wrong)).expect("it is ours");
        let output = lint(&place.join("Dockerfile"));
        assert!(
            !output.status.success() && text_of(&output).contains(rule),
            "{}",
            text_of(&output)
        );
    }
    fs::remove_dir_all(place).expect("it was made");
}

/// Purpose: the image runs without rights, is watched, is built from what exists, and for every service.
#[test]
fn the_image_is_small_and_without_rights() {
    let text = read("Dockerfile");
    let last = text.rsplit_once("\nFROM ").expect("it has stages").1;
    assert!(last.contains("\nUSER 65532:65532") && last.contains("\nHEALTHCHECK "), "{last}");
    assert!(!last.contains("\nRUN "), "the image has no shell to run anything with");
    for copied in ["LICENSE-MIT", "LICENSE-APACHE", "deploy/healthy.rs", "Cargo.lock"] {
        assert!(source::root().join(copied).exists(), "{copied}");
    }
    let toolchain =
        fs::read_to_string(source::root().join("rust-toolchain.toml")).expect("it is there");
    let version = toolchain.split('"').nth(1).expect("a channel");
    let version = version.rsplitn(2, ".0").last().unwrap_or(version);
    assert!(text.contains("FROM rust:1.95-"), "the compiler of the image is that of {version}");
}

/// Purpose: the health check of the image tells a service that lives from one that does not, with what the image has.
#[test]
fn the_health_check_tells_life() {
    let program = folder("healthy").join("healthy");
    let built = Command::new("rustc")
        .args(["--edition", "2024", "-o"])
        .arg(&program)
        .arg(path("healthy.rs"))
        .output()
        .expect("what builds the tests is here");
    assert!(built.status.success(), "{}", text_of(&built));
    let check = |address: &str| Command::new(&program).arg(address).output().expect("it was built");
    let server = server();
    assert!(check(&server.metrics().to_string()).status.success());
    // A port that somebody holds and nobody serves.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it is bound").to_string();
    for dead in [&address, "127.0.0.1:1", "nowhere"] {
        let output = check(dead);
        assert_eq!(output.status.code(), Some(1), "{dead}: {}", text_of(&output));
    }
    fs::remove_dir_all(program.parent().expect("a folder")).expect("it was made");
}

/// Purpose: Compose understands the files, refuses a slip in them, and says which secret is missing.
#[test]
fn compose_files_are_read_by_compose() {
    if let Err(error) = Command::new("docker-compose").arg("version").output() {
        highwater_skip::skip("docker-compose", error);
        return;
    }
    let config = |file: &Path, secret: Option<&str>| {
        let mut compose = Command::new("docker-compose");
        compose.arg("-f").arg(file).arg("config").env_remove("JWT_SECRET");
        compose.envs(secret.map(|secret| ("JWT_SECRET", secret))).output().expect("it is here")
    };
    for file in ["compose.yaml", "compose.ingest.yaml"] {
        let output = config(&path(file), Some("secret"));
        assert!(output.status.success(), "{}", text_of(&output));
        let place = folder("compose");
        fs::write(place.join("compose.yaml"), read(file).replace("depends_on:", "depend_on:"))
            .expect("it is ours");
        let slip = config(&place.join("compose.yaml"), Some("secret"));
        assert!(
            !slip.status.success() && text_of(&slip).contains("depend_on"),
            "{}",
            text_of(&slip)
        );
        fs::remove_dir_all(place).expect("it was made");
    }
    let output = config(&path("compose.yaml"), None);
    assert!(
        !output.status.success() && text_of(&output).contains("JWT_SECRET"),
        "{}",
        text_of(&output)
    );
}

/// Purpose: what the compose file names exists: files that are mounted, services that are waited for, names that the
/// proxies look up; it can be scaled, and what ends has the time to drain.
#[test]
fn compose_files_fit_together() {
    for file in ["compose.yaml", "compose.ingest.yaml", "compose.tls.yaml"] {
        let compose = documents(&read(file)).remove(0);
        let services = compose["services"].as_object().expect("services");
        for (name, service) in services {
            let needs = match &service["depends_on"] {
                Value::Object(needs) => needs.keys().cloned().collect(),
                Value::Array(needs) => {
                    needs.iter().map(|need| need.as_str().expect("a name").to_owned()).collect()
                }
                _ => Vec::new(),
            };
            for need in needs {
                assert!(services.contains_key(&need), "{name} waits for {need}");
            }
            let mounts = service["volumes"].as_array().into_iter().flatten();
            for mount in mounts.filter_map(Value::as_str).filter(|mount| mount.starts_with("./")) {
                let host = mount.split(':').next().expect("there is a first");
                assert!(path(host).exists(), "{name}: {host}");
            }
            if service["image"].as_str().is_some_and(|image| image.starts_with("highwater-")) {
                assert_eq!(service["read_only"], true, "{name}");
                assert!(service["stop_grace_period"].is_string(), "{name} has no time to drain");
                assert!(service["container_name"].is_null(), "{name} could not be scaled");
            }
        }
    }
    let compose = documents(&read("compose.yaml")).remove(0);
    for (service, at_least) in [("todos", 2), ("worker", 2)] {
        let replicas = compose["services"][service]["deploy"]["replicas"].as_u64();
        assert!(replicas >= Some(at_least), "{service}: {replicas:?}");
        assert!(compose["services"][service]["ports"].is_null(), "{service} could not be scaled");
    }
    assert!(read("nginx/upstreams.conf").contains("server todos:8080 "));
    assert!(read("haproxy/haproxy.cfg").contains(" todos:8080 "));
}

/// Purpose: systemd understands the units, warns of nothing, and refuses a slip; and thinks that the service is well
/// locked up.
#[test]
fn the_unit_is_read_by_systemd() {
    if let Err(error) = Command::new("systemd-analyze").arg("--version").output() {
        highwater_skip::skip("systemd-analyze", error);
        return;
    }
    let unit = read("systemd/highwater@.service");
    let socket = read("systemd/highwater@.socket");
    let place = folder("systemd");
    // The service is not installed on the machine that tests; any program will do.
    let unit = unit.replace("/usr/local/bin/highwater-%i", "/bin/true");
    let verify_both = |unit: &str, socket: &str| {
        fs::write(place.join("highwater@.service"), unit).expect("it is ours");
        fs::write(place.join("highwater@.socket"), socket).expect("it is ours");
        let instances =
            ["service", "socket"].map(|kind| place.join(format!("highwater@todos.{kind}")));
        Command::new("systemd-analyze").arg("verify").args(instances).output().expect("it is here")
    };
    let verify = |unit: &str| verify_both(unit, &socket);
    let output = verify(&unit);
    let of_ours = text_of(&output).lines().filter(|line| line.contains("highwater@")).count();
    assert!(output.status.success() && of_ours == 0, "{}", text_of(&output));
    for (right, wrong) in [
        ("LimitNOFILE=1048576", "LimitNOFILES=1048576"),
        ("TimeoutStopSec=30s", "TimeoutStopSec=soon"),
    ] {
        assert!(unit.contains(right), "{right}");
        let output = verify(&unit.replace(right, wrong));
        assert!(
            text_of(&output).contains("highwater@"),
            "{wrong} is not seen: {}",
            text_of(&output)
        );
    }
    let wrong = socket.replace("ListenStream=0.0.0.0:8080", "ListenStream=0.0.0.0:80800");
    assert_ne!(wrong, socket);
    let output = verify_both(&unit, &wrong);
    assert!(
        text_of(&output).contains("highwater@"),
        "a wrong port is not seen: {}",
        text_of(&output)
    );
    verify(&unit);
    let security = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--threshold=25"])
        .arg(place.join("highwater@.service"))
        .output()
        .expect("it is here");
    assert!(security.status.success(), "an exposure of more than 2.5: {}", text_of(&security));
    fs::remove_dir_all(place).expect("it was made");
}
