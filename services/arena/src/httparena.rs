//! The routes of HttpArena that need no database. `dataset.rs` has the one that needs data.

use std::path::Path as FilePath;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use highwater::files::StaticFiles;
use highwater::{BodyStream, Error, Handler as _, Path, Query, Response, Router, fixed};
use serde::Deserialize;

/// Where HttpArena mounts its static files.
pub const FILES: &str = "/data/static";

/// Longest delay that may be asked for; beyond it 400.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Largest body that is sent back; beyond it 413. It is taken whole.
const ECHO_MAX: u64 = 16 << 20;
/// Largest upload; beyond it 413. It is counted as it comes, so it takes no memory; HttpArena sends up to 20 MiB.
const UPLOAD_MAX: u64 = 1 << 30;

#[derive(Deserialize)]
struct Sum {
    a: i64,
    b: i64,
}

/// Adds the routes of HttpArena that need nothing.
pub fn routes(router: Router) -> Router {
    let router = ["/baseline11", "/baseline2"]
        .into_iter()
        .fold(router, |router, path| router.get(path, sum).post(path, sum_with_body));
    router
        .get("/pipeline", fixed("ok"))
        .get("/delay/{ms}", delay)
        .post("/echo-bytes", echo.body_max(ECHO_MAX))
        .post("/upload", upload.body_max(UPLOAD_MAX))
}

/// Adds `/echo`, which is another route among those of conformance suites ([`probe`](crate::probe)).
pub fn echo_route(router: Router) -> Router {
    router.post("/echo", echo.body_max(ECHO_MAX))
}

/// Adds the files of `folder` below `/static`.
pub fn files(router: Router, folder: &FilePath) -> Router {
    router.files("/static", StaticFiles::new(folder).precompressed())
}

/// The folder of this path, as a setting.
///
/// # Errors
/// What is there instead, and what to write.
pub fn folder(path: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(path);
    match folder.metadata() {
        Ok(found) if found.is_dir() => Ok(folder),
        Ok(_) => Err("it is not a folder; use one whose files are to be served".to_owned()),
        Err(error) => Err(format!("{error}; use a folder whose files are to be served")),
    }
}

fn sum(Query(Sum { a, b }): Query<Sum>) -> String {
    a.wrapping_add(b).to_string()
}

/// An empty body adds nothing.
fn sum_with_body(Query(Sum { a, b }): Query<Sum>, body: String) -> Result<String, Error> {
    let number = body.trim();
    let c = match number.parse::<i64>() {
        Ok(number) => number,
        Err(_) if number.is_empty() => 0,
        Err(_) => {
            return Err(Error::bad_request(format!(
                "the body must be one whole number, not {number:?}"
            )));
        }
    };
    Ok(a.wrapping_add(b).wrapping_add(c).to_string())
}

async fn delay(Path(ms): Path<u64>) -> Result<String, Error> {
    let delay = Duration::from_millis(ms);
    if delay > DELAY_MAX {
        return Err(Error::bad_request("the delay is more than a minute; ask for less"));
    }
    if ms > 0 {
        tokio::time::sleep(delay).await;
    }
    Ok(ms.to_string())
}

fn echo(body: Bytes) -> Response {
    Response::from(body).with_content_type("application/octet-stream")
}

/// Counts the bytes that really came.
async fn upload(mut body: BodyStream) -> Result<String, Error> {
    let mut length = 0;
    while let Some(piece) = body.next().await {
        length += piece?.len();
    }
    Ok(length.to_string())
}

#[cfg(test)]
mod tests {
    use highwater::testing::Client;

    use super::*;

    /// Purpose: what HttpArena's validator asks for: sums of the query and the body, by any path and method.
    #[test]
    fn sums() {
        let client = Client::new(routes(Router::new()));
        for path in ["/baseline11", "/baseline2"] {
            assert_eq!(client.get(&format!("{path}?a=13&b=42")).text(), "55");
            let post = |body: &'static str| client.post(&format!("{path}?a=13&b=42"), body);
            for (body, answer) in [("20", "75"), (" -55\n", "0"), ("", "55")] {
                assert_eq!(post(body).text(), answer, "{body:?}");
            }
            assert_eq!(post("2O").status.as_u16(), 400);
            assert_eq!(client.get(&format!("{path}?a=13")).status.as_u16(), 400);
        }
    }

    /// Purpose: a delay is answered with itself, and a mistyped one holds no connection for a year.
    #[test]
    fn delays() {
        let client = Client::new(routes(Router::new()));
        for (ms, status) in [(0, 200), (1, 200), (60_000, 200), (60_001, 400), (u64::MAX, 400)] {
            let response = client.get(&format!("/delay/{ms}"));
            assert_eq!(response.status.as_u16(), status, "{ms}");
            assert!(status != 200 || response.text() == ms.to_string(), "{ms}");
        }
    }

    /// Purpose: bodies come back to the byte, larger ones than the default limit allows, too, but not without bound.
    #[test]
    fn echoes() {
        let client = Client::new(echo_route(routes(Router::new())));
        for path in ["/echo", "/echo-bytes"] {
            for length in [0, 1, 100_000, ECHO_MAX as usize] {
                let body: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
                let response = client.post(path, body.clone());
                assert_eq!(response.header("content-type"), Some("application/octet-stream"));
                assert!(response.body == body, "{path} {length}");
            }
            let beyond = client.post(path, vec![0; ECHO_MAX as usize + 1]);
            assert_eq!(beyond.status.as_u16(), 413);
        }
    }

    /// Purpose: a folder that is mistyped is told at start, not by a 404.
    #[test]
    fn folders() {
        let here = env!("CARGO_MANIFEST_DIR");
        assert_eq!(folder(here), Ok(PathBuf::from(here)));
        for (path, why) in
            [(format!("{here}/Cargo.toml"), "not a folder"), (format!("{here}/no"), "No such")]
        {
            let refusal = folder(&path).expect_err("it is none");
            assert!(
                refusal.contains(why) && refusal.contains("use a folder")
                    || refusal.contains("use one"),
                "{refusal}"
            );
        }
    }
}
