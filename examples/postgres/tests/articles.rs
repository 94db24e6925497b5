//! The example against a real Postgres, which `scripts/services/postgres.sh` provides.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::Command;

use highwater::{Running, Server, ServerConfig};
use highwater_testkit::{Client, eventually, request};

/// The URL of the database; starts the server if it does not run.
fn url() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/postgres.sh");
    let output = Command::new(script).arg("start").output().expect("the script starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "no Postgres to test with: {stderr}");
    let url = String::from_utf8(output.stdout).expect("a URL").trim().to_owned();
    format!("{url}?application_name=highwater-example")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

fn serve(url: &str) -> Running {
    let config = ServerConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        metrics: None,
        workers: NonZeroUsize::new(2),
        ..ServerConfig::default()
    };
    let server = Server::new(highwater_example_postgres::router(url.to_owned())).config(config);
    server.start().expect("loopback has free ports")
}

/// Ends the example's connections, as a restart of Postgres does.
fn disconnect(url: &str) {
    block_on(async {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("it runs");
        tokio::spawn(connection);
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = 'highwater-example' AND pid != pg_backend_pid()";
        client.batch_execute(sql).await.expect("the user may end its own connections");
    });
}

/// Purpose: what was created is found, what was not is a 404, and a service whose connections Postgres has ended goes on
/// without a restart.
#[test]
fn articles_are_kept_and_connections_made_anew() {
    let url = url();
    block_on(highwater_example_postgres::prepare(&url)).expect("Postgres runs");
    let mut server = serve(&url);
    let mut client = Client::connect(server.address());
    let fields = "content-type: application/json\r\n";
    let answer = client.ask(request("POST", "/articles", fields, "{\"title\":\"Tides\"}"));
    assert_eq!((answer.status, answer.json()["title"].as_str()), (201, Some("Tides")));
    let id = answer.json()["id"].as_i64().expect("a number");
    let path = format!("/articles/{id}");
    assert_eq!(client.get(&path).json()["title"], "Tides");
    assert_eq!(client.get("/articles/0").status, 404);
    assert_eq!(client.get("/articles/seven").status, 400);

    disconnect(&url);
    eventually("the service connects again", || {
        Client::connect(server.address()).get(&path).status == 200
    });
    server.stop().expect("nothing is in flight");
}

/// Purpose: a service that cannot reach its database does not start, and says which part failed.
#[test]
fn it_does_not_start_without_postgres() {
    let router =
        highwater_example_postgres::router("postgres://nobody@127.0.0.1:1/none".to_owned());
    let config = ServerConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        metrics: None,
        ..ServerConfig::default()
    };
    let error = Server::new(router).config(config).start().expect_err("nothing listens on port 1");
    assert!(error.to_string().contains("error connecting to server"), "{error}");
}
