//! Servers that do what a test needs: this program, started again.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use highwater::{Response, Router, Server, ServerConfig, StatusCode};

/// Answers after which some servers change: those before the load, and a few of it.
const SOON: u32 = 30;

static ANSWERED: AtomicU32 = AtomicU32::new(0);

/// Purpose: none of its own. It is the server if the environment says so, and does not return then.
#[test]
fn serve() {
    let Ok(does) = std::env::var("BENCH_SERVER") else { return };
    let port = std::env::var("PORT").expect("the harness gives one");
    assert_eq!(std::env::var("WORKERS").as_deref(), Ok("1"));
    let handler: fn() -> Response = match does.as_str() {
        "good" => || Response::from("Hello"),
        "lies" => || {
            Response::from(if ANSWERED.fetch_add(1, Ordering::Relaxed) == 0 {
                "Hello"
            } else {
                "Lies!"
            })
        },
        "late-lies" => || {
            Response::from(if ANSWERED.fetch_add(1, Ordering::Relaxed) < SOON {
                "Hello"
            } else {
                "Lies!"
            })
        },
        "dies" => || {
            if ANSWERED.fetch_add(1, Ordering::Relaxed) > SOON {
                std::process::exit(9);
            }
            Response::from("Hello")
        },
        "fails" => || match ANSWERED.fetch_add(1, Ordering::Relaxed) {
            0 => Response::from("Hello"),
            _ => Response::from("no").with_status(StatusCode::INTERNAL_SERVER_ERROR),
        },
        "crashes" => {
            eprintln!("cannot start");
            std::process::exit(7)
        }
        "silent" => loop {
            std::thread::park();
        },
        "parent" => parent(),
        "busy" => busy(),
        other => panic!("{other} is no server"),
    };
    let config = ServerConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], port.parse().expect("a port"))).into()],
        metrics: None,
        workers: NonZeroUsize::new(1),
        ..ServerConfig::default()
    };
    Server::new(Router::new().get("/hello", handler))
        .config(config)
        .run()
        .expect("the port is free");
    std::process::exit(0);
}

/// A server whose flags are in its environment, with work that takes long and a request that never ends.
fn busy() -> ! {
    /// The settings of any service.
    #[derive(clap::Parser)]
    struct Settings {
        #[command(flatten)]
        server: highwater::ServerArgs,
    }
    fn work() -> &'static str {
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_millis(4) {
            std::hint::spin_loop();
        }
        "Hello"
    }
    async fn hold() -> &'static str {
        std::future::pending::<()>().await;
        "never"
    }
    let flags = std::env::var("BENCH_FLAGS").expect("the scene gives some");
    let words = std::iter::once("busy").chain(flags.split_whitespace());
    let settings = <Settings as clap::Parser>::parse_from(words);
    let router = Router::new().get("/hello", || Response::from("Hello")).get("/work", work);
    let server = Server::new(router.get("/hold", hold)).config(settings.server.config());
    server.run().expect("the port is free");
    std::process::exit(0);
}

/// Has a child serve, and does not care whether that ends with it.
fn parent() -> ! {
    let own = std::env::current_exe().expect("this program");
    let mut child = Command::new(own);
    child.args(["--exact", "servers::serve", "--nocapture"]).env("BENCH_SERVER", "good");
    let status = child.spawn().and_then(|mut child| child.wait()).expect("it can be started again");
    std::process::exit(status.code().unwrap_or(1));
}
