//! Changes applied by other processes, for an instance that serves reads.
//!
//! The server sends a notification for each new version; the feed also checks every [`LOOK`], because a notification
//! can be lost with its connection. All changes after a version are read in one snapshot. Versions are in the order of
//! commits ([`super::apply`]), so the rows of later versions in a snapshot are exactly the new ones.
//!
//! A restore from a backup lowers the version, and new commands may then raise it past the last known version. So a
//! version is remembered together with one of its commands: if that command is no longer in the store, or the version
//! is lower, the history has changed. The first instance to notice gives the store a new timeline; all others see it.

use std::time::Duration;

use highwater::logging::rate_limited;
use tokio_postgres::{Client, Config, Row};
use uuid::Uuid;

use super::link::{Failure, Link, Session, Timeouts};
use super::statements::{self, LISTEN, Statements};
use crate::feed::{Feed, News};
use crate::health::Part;
use crate::store::{Changes, Loaded, Revision, StoreError};
use crate::todo::now_us;

/// How long a notification that was lost can delay what is new: with the time to read it, well below the 100 ms
/// within which every instance shows what was applied.
const LOOK: Duration = Duration::from_millis(40);

/// For a feed, an answer that takes long is no answer: readers would rather know that they may be behind.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(1), operation: Duration::from_secs(10) };

/// If more todos than these have changed since the last look, the newest ones are read instead.
const CHANGES_MAX: i64 = 10_000;

/// What others have applied to a Postgres store.
#[derive(Debug)]
pub struct PostgresFeed {
    link: Link,
    /// What was said last.
    said: Option<State>,
    /// Somebody has seen this revision of the store.
    seen: Revision,
    part: Part,
    /// How much memory the todos that are read at first may take.
    bytes_max: usize,
    /// Whether the newest todos are to be read again.
    again: bool,
}

/// Where the store is in its history.
#[derive(Clone, Copy, Debug)]
struct State {
    revision: Revision,
    /// A command of that version, which tells it from the same version of another history.
    stamp: Option<Uuid>,
    /// What was deleted up to this version is not known any more.
    horizon: u64,
}

impl PostgresFeed {
    /// A feed that says first what is newest, as much as takes `bytes_max` in memory. It connects when it is asked.
    ///
    /// # Errors
    ///
    /// If there can be no runtime for it.
    pub fn new(config: &Config, bytes_max: usize) -> Result<PostgresFeed, StoreError> {
        let link = Link::new(config, TIMEOUTS, Some(LISTEN))?;
        let (seen, part) = (Revision::default(), Part::new("store"));
        Ok(PostgresFeed { link, said: None, seen, part, bytes_max, again: false })
    }
}

impl Feed for PostgresFeed {
    fn next(&mut self, wait: Duration) -> Result<News, StoreError> {
        if self.said.is_some() {
            self.link.wait(wait.min(LOOK));
        }
        let (said, seen) = (self.said, self.seen);
        let (bytes_max, again) = (self.bytes_max, self.again);
        let read = self.link.run(async |session| read(session, said, seen, bytes_max, again).await);
        let (news, state) = read?;
        self.again &= !matches!(news, News::Everything(_));
        self.said = Some(state);
        self.seen = state.revision;
        Ok(news)
    }

    fn was_seen(&mut self, revision: Revision) {
        self.seen = self.seen.max(revision);
    }

    fn again(&mut self) {
        self.again = true;
    }

    fn part(&self) -> Part {
        self.part.clone()
    }
}

/// What is new since `said`, and where the store is now. The store has been at `seen`.
async fn read(
    session: &mut Session,
    said: Option<State>,
    seen: Revision,
    bytes_max: usize,
    again: bool,
) -> Result<(News, State), Failure> {
    let Session { client, statements } = session;
    let now = state(&client.query_one(&statements.state, &[]).await?)?;
    if let Some(said) = said
        && !again
        && (now.revision, now.stamp) == (said.revision, said.stamp)
        && now.revision >= seen
    {
        return Ok((News::Nothing, now));
    }
    if is_restored(client, statements, now, said, seen).await? {
        let timeline = new_timeline(now.revision.timeline.max(seen.timeline));
        let before = i64::try_from(now.revision.timeline).unwrap_or(i64::MAX);
        // Where another instance was quicker, this changes nothing.
        let diverged = client.execute(&statements.diverge, &[&before, &timeline]).await?;
        rate_limited!(
            WARN,
            known = ?seen,
            restored = ?now.revision,
            diverged,
            "the store was restored to an earlier state; everything is read again"
        );
    }
    let transaction = statements::snapshot(client).await?;
    let row = transaction.query_one(&statements.state, &[]).await?;
    let (now, count) = (state(&row)?, statements::count(row.try_get(4)?)?);
    let version = now.revision.version;
    // On another timeline nothing that is known holds.
    let known = said.map(|said| said.revision).filter(|known| {
        // What is to be read again is read when nothing has changed: outcomes are told first.
        let is_quiet = again && known.version == version;
        known.timeline == now.revision.timeline
            && (now.horizon..=version).contains(&known.version)
            && !is_quiet
    });
    let everything = async || -> Result<News, Failure> {
        let todos = statements::newest(&transaction, statements, usize::MAX, bytes_max).await?;
        Ok(News::Everything(Loaded { revision: now.revision, count, todos }))
    };
    let news = match known.map(|known| i64::try_from(known.version)) {
        Some(Ok(known)) => {
            let changed = &statements.changed;
            let changed = transaction.query(changed, &[&known, &(CHANGES_MAX + 1)]).await?;
            let gone = transaction.query(&statements.gone, &[&known]).await?;
            let outcomes = transaction.query(&statements.outcomes, &[&known]).await?;
            let commands = outcomes.iter().map(statements::outcome).collect::<Result<_, _>>()?;
            let todos = statements::changes(&changed, &gone)?;
            match i64::try_from(changed.len()) {
                Ok(..=CHANGES_MAX) => {
                    News::Changes(Changes { revision: now.revision, count, todos, commands })
                }
                _ => everything().await?,
            }
        }
        _ => everything().await?,
    };
    transaction.commit().await?;
    Ok((news, now))
}

/// Whether the store's history is not the one that `said` and `seen` belong to, and nobody has given it a timeline of
/// its own yet.
async fn is_restored(
    client: &Client,
    statements: &Statements,
    now: State,
    said: Option<State>,
    seen: Revision,
) -> Result<bool, Failure> {
    if now.revision < seen {
        return Ok(true);
    }
    let Some(State { revision: known, stamp: Some(stamp), .. }) = said else { return Ok(false) };
    if known.timeline != now.revision.timeline {
        return Ok(false);
    }
    // As many versions, or more, but not ours among them.
    let version = i64::try_from(known.version).unwrap_or(i64::MAX);
    let is_past = client.query_one(&statements.is_past, &[&stamp, &version]).await?;
    Ok(!is_past.try_get::<_, bool>(0)?)
}

/// Later than `timeline`, whatever the clock says.
fn new_timeline(timeline: u64) -> i64 {
    let next = i64::try_from(timeline).unwrap_or(i64::MAX).saturating_add(1);
    now_us().max(next)
}

fn state(row: &Row) -> Result<State, Failure> {
    let revision = statements::revision(row.try_get(0)?, row.try_get(1)?)?;
    let horizon = statements::revision(row.try_get(3)?, 0)?.version;
    Ok(State { revision, stamp: row.try_get(2)?, horizon })
}
