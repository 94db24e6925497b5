//! The answers that each client must have received in the end.

use super::client::Client;
use super::link::{Link, Stage};
use super::reader::ReceivedAnswer;
use super::script::{Closes, TRIES_MAX, Wanted};
use super::witness::Excuse;

/// How a connection ended, as far as that excuses missing answers.
pub(super) struct Ending<'r> {
    pub(super) link: &'r Link,
    pub(super) excuse: Option<Excuse>,
    /// The server was drained at some time: any answer may have been the last one.
    pub(super) was_drained: bool,
    /// Requests may be refused because they waited too long.
    pub(super) sheds: bool,
    /// There may have been no room for another connection: a refusal ends one then.
    pub(super) is_scarce: bool,
}

/// Compares what a client has received with what it must have received.
///
/// Answers must be right, in order and in number. Answers may be missing after an answer that said
/// it was the last, and where the witness has found a good reason.
pub(super) fn check(client: &mut Client, ending: &Ending<'_>) -> Result<(), String> {
    let link = ending.link;
    if link.stage == Stage::Over && !link.was_reset && !link.has_left {
        client.reader.end()?;
    }
    let answers = client.reader.answers();
    for (at, answer) in answers.iter().enumerate() {
        let is_last = at + 1 == answers.len();
        if answer.closes && !is_last {
            return Err(format!("answer {at} is the last, yet another follows"));
        }
        let Some(request) = client.requests.get(at) else {
            return Err(format!("answer {at} to no request: {}", answer.status));
        };
        check_answer(answer, &request.wanted, ending)
            .map_err(|what| format!("answer {at}: {what}"))?;
        let is_kept = request.wanted.closes == Closes::No && request.once.is_some();
        if answer.closes
            && answer.status == 503
            && is_kept
            && !ending.was_drained
            && !ending.is_scarce
        {
            return Err(format!("answer {at}: a refusal ended a proxy's connection"));
        }
    }
    if answers.len() == TRIES_MAX && answers.iter().all(|answer| answer.status == 503) {
        return Err(format!("it was refused {TRIES_MAX} times, and never served"));
    }
    check_raw(client, ending)?;
    let excused = ending.excuse.is_some()
        || link.has_left
        || link.is_broken()
        || link.stage == Stage::Refused
        || client.never_reads();
    let is_announced = answers.last().is_some_and(|answer| answer.closes);
    if answers.len() < client.requests.len()
        && !is_announced
        && !excused
        && !is_silent_on_purpose(client)
    {
        let missing = client.requests.len() - answers.len();
        return Err(format!("{missing} of {} answers are missing", client.requests.len()));
    }
    let torn = matches!(
        ending.excuse,
        Some(
            Excuse::Linger | Excuse::WriteStall | Excuse::Cut | Excuse::Broken | Excuse::HalfClosed
        )
    );
    // A client that sends just when its idle connection is closed gets a reset, and may lose unread
    // bytes: the price of keeping connections alive (RFC 9112 §9.5).
    let crossed = link.was_reset && ending.excuse.is_some();
    let may_tear = torn || crossed || link.has_left || link.is_broken() || client.never_reads();
    if client.reader.is_inside() && !may_tear {
        return Err("an answer ends in its middle".into());
    }
    if link.was_reset && !crossed && !is_announced && !link.has_left && !link.is_broken() {
        return Err("the connection was reset".into());
    }
    Ok(())
}

/// Checks that no request of a proxy was begun twice, here (`begun` counts that) or by the instance that gets what this
/// one has refused.
pub(super) fn check_once(client: &Client, begun: impl Fn(u32) -> u32) -> Result<(), String> {
    let answers = client.reader.answers();
    for (at, request) in client.requests.iter().enumerate() {
        let Some(key) = request.once else { continue };
        let here = begun(key);
        let elsewhere = u32::from(answers.get(at).is_some_and(|answer| answer.status == 503));
        let is_served = answers.get(at).is_some_and(|answer| answer.status == 200);
        if here + elsewhere > 1 || (is_served && here == 0) {
            return Err(format!(
                "request {at} was begun {here} times here, and {elsewhere} elsewhere"
            ));
        }
    }
    Ok(())
}

/// Clients that stop in the middle of a request and finish get an error, or are closed without one.
fn is_silent_on_purpose(client: &Client) -> bool {
    let answered = client.reader.answers().len();
    client.requests.get(answered).is_some_and(|request| request.wanted.closes == Closes::Either)
}

fn check_answer(
    answer: &ReceivedAnswer,
    wanted: &Wanted,
    ending: &Ending<'_>,
) -> Result<(), String> {
    // The witness has already checked the time.
    let too_slow = answer.status == 408 && answer.closes;
    let refused = answer.status == 503 && ending.sheds;
    if answer.status != wanted.status
        && !wanted.or.contains(&answer.status)
        && !too_slow
        && !refused
    {
        return Err(format!("{} instead of {}", answer.status, wanted.status));
    }
    if answer.status != wanted.status {
        return Ok(());
    }
    if wanted.body.as_ref().is_some_and(|body| *body != answer.body) {
        return Err("its content is wrong".into());
    }
    if !answer.trailers.is_empty() {
        return Err("it has trailers, which no handler here writes".into());
    }
    match (wanted.closes, answer.closes) {
        (Closes::Yes, false) => Err("it should have been the last".into()),
        // Where connections are scarce, a refusal ends one.
        (Closes::No, true) if !ending.was_drained && !refused => {
            Err("it should not have been the last".into())
        }
        _ => Ok(()),
    }
}

fn check_raw(client: &Client, ending: &Ending<'_>) -> Result<(), String> {
    let Some(raw) = client.reader.raw() else { return Ok(()) };
    let at = client.reader.answers().len() - 1;
    let Wanted { raw: wanted, endless, drain_close, .. } = &client.requests[at].wanted;
    let Some(wanted) = wanted else {
        return Err("the protocol was switched unasked".into());
    };
    if *endless {
        return Ok(()); // Its client leaves in the middle of it.
    }
    let ends_drained = ending.was_drained && ends_with(raw, wanted, drain_close);
    if !wanted.starts_with(raw) && !ends_drained {
        return Err("the echo is wrong".into());
    }
    let whole = raw.len() == wanted.len() || (ends_drained && raw.ends_with(drain_close));
    let has_gone = ending.link.has_left || ending.link.is_broken();
    let excused = ending.excuse.is_some() || has_gone || client.never_reads();
    if whole || excused { Ok(()) } else { Err("the echo is incomplete".into()) }
}

/// Whether `received` is whole frames of `wanted`, and then as much of `drain_close` as came.
fn ends_with(received: &[u8], wanted: &[u8], drain_close: &[u8]) -> bool {
    let mut at = 0;
    loop {
        let Some(behind) = received.get(at..) else { return false };
        if received[..at] == wanted[..at] && !behind.is_empty() && drain_close.starts_with(behind) {
            return true;
        }
        let Some(len) = frame_len(&wanted[at..]) else { return false };
        at += len;
    }
}

/// The length of the frame that `bytes` begin with, which is a server's: without a mask (RFC 6455 §5.2).
fn frame_len(bytes: &[u8]) -> Option<usize> {
    let be = |bytes: &[u8]| bytes.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
    let header = *bytes.get(1)?;
    Some(match header & 0x7f {
        126 => 4 + be(bytes.get(2..4)?),
        127 => 10 + be(bytes.get(2..10)?),
        len => 2 + usize::from(len),
    })
}
