//! A service over Postgres: each worker has a connection of its own, and connects again when it is lost.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::rc::Rc;

use highwater::{Error, Json, Path, PerWorker, Router, StatusCode, WorkerLocal};
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, NoTls};

/// docs/databases.md, whose programs are compiled here.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/databases.md")]
struct Databases;

const SCHEMA: &str =
    "CREATE TABLE IF NOT EXISTS articles (id BIGSERIAL PRIMARY KEY, title TEXT NOT NULL)";

/// The connection of one worker. Postgres answers its queries in order, so they may overlap.
struct Database {
    url: String,
    client: RefCell<Option<Rc<Client>>>,
}

impl Database {
    /// # Errors
    /// Postgres cannot be reached, or refuses.
    async fn open(url: String) -> Result<Database, tokio_postgres::Error> {
        let database = Database { url, client: RefCell::default() };
        database.client().await?;
        Ok(database)
    }

    /// The connection, replaced if it was lost.
    async fn client(&self) -> Result<Rc<Client>, tokio_postgres::Error> {
        let known = self.client.borrow().clone().filter(|client| !client.is_closed());
        if let Some(client) = known {
            return Ok(client);
        }
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        // Runs on this worker, beside its handlers. Its error reaches whoever waits for an answer.
        tokio::task::spawn_local(async move { drop(connection.await) });
        let client = Rc::new(client);
        // Two handlers may connect at once; the later one's connection is kept.
        self.client.replace(Some(client.clone()));
        Ok(client)
    }
}

/// An article as clients see it.
#[derive(Serialize)]
struct Article {
    id: i64,
    title: String,
}

/// An article as clients send it.
#[derive(Deserialize)]
struct NewArticle {
    title: String,
}

async fn create(
    database: WorkerLocal<Database>,
    Json(new): Json<NewArticle>,
) -> Result<(StatusCode, Json<Article>), Error> {
    let client = database.client().await.map_err(Error::internal)?;
    let sql = "INSERT INTO articles (title) VALUES ($1) RETURNING id";
    let row = client.query_one(sql, &[&new.title]).await.map_err(Error::internal)?;
    Ok((StatusCode::CREATED, Json(Article { id: row.get(0), title: new.title })))
}

async fn show(
    database: WorkerLocal<Database>,
    Path(id): Path<i64>,
) -> Result<Json<Article>, Error> {
    let client = database.client().await.map_err(Error::internal)?;
    let sql = "SELECT title FROM articles WHERE id = $1";
    let row = client.query_opt(sql, &[&id]).await.map_err(Error::internal)?;
    let row = row.ok_or_else(|| Error::not_found(format!("there is no article {id}")))?;
    Ok(Json(Article { id, title: row.get(0) }))
}

/// Makes the table if it is missing; called once, before workers connect.
///
/// # Errors
/// Postgres cannot be reached, or refuses.
pub async fn prepare(url: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let connection = tokio::spawn(connection);
    client.batch_execute(SCHEMA).await?;
    drop(client);
    drop(connection.await);
    Ok(())
}

/// The application, over the Postgres at `url`.
pub fn router(url: String) -> Router {
    let database = PerWorker::with_future(move |_worker| Database::open(url.clone()));
    Router::new().per_worker(database).post("/articles", create).get("/articles/{id}", show)
}
