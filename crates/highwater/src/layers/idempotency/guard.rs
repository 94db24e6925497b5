//! What runs for each request that the layer covers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderValue, Method, StatusCode, header};
use tokio::time::Instant;

use super::kept::{Happened, Kept};
use super::log::{Log, Receipt};
use super::problems::{
    INVALID, KEY, MISSING, NOT_KEPT, REUSED, Refusal, UNDER_WAY, UNKNOWN, UNSUPPORTED,
};
use super::table::{Begin, Key, Table};
use super::{Idempotency, IdempotencyKey, fingerprint, key};
use crate::app::{Error, IntoResponse, Next, OwnedRequest, Request, Response};
use crate::logging::rate_limited;

/// How long the name of a client may be, in bytes.
const CLIENT_BYTES_MAX: usize = 1024;

/// The layer, while it runs.
#[derive(Debug)]
pub(super) struct Guard {
    settings: Idempotency,
    table: Mutex<Table>,
    began: Instant,
    began_us: u64,
}

/// A request with a key.
struct Asked {
    scoped: Key,
    fingerprint: u128,
    key: Arc<str>,
}

/// A key that is under way. Dropped before its end, it says so.
struct UnderWay {
    guard: Arc<Guard>,
    key: Key,
    fingerprint: u128,
    state: Progress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Its handler has not begun.
    Waiting,
    /// Its handler may have applied the request.
    Running,
    Over,
}

/// Answers a request: by its handler, as the first time, or with a refusal.
pub(super) async fn handle(guard: Arc<Guard>, request: OwnedRequest, next: Next) -> Response {
    let asked = match guard.ask(&request) {
        Ok(Some(asked)) => asked,
        Ok(None) => return next.run(request).await,
        Err(refusal) => return refusal,
    };
    request.insert(IdempotencyKey(Arc::clone(&asked.key)));
    let (mut under_way, receipt) = match guard.begin(asked) {
        Ok(begun) => begun,
        Err(answer) => return answer,
    };
    if let Some(receipt) = receipt
        && let Err(error) = receipt.await
    {
        return unavailable(&error.to_string());
    }
    under_way.state = Progress::Running;
    let response = next.run(request).await;
    if is_not_applied(response.status()) {
        under_way.release();
        return response;
    }
    if let Some(receipt) = under_way.finish(&response)
        && let Err(error) = receipt.await
    {
        // The client gets the truth. After a crash its key is one whose outcome is unknown, so nothing is applied twice.
        rate_limited!(ERROR, error = %error, "the answer of an idempotency key is not durable");
    }
    response
}

/// Whether an answer says that the request may be sent again as it is, since nothing was applied.
fn is_not_applied(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE
    )
}

fn unavailable(cause: &str) -> Response {
    rate_limited!(ERROR, cause, "new idempotency keys are refused");
    Error::overloaded("no new Idempotency-Key can be taken for now; repeat the request later")
        .with_code("idempotency_unavailable")
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
        .into_response()
}

impl Guard {
    /// The layer, with the keys that its journal knows.
    pub(super) fn new(settings: Idempotency) -> Result<Self, String> {
        let began_us = wall_clock();
        #[cfg_attr(not(feature = "journal"), expect(unused_mut, reason = "a journal fills it"))]
        let mut table = Table::new(settings.limits());
        #[cfg(feature = "journal")]
        if let Some(log) = &settings.log {
            log.load(&mut table, began_us, settings.retries_interrupted)?;
        }
        Ok(Guard { settings, table: Mutex::new(table), began: Instant::now(), began_us })
    }

