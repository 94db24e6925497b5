//! What other processes have applied, for an instance that reads.
//!
//! The server notifies of each new version; besides, the feed looks every [`LOOK`], because a notification can be
//! lost with its connection. Everything behind a version is read in one snapshot. Versions are in the order of
//! commits ([`super::apply`]), so what a snapshot shows beyond a version is exactly what is new.

use std::time::Duration;

use tokio_postgres::{Config, IsolationLevel};

use super::link::{Failure, Link, Session, Timeouts};
use super::statements::{self, LISTEN};
use crate::feed::{Feed, News};
use crate::health::Part;
use crate::store::{Changes, Loaded, StoreError};

/// How long a notification that was lost can delay what is new: with the time to read it, well below the 100 ms
/// within which every instance shows what was applied.
const LOOK: Duration = Duration::from_millis(40);

/// For a feed, an answer that takes long is no answer: readers would rather know that they may be behind.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(1), operation: Duration::from_secs(10) };

/// What others have applied to a Postgres store.
#[derive(Debug)]
pub struct PostgresFeed {
    link: Link,
    /// What was said last.
    version: Option<u64>,
    part: Part,
}

impl PostgresFeed {
    /// A feed that says everything first. It connects when it is asked.
    ///
    /// # Errors
    ///
    /// If there can be no runtime for it.
    pub fn new(config: &Config) -> Result<PostgresFeed, StoreError> {
        let link = Link::new(config, TIMEOUTS, Some(LISTEN))?;
        Ok(PostgresFeed { link, version: None, part: Part::new("store") })
    }
}

impl Feed for PostgresFeed {
    fn next(&mut self, wait: Duration) -> Result<News, StoreError> {
        if self.version.is_some() {
            self.link.wait(wait.min(LOOK));
        }
        let mine = self.version;
        let news = self.link.run(async |session| read(session, mine).await)?;
        match &news {
            News::Nothing => {}
            News::Changes(Changes { version, .. }) | News::Everything(Loaded { version, .. }) => {
                self.version = Some(*version);
            }
        }
        Ok(news)
    }

    fn part(&self) -> Part {
        self.part.clone()
    }
}

/// What is new since `mine`.
async fn read(session: &mut Session, mine: Option<u64>) -> Result<News, Failure> {
    let Session { client, statements } = session;
    if let Some(mine) = mine {
        let row = client.query_one(&statements.state, &[]).await?;
        if statements::version(row.try_get(0)?)? == mine {
            return Ok(News::Nothing);
        }
    }
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let row = transaction.query_one(&statements.state, &[]).await?;
    let version = statements::version(row.try_get(0)?)?;
    let horizon = statements::version(row.try_get(1)?)?;
    // A lower version than before: the database was restored, and nothing that is known holds.
    let known = mine.filter(|mine| (horizon..=version).contains(mine));
    let news = match known.map(i64::try_from) {
        Some(Ok(known)) => {
            let changed = transaction.query(&statements.changed, &[&known]).await?;
            let gone = transaction.query(&statements.gone, &[&known]).await?;
            let outcomes = transaction.query(&statements.outcomes, &[&known]).await?;
            let commands = outcomes.iter().map(statements::outcome).collect::<Result<_, _>>()?;
            let todos = statements::changes(&changed, &gone)?;
            News::Changes(Changes { version, todos, commands })
        }
        _ => {
            let rows = transaction.query(&statements.load, &[]).await?;
            let todos = rows.iter().map(statements::todo).collect::<Result<_, _>>()?;
            News::Everything(Loaded { version, todos })
        }
    };
    transaction.commit().await?;
    Ok(news)
}
