//! Changes applied by other processes, for an instance that serves reads.
//!
//! The server sends a notification for each new version; the feed also checks every [`LOOK`], because a notification
//! can be lost with its connection. All changes after a version are read in one snapshot. Versions are in the order of
//! commits ([`super::apply`]), so the rows of later versions in a snapshot are exactly the new ones.
//!
//! [`history`](crate::store::history) decides what has to be read, and whether the store was restored.

use std::time::{Duration, Instant};

use highwater::logging::rate_limited;
use tokio::try_join;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, GenericClient, Row, Transaction};
use uuid::Uuid;

use super::link::{Failure, Link, Session, Timeouts};
use super::statements::{self, LISTEN, Statements};
use crate::feed::{Feed, News};
use crate::health::Part;
use crate::store::history::{Doubt, Follower, State};
use crate::store::{Change, Changes, Loaded, Outcome, Revision, StoreError};
use crate::todo::now_us;

/// How long a notification that was lost can delay what is new: with the time to read it, well below the 100 ms
/// within which every instance shows what was applied.
const LOOK: Duration = Duration::from_millis(40);

/// How often the tables that readers need are read although nothing is new, so that a right that was taken away is noticed.
const TRY: Duration = Duration::from_secs(1);

/// For a feed, an answer that takes long is no answer: readers would rather know that they may be behind.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(1), operation: Duration::from_secs(10) };

/// If there are more versions, todos, or commands than these since the last look, the newest todos are read instead.
const CHANGES_MAX: i64 = 10_000;

/// What others have applied to a Postgres store.
#[derive(Debug)]
pub struct PostgresFeed {
    link: Link,
    follower: Follower,
    part: Part,
    /// When everything that readers need was read last; `None` after it could not be.
    tried: Option<Instant>,
    /// How much memory the todos that are read at first may take.
    bytes_max: usize,
}

impl PostgresFeed {
    /// A feed that says first what is newest, as much as takes `bytes_max` in memory. It connects when it is asked.
    ///
    /// # Errors
    ///
    /// If there can be no runtime for it.
    pub fn new(config: &Config, bytes_max: usize) -> Result<PostgresFeed, StoreError> {
        let link = Link::new(config, TIMEOUTS, Some(LISTEN))?;
        Ok(PostgresFeed {
            link,
            follower: Follower::default(),
            part: Part::new("store"),
            tried: None,
            bytes_max,
        })
    }
}

impl Feed for PostgresFeed {
    fn next(&mut self, wait: Duration) -> Result<News, StoreError> {
        if self.follower.reported.is_some() {
            self.link.wait(wait.min(LOOK));
        }
        let (follower, bytes_max) = (self.follower, self.bytes_max);
        let tries = self.tried.is_none_or(|tried| tried.elapsed() >= TRY);
        let read = self.link.run(async |session| {
            let read = read(session, &follower, bytes_max).await?;
            if tries && matches!(read, (News::Nothing, _)) {
                // No version is as high, so this reads no row.
                difference(&session.client, &session.statements, u64::MAX).await?;
            }
            Ok(read)
        });
        if tries {
            self.tried = read.is_ok().then(Instant::now);
        }
        let (news, state) = read?;
        self.follower.note_reported(state, matches!(news, News::Everything(_)));
        Ok(news)
    }

    fn was_seen(&mut self, revision: Revision) {
        self.follower.was_seen(revision);
    }

    fn again(&mut self) {
        self.follower.again = true;
    }

    fn part(&self) -> Part {
        self.part.clone()
    }
}