    #[cfg(feature = "openapi")]
    pub(super) fn is_required(&self) -> bool {
        self.settings.is_required
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Microseconds since 1970, by a clock that nobody sets while the process runs.
    fn now(&self) -> u64 {
        let since = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.began_us.saturating_add(since)
    }

    fn refuse(&self, refusal: Refusal) -> Response {
        refusal.response(self.settings.manual.as_deref())
    }

    /// What a request asks for, if it has a key and a handler.
    fn ask(&self, request: &Request<'_>) -> Result<Option<Asked>, Response> {
        let method = request.method();
        let is_routed = request
            .allowed_methods()
            .is_some_and(|methods| methods.split(", ").any(|one| one == method.as_str()));
        let Some(pattern) = request.matched_path().filter(|_| is_routed) else { return Ok(None) };
        if !matches!(method, Method::POST | Method::PATCH) {
            return Ok(None);
        }
        let key = match key::read(request.headers().get_all(KEY.as_str())) {
            Ok(Some(key)) => key,
            Ok(None) if self.settings.is_required => return Err(self.refuse(MISSING)),
            Ok(None) => return Ok(None),
            Err(()) => return Err(self.refuse(INVALID)),
        };
        let client = self.settings.client.as_ref().and_then(|client| client(request));
        let client = client.unwrap_or_default();
        let Some(content) = request.body().filter(|_| !request.is_for_stream()) else {
            rate_limited!(
                WARN,
                route = pattern,
                "a request with an Idempotency-Key is refused: idempotency(…) compares contents, and the handler takes it as a stream; \
                 take it whole, or put the route under a router without the layer"
            );
            return Err(self.refuse(UNSUPPORTED));
        };
        if client.len() > CLIENT_BYTES_MAX {
            let problem = "idempotency(…).by(…): the name of a client has more than 1024 bytes";
            return Err(Error::internal(problem).into_response());
        }
        // No zero is in the first three, so no two scopes are one.
        let scoped = format!("{method}\0{pattern}\0{key}\0{client}");
        let kind = request.headers().get("content-type").unwrap_or_default();
        let fingerprint = fingerprint::of(&[request.target().as_bytes(), kind, content]);
        Ok(Some(Asked { scoped: scoped.into_bytes().into(), fingerprint, key: key.into() }))
    }

    /// Takes a new key; otherwise returns the answer.
    fn begin(self: &Arc<Self>, asked: Asked) -> Result<(UnderWay, Option<Receipt>), Response> {
        let Asked { scoped: key, fingerprint, .. } = asked;
        let now = self.now();
        let mut table = self.table();
        match table.begin(&key, fingerprint, now) {
            Begin::New => {}
            Begin::UnderWay => return Err(self.refuse(UNDER_WAY)),
            Begin::Unknown => return Err(self.refuse(UNKNOWN)),
            Begin::Other => return Err(self.refuse(REUSED)),
            Begin::Full => return Err(unavailable("`keys_max` or `bytes_max` is reached")),
            Begin::Answered(kept) => {
                return Err(match &*kept {
                    Kept::Whole(answer) => answer.response(),
                    Kept::Status(_) => self.refuse(NOT_KEPT),
                });
            }
        }
        // In the order of the table, so that the journal tells the same story.
        match self.append(&key, fingerprint, &Happened::Begun, now) {
            Ok(receipt) => {
                let guard = Arc::clone(self);
                Ok((UnderWay { guard, key, fingerprint, state: Progress::Waiting }, receipt))
            }
            Err(cause) => {
                table.release(&key);
                Err(unavailable(&cause))
            }
        }
    }

    fn append(
        &self,
        key: &Key,
        fingerprint: u128,
        happened: &Happened,
        now: u64,
    ) -> Result<Option<Receipt>, String> {
        // By the wall clock its age is judged, after the next start and by the journal's retention: after a suspend, or once
        // that clock was set forward, the record of a new key would be an old one.
        let append = |log: &Log| log.append((key, fingerprint), happened, now.max(wall_clock()));
        self.settings.log.as_ref().map(append).transpose()
    }

    /// The key is free again. That this is durable is not waited for: without it, the key is one whose outcome is unknown.
    fn release(&self, key: &Key, fingerprint: u128) {
        let mut table = self.table();
        table.release(key);
        if let Err(error) = self.append(key, fingerprint, &Happened::Released, self.now()) {
            rate_limited!(ERROR, error, "that an idempotency key is free is not durable");
        }
    }
}

/// Microseconds since 1970, by the clock that people set.
fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl UnderWay {
    /// The request was answered. The receipt says when that is durable.
    fn finish(mut self, response: &Response) -> Option<Receipt> {
        self.state = Progress::Over;
        let kept = Kept::of(response, self.guard.settings.answer_bytes_max);
        let now = self.guard.now();
        let mut table = self.guard.table();
        let kept = table.finish(&self.key, self.fingerprint, kept, now);
        let happened = Happened::Answered(kept);
        match self.guard.append(&self.key, self.fingerprint, &happened, now) {
            Ok(receipt) => receipt,
            Err(error) => {
                rate_limited!(ERROR, error, "the answer of an idempotency key is not durable");
                None
            }
        }
    }

    /// Nothing was applied.
    fn release(mut self) {
        self.state = Progress::Over;
        self.guard.release(&self.key, self.fingerprint);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let retries = self.guard.settings.retries_interrupted;
        match self.state {
            Progress::Over => {}
            Progress::Running if !retries => {
                let now = self.guard.now();
                self.guard.table().interrupt(&self.key, self.fingerprint, now);
            }
            Progress::Waiting | Progress::Running => {
                self.guard.release(&self.key, self.fingerprint)
            }
        }
    }
}

#[cfg(all(test, feature = "journal"))]
mod tests {
    use std::time::Duration;

    use highwater_journal::{Directory, Options};

    use super::*;
    use crate::layers::idempotency;

    const HOUR_US: u64 = 3_600_000_000;

    /// Purpose: a key that a process took after a suspend, or after its clock was set forward, is known to the next one for as
    /// long as any other.
    #[test]
    fn keys_outlive_a_clock_that_was_set_forward() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let open = || {
            let directory = Directory::open(folder.path()).expect("nobody else has it");
            let layer = idempotency(Duration::from_secs(3600));
            Guard::new(layer.journal(directory, Options::default())).expect("it can be opened")
        };
        let asked = |key: &[u8]| Asked { scoped: key.into(), fingerprint: 1, key: "k".into() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut guard = open();
        guard.began_us -= 2 * HOUR_US;
        let guard = Arc::new(guard);
        let (under_way, begun) = guard.begin(asked(b"a")).map_err(drop).expect("it is new");
        let answered = under_way.finish(&Response::from("done"));
        for receipt in [begun, answered].into_iter().flatten() {
            runtime.block_on(receipt).expect("the disk works");
        }
        drop(guard);
        let guard = Arc::new(open());
        let again = guard.begin(asked(b"a")).map(drop).expect_err("it was answered");
        assert_eq!(again.status(), StatusCode::OK);
    }
}
