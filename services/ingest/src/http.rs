//! The gateway's HTTP interface.
//!
//! Records are appended while their request is processed, straight from the receive buffer: there is no copy between
//! the connection and the batch. Under `--ack memory` the answer follows at once; otherwise the handler waits for the
//! receipts of its records.

use highwater::batcher::{Awaiting, Failure, FailureKind, Refused};
use highwater::{
    BodyUse, Error, FromRequest, Handler as _, PerWorker, Request, Requirements, Response, Router,
    StatusCode, WorkerLocal, fixed, header,
};

use crate::args::Ack;
use crate::intake::Intake;

/// The answer to one record.
const OK: &str = r#"{"ok":true}"#;

/// The answer to `GET /`.
const UP: &str = r#"{"status":"UP"}"#;

/// The gateway's routes.
pub fn router(ack: Ack, intake: PerWorker<Intake>) -> Router {
    let up = Response::new(StatusCode::OK).with_content_type("application/json").with_body(UP);
    let router = Router::new()
        .per_worker(intake.poll_at_turn_end(Intake::end_turn))
        .get("/", fixed(up).name("up"));
    match ack {
        Ack::Memory => router
            .post("/e", (|Taken: Taken| accepted()).name("e"))
            .post("/batch", (|TakenAll(records): TakenAll| accepted_all(records)).name("batch")),
        Ack::Disk | Ack::Kafka => {
            let one = async |Pending(awaiting): Pending, intake: WorkerLocal<Intake>| {
                written(&intake, [awaiting]).await.map(|_| accepted())
            };
            let all = async |PendingAll(awaiting): PendingAll, intake: WorkerLocal<Intake>| {
                written(&intake, awaiting).await.map(accepted_all)
            };
            router.post("/e", one.name("e")).post("/batch", all.name("batch"))
        }
    }
}

fn accepted() -> Response {
    Response::new(StatusCode::ACCEPTED).with_content_type("application/json").with_body(OK)
}

fn accepted_all(records: usize) -> Response {
    let body = format!(r#"{{"ok":true,"records":{records}}}"#);
    Response::new(StatusCode::ACCEPTED).with_content_type("application/json").with_body(body)
}

/// The number of records, once all are written.
///
/// If one fails, its failure is the answer, though others may be written: if the client sends all again, consumers see
/// those twice.
async fn written(
    intake: &Intake,
    records: impl IntoIterator<Item = Awaiting, IntoIter: ExactSizeIterator>,
) -> Result<usize, Error> {
    let records = records.into_iter();
    let count = records.len();
    for awaiting in records {
        awaiting.await.map_err(|failure| of_failure(intake, count, &failure))?;
    }
    Ok(count)
}

/// A record that was accepted.
struct Taken;

/// The number of a request's records, all accepted.
struct TakenAll(usize);

/// A record that was accepted, and is not known to be written.
struct Pending(Awaiting);

/// A request's records, all accepted, and not known to be written.
struct PendingAll(Vec<Awaiting>);

impl FromRequest for Taken {
    const BODY: BodyUse = BodyUse::Whole;

    #[inline]
    fn from_request(request: &Request<'_>) -> Result<Taken, Error> {
        let (intake, body) = parts(request)?;
        let taken = intake.append(intake.partition(request), body);
        taken.map(|()| Taken).map_err(|refused| of_refusal(&intake, 1, refused))
    }

    fn requires(requirements: &mut Requirements) {
        requirements.worker_local::<Intake>();
    }
}

impl FromRequest for Pending {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Pending, Error> {
        let (intake, body) = parts(request)?;
        let taken = intake.append_awaiting(intake.partition(request), body);
        taken.map(Pending).map_err(|refused| of_refusal(&intake, 1, refused))
    }

    fn requires(requirements: &mut Requirements) {
        requirements.worker_local::<Intake>();
    }
}

impl FromRequest for TakenAll {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<TakenAll, Error> {
        let mut count = 0;
        take_all(request, |intake, partition, body| {
            count += 1;
            intake.append(partition, body)
        })?;
        Ok(TakenAll(count))
    }

    fn requires(requirements: &mut Requirements) {
        requirements.worker_local::<Intake>();
    }
}

impl FromRequest for PendingAll {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<PendingAll, Error> {
        let mut all = Vec::new();
        take_all(request, |intake, partition, body| {
            all.push(intake.append_awaiting(partition, body)?);
            Ok(())
        })?;
        Ok(PendingAll(all))
    }

    fn requires(requirements: &mut Requirements) {
        requirements.worker_local::<Intake>();
    }
}

/// Accepts all records of a request, or none.
fn take_all(
    request: &Request<'_>,
    mut take: impl FnMut(&Intake, u32, &[u8]) -> Result<(), Refused>,
) -> Result<(), Error> {
    let (intake, body) = parts(request)?;
    let (partition, count) = (intake.partition(request), records(body).count());
    let refuse = |refused| of_refusal(&intake, count, refused);
    if !intake.has_room(partition, count, body.len()) {
        return Err(refuse(Refused::Full));
    }
    records(body).try_for_each(|record| take(&intake, partition, record)).map_err(refuse)
}

/// The lines of a body, without their ends. Empty ones are skipped.
fn records(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

#[inline]
fn parts<'r>(request: &'r Request<'_>) -> Result<(WorkerLocal<Intake>, &'r [u8]), Error> {
    let intake = WorkerLocal::current().ok_or_else(|| Error::internal("a worker has no intake"))?;
    let body = request.body().ok_or_else(|| Error::internal("the body is streamed"))?;
    Ok((intake, body))
}

/// The answer to records that were not accepted.
#[cold]
fn of_refusal(intake: &Intake, records: usize, refused: Refused) -> Error {
    match refused {
        Refused::Full => {
            intake.refuse(records);
            not_now("the memory for records is full: the storage is too slow")
        }
        Refused::TooLarge => too_large("the record is larger than --body-max"),
    }
}

/// The answer to records that were accepted, but could not be written.
#[cold]
fn of_failure(intake: &Intake, records: usize, failure: &Failure) -> Error {
    let message = match failure.kind() {
        FailureKind::TooLarge => return too_large("the record is larger than Kafka takes"),
        FailureKind::Rejected => return Error::unprocessable("the record cannot be written"),
        FailureKind::Full => "there is no room for more records",
        FailureKind::TimedOut => {
            "the records could not be written in time; they may be there later"
        }
        _ => "records cannot be written now",
    };
    intake.count_refused(records);
    // The sink's message names files and brokers: it is for the operator only.
    not_now(message).with_source(failure.clone())
}

fn not_now(message: &'static str) -> Error {
    let after = header::HeaderValue::from_static("1");
    Error::overloaded(message).with_header(header::RETRY_AFTER, after)
}

fn too_large(message: &'static str) -> Error {
    Error::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}