/// What is new to `follower`, and where the store is now.
async fn read(
    session: &mut Session,
    follower: &Follower,
    bytes_max: usize,
) -> Result<(News, State), Failure> {
    let Session { client, statements } = session;
    let now = state(&client.query_one(&statements.state, &[]).await?)?;
    if !follower.is_news(&now) {
        return Ok((News::Nothing, now));
    }
    loop {
        let transaction = statements::snapshot(client).await?;
        let row = transaction.query_one(&statements.state, &[]).await?;
        let (now, count) = (state(&row)?, statements::count(row.try_get(2)?)?);
        // In the same snapshot: a restore in between would go unnoticed for good.
        if !is_restored(&transaction, statements, follower.doubt(&now)).await? {
            let news = news(&transaction, statements, follower, &now, count, bytes_max).await?;
            transaction.commit().await?;
            return Ok((news, now));
        }
        transaction.commit().await?;
        let before = i64::try_from(now.revision.timeline).unwrap_or(i64::MAX);
        let timeline = i64::try_from(follower.new_timeline(&now, now_us())).unwrap_or(i64::MAX);
        // Where another instance was quicker, this changes nothing.
        let diverged = client.execute(&statements.diverge, &[&before, &timeline]).await?;
        rate_limited!(
            WARN,
            known = ?follower.seen,
            restored = ?now.revision,
            diverged,
            "the store was restored to an earlier state; everything is read again"
        );
    }
}

/// What is new to `follower` in a store that is at `now`, in one snapshot.
async fn news(
    transaction: &Transaction<'_>,
    statements: &Statements,
    follower: &Follower,
    now: &State,
    count: u64,
    bytes_max: usize,
) -> Result<News, Failure> {
    let difference = match follower.known(now) {
        Some(known) => difference(transaction, statements, known).await?,
        None => None,
    };
    let revision = now.revision;
    Ok(match difference {
        Some((todos, commands)) => News::Changes(Changes { revision, count, todos, commands }),
        None => {
            let todos = statements::newest(transaction, statements, usize::MAX, bytes_max).await?;
            News::Everything(Loaded { revision, count, todos })
        }
    })
}

/// What the versions after `known` changed, and the outcomes of their commands. `None`: it is more than is worth reading.
async fn difference(
    client: &impl GenericClient,
    statements: &Statements,
    known: u64,
) -> Result<Option<(Vec<Change>, Vec<(Uuid, Outcome)>)>, Failure> {
    let known = i64::try_from(known).unwrap_or(i64::MAX);
    let is_too_much = |rows: &[Row]| rows.len() as i64 > CHANGES_MAX;
    let limit = CHANGES_MAX + 1;
    let versions = client.query(&statements.versions, &[&known, &limit]).await?;
    if is_too_much(&versions) {
        return Ok(None);
    }
    let batches = versions.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
    let values: [&(dyn ToSql + Sync); 2] = [&batches, &limit];
    let (changed, gone, outcomes) = try_join!(
        biased;
        client.query(&statements.changed, &values),
        client.query(&statements.gone, &values),
        client.query(&statements.outcomes, &values),
    )?;
    if [&changed, &gone, &outcomes].into_iter().any(|rows| is_too_much(rows)) {
        return Ok(None);
    }
    let commands = outcomes.iter().map(statements::outcome).collect::<Result<_, _>>()?;
    Ok(Some((statements::changes(&changed, &gone)?, commands)))
}

async fn is_restored(
    transaction: &Transaction<'_>,
    statements: &Statements,
    doubt: Doubt,
) -> Result<bool, Failure> {
    match doubt {
        Doubt::None => Ok(false),
        Doubt::Restored => Ok(true),
        Doubt::Past(version, stamp) => {
            let version = i64::try_from(version).unwrap_or(i64::MAX);
            let is_past = transaction.query_one(&statements.is_past, &[&version, &stamp]).await?;
            Ok(!is_past.try_get::<_, bool>(0)?)
        }
    }
}

fn state(row: &Row) -> Result<State, Failure> {
    let revision = statements::revision(row.try_get(0)?, row.try_get(1)?)?;
    let horizon = statements::revision(row.try_get(4)?, 0)?.version;
    Ok(State { revision, stamp: row.try_get(3)?, horizon })
}
