//! From a request to a durable command, and to the client's answer.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use highwater::{BodyUse, Error, FromRequest, Request, Response, StatusCode, WorkerLocal};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::error::{not_found, queue_refused, unavailable};
use super::input::{Caller, Change, NewTodo, TodoId, Waits};
use super::{Service, get, json};
use crate::command::{Action, Command};
use crate::queue::{QueueError, Sender};
use crate::store::Outcome;

/// How long a waiting request pauses until it checks again whether acknowledged commands are applied: first, and at most. Each
/// check may be a read of the store, and anybody can make up an id that is waited for.
const PAUSE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];

/// The part through which this instance learns what was applied.
const STORE: &str = "store";

/// A worker's own state.
pub(super) struct Worker {
    pub(super) service: Arc<Service>,
    sender: Box<dyn Sender>,
    random: RefCell<fastrand::Rng>,
}

impl Worker {
    pub(super) fn new(service: &Arc<Service>, _index: usize) -> Result<Worker, QueueError> {
        let (sender, random) = (service.queue.sender()?, RefCell::default());
        Ok(Worker { service: Arc::clone(service), sender, random })
    }

    /// A new id, of version 7: those of one worker rise with time.
    fn id(&self, now_us: i64) -> Uuid {
        let mut random = [0; 10];
        self.random.borrow_mut().fill(&mut random);
        uuid::Builder::from_unix_timestamp_millis((now_us / 1000).unsigned_abs(), &random)
            .into_uuid()
    }

    fn command(&self, todo: Uuid, caller: &Caller, action: Action) -> Command {
        let Caller { user, now_us } = caller;
        let id = self.id(*now_us);
        Command { id, todo, user_id: (**user).to_owned(), requested_us: *now_us, action }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Worker")
    }
}

/// A body that was read already: see [`NewTodo::parse`] and [`Change::parse`].
pub(super) struct Body<T>(T);

impl FromRequest for Body<NewTodo> {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        parsed(request, |body, worker| NewTodo::parse(body, &worker.service.bounds))
    }
}

impl FromRequest for Body<Change> {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        parsed(request, |body, worker| Change::parse(body, &worker.service.bounds))
    }
}

fn parsed<T>(
    request: &Request<'_>,
    parse: impl FnOnce(&[u8], &Worker) -> Result<T, Error>,
) -> Result<Body<T>, Error> {
    let worker = WorkerLocal::<Worker>::from_request(request)?;
    let body = request.body().ok_or_else(|| Error::internal("the route takes its body whole"))?;
    parse(body, &worker).map(Body)
}

/// `POST /todos`
pub(super) async fn create(
    worker: WorkerLocal<Worker>,
    caller: Caller,
    Waits(waits): Waits,
    Body(new): Body<NewTodo>,
) -> Result<Response, Error> {
    let NewTodo { title, description } = new;
    let todo = worker.id(caller.now_us);
    let command = worker.command(todo, &caller, Action::Create { title, description });
    let max = worker.service.bounds.todos_max;
    if !worker.service.reads.reserve(command.id, max) {
        return Err(unavailable(format!(
            "there are {max} todos, those that are queued included, and there may be no more (--todos-max)"
        )));
    }
    match submit(&worker, &command, waits).await? {
        Some(shown) => Ok(json(shown).with_status(StatusCode::CREATED)),
        None => Ok(queued(todo, "Todo creation queued")),
    }
}

/// `PUT /todos/{id}`
pub(super) async fn update(
    worker: WorkerLocal<Worker>,
    caller: Caller,
    Waits(waits): Waits,
    TodoId(todo): TodoId,
    Body(change): Body<Change>,
) -> Result<Response, Error> {
    owned(&worker, todo, &caller).await?;
    let Change { title, description, completed } = change;
    let command = worker.command(todo, &caller, Action::Update { title, description, completed });
    match submit(&worker, &command, waits).await? {
        Some(shown) => Ok(json(shown)),
        None => Ok(queued(todo, "Todo update queued")),
    }
}

/// `DELETE /todos/{id}`
pub(super) async fn delete(
    worker: WorkerLocal<Worker>,
    caller: Caller,
    Waits(waits): Waits,
    TodoId(todo): TodoId,
) -> Result<Response, Error> {
    owned(&worker, todo, &caller).await?;
    let command = worker.command(todo, &caller, Action::Delete);
    match submit(&worker, &command, waits).await? {
        Some(_) => Ok(json(message(todo, "Todo deleted"))),
        None => Ok(queued(todo, "Todo deletion queued")),
    }
}

fn queued(todo: Uuid, what: &str) -> Response {
    json(message(todo, what)).with_status(StatusCode::ACCEPTED)
}

