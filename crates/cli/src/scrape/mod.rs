//! What does a page on a server's metrics port contain, or why is there none?
//!
//! Asks over HTTP, for `guard` and `top` alike, and reads what comes (`text/`).
//!
//! Bounded: [`TIMEOUT`] for a whole exchange, [`BODY_BYTES_MAX`] for an answer, no redirects, no stored state, no proxy:
//! the server runs beside us, or is named by its own address.

pub(crate) mod text;

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use ureq::Agent;
use ureq::http::{StatusCode, Uri};

/// How long an answer may take, from connecting to the last byte. A later one would be about a past
/// that no longer helps.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest answer that is read. A server with ten thousand routes has a page of 20 MiB; a large Kubernetes exporter's is
/// about 1 MiB.
pub(crate) const BODY_BYTES_MAX: u64 = 32 << 20;

/// A URL as logs and metrics may show it: without possible secrets, which are the user, the
/// password, and the values of its query.
pub(crate) struct Shown<'a>(pub(crate) &'a Uri);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(url) = self;
        write!(f, "{}://{}", url.scheme_str().unwrap_or("http"), url.host().unwrap_or_default())?;
        if let Some(port) = url.port_u16() {
            write!(f, ":{port}")?;
        }
        f.write_str(url.path())?;
        f.write_str(if url.query().is_some() { "?…" } else { "" })
    }
}

/// Why there is nothing to read. The texts are for the operator, and name the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No answer came, or not all of it.
    Silent(String),
    /// The answer is not a page of metrics.
    Wrong(String),
}

/// Asks pages for `who`, which is what it calls itself, and waits for each for at most [`TIMEOUT`].
pub(crate) fn agent(who: &str) -> Agent {
    agent_within(who, TIMEOUT)
}

/// The same with another limit.
pub(crate) fn agent_within(who: &str, timeout: Duration) -> Agent {
    Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent(format!("{who}/{}", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

/// The answer of `url`: its status, and its text.
///
/// # Errors
/// No whole answer comes in time, it is too long, or it is not UTF-8.
pub(crate) fn fetch(agent: &Agent, url: &Uri) -> Result<(StatusCode, String), Failure> {
    let shown = Shown(url);
    let silent = |error: &dyn fmt::Display| Failure::Silent(format!("{shown}: {error}"));
    let accept = "text/plain;version=0.0.4, application/json;q=0.9";
    let request = agent.get(url).header("Accept", accept);
    let mut response = request.call().map_err(|error| match &error {
        ureq::Error::Io(io) if io.kind() == ErrorKind::ConnectionRefused => {
            silent(&"nothing listens there (connection refused)")
        }
        error => silent(error),
    })?;
    let status = response.status();
    let body = response.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec();
    let body = body.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => {
            Failure::Wrong(format!("{shown}: the answer is longer than {BODY_BYTES_MAX} bytes"))
        }
        error => silent(&error),
    })?;
    let text = String::from_utf8(body)
        .map_err(|_| Failure::Wrong(format!("{shown}: the answer is not UTF-8")))?;
    Ok((status, text))
}