fn message(todo: Uuid, what: &str) -> Bytes {
    Bytes::from(format!(r#"{{"id":"{todo}","message":"{what}"}}"#))
}

/// Queues a command. Once it is durable, returns the resulting todo, if the request waits for it and it was applied in
/// time.
async fn submit(worker: &Worker, command: &Command, waits: bool) -> Result<Option<Bytes>, Error> {
    let Service { counts, reads, bounds, .. } = &*worker.service;
    let waiting = waits.then(|| reads.wait_for(command.id));
    let sent = match worker.sender.send(command) {
        Ok(durable) => durable.await,
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = sent {
        if matches!(command.action, Action::Create { .. }) {
            reads.release(command.id);
        }
        counts.refused.fetch_add(1, Ordering::Relaxed);
        return Err(queue_refused(refusal));
    }
    counts.accepted.fetch_add(1, Ordering::Relaxed);
    let Some(waiting) = waiting else { return Ok(None) };
    match timeout(bounds.wait_max, waiting).await {
        Ok(Some(Outcome::Done)) => {}
        Ok(Some(Outcome::NotFound)) => return Err(not_found()),
        Ok(Some(Outcome::Dead(reason))) => return Err(Error::internal(reason)),
        // It is in the queue, and will be applied.
        Ok(None) | Err(_) => return Ok(None),
    }
    let shown = get(reads.todo(command.todo)).await?;
    // It may have been deleted since. A deletion has nothing to show.
    match (shown, &command.action) {
        (Some(shown), _) => Ok(Some(shown.json)),
        (None, Action::Delete) => Ok(Some(Bytes::new())),
        (None, _) => Err(not_found()),
    }
}

/// Checks that the todo exists and is the caller's; else 404. A todo that was acknowledged before this request is
/// found even if it is not applied yet.
///
/// Whether commands acknowledged before are applied is known at once from the time in the todo's id, unless that is recent, or
/// in the future because a clock went back; else after a few seconds from how far the workers are. If the request does not wait
/// that long, a repeated one learns of it.
async fn owned(worker: &Worker, todo: Uuid, caller: &Caller) -> Result<(), Error> {
    // Asked before it is looked for: what is applied in between is found.
    let was_settled = is_settled(worker, todo, caller.now_us);
    if let Some(owned) = look(worker, todo, caller).await? {
        return owned;
    }
    let Service { queue, bounds, missing, .. } = &*worker.service;
    let until = Instant::now() + bounds.wait_max;
    let mark = queue.mark();
    if mark.is_none() && was_settled {
        return Err(not_found());
    }
    let asked = missing.since(todo, &caller.user).unwrap_or_else(std::time::Instant::now);
    let mut pause = PAUSE[0];
    loop {
        let settled = match mark {
            Some(mark) => queue.reached(mark),
            None => !is_deaf(worker) && queue.has_settled(asked),
        };
        if let Some(owned) = look(worker, todo, caller).await? {
            return owned;
        }
        if settled {
            return Err(not_found());
        }
        if Instant::now() >= until {
            missing.remember(todo, &caller.user, asked);
            return Err(unavailable("earlier writes are not applied yet".into()));
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE[1]);
    }
}

/// Where other instances acknowledge as well: whether a todo with this id would be visible by now, if it ever existed. It is
/// not while commands of its time wait to be applied, or this instance cannot learn what was applied.
fn is_settled(worker: &Worker, todo: Uuid, now_us: i64) -> bool {
    let Some(age_us) = age_us(todo, now_us) else { return true };
    let after = worker.service.queue.settles_after().map(|after| i64::try_from(after.as_micros()));
    !is_deaf(worker) && matches!(after, Some(Ok(after_us)) if age_us > after_us)
}

/// Whether what is applied cannot be heard of.
fn is_deaf(worker: &Worker) -> bool {
    worker.service.parts.iter().any(|part| part.name() == STORE && part.down().is_some())
}

/// Whether the todo is the caller's; `None` if it is not there.
async fn look(
    worker: &Worker,
    todo: Uuid,
    caller: &Caller,
) -> Result<Option<Result<(), Error>>, Error> {
    let shown = get(worker.service.reads.todo(todo)).await?;
    Ok(shown.map(|shown| if shown.user_id == caller.user { Ok(()) } else { Err(not_found()) }))
}

/// How long ago an id was made, if it is one of ours.
fn age_us(id: Uuid, now_us: i64) -> Option<i64> {
    if id.get_version_num() != 7 {
        return None;
    }
    let made_ms = (id.as_u128() >> 80) as i64;
    Some(now_us - made_ms * 1000)
}
