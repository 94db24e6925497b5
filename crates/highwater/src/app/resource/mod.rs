//! CRUD in one trait: five routes for a list and its items.
//!
//! A [`Resource`] defines its items and how to store them; [`Router::resource`](crate::Router::resource) adds the routes, with
//! paging, entity tags, conditional requests and a status for each outcome.
//!
//! | request | method | is answered |
//! |---|---|---|
//! | `GET /books?page=2&per_page=50` | [`list`](Resource::list) | 200 `{"items":[…],"page":2,"per_page":50,"total":120}`, with [`Link`](https://www.rfc-editor.org/rfc/rfc8288) to the neighbouring pages; 304; 422 for an invalid page |
//! | `POST /books` | [`create`](Resource::create) | 201 with the item, `Location` and `ETag` |
//! | `GET /books/{id}` | [`show`](Resource::show) | 200 with the item and `ETag`; 304 to a client that has it (`If-None-Match`); 404 |
//! | `PUT /books/{id}` | [`replace`](Resource::replace) | 200 with the item and `ETag`; 404; 412 if `If-Match` names another state |
//! | `DELETE /books/{id}` | [`delete`](Resource::delete) | 204; 404; 412 |
//!
//! Other methods are answered 405 with `Allow`, `HEAD` like `GET`, and an invalid id 400.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//!
//! use highwater::resource::{Expected, Listing, Page, Resource};
//! use highwater::testing::Client;
//! use highwater::{Error, Json, Router, State};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Clone, Deserialize, Serialize)]
//! struct Book { title: String }
//!
//! #[derive(Default)]
//! struct Kept { by_id: BTreeMap<u64, Book>, last_id: u64 }
//!
//! type Shelf = Arc<Mutex<Kept>>;
//!
//! struct Books;
//!
//! impl Resource for Books {
//!     type Context = State<Shelf>; // Any extractor: state, who is asking, a query.
//!     type Id = u64;
//!     type Input = Json<Book>; // Or `Valid<Json<Book>>`, whose rules are checked.
//!     type Item = Book;
//!
//!     fn list(&self, State(shelf): State<Shelf>, page: Page) -> Result<Listing<Book>, Error> {
//!         let shelf = &shelf.lock().unwrap().by_id;
//!         let items = shelf.values().skip(page.offset_usize()).take(page.limit()).cloned().collect();
//!         Ok(Listing::new(items).total(shelf.len()))
//!     }
//!
//!     fn create(&self, State(shelf): State<Shelf>, Json(book): Json<Book>) -> Result<(u64, Book), Error> {
//!         let mut shelf = shelf.lock().unwrap();
//!         shelf.last_id += 1; // No id is given twice, even after a deletion.
//!         let id = shelf.last_id;
//!         shelf.by_id.insert(id, book.clone());
//!         Ok((id, book))
//!     }
//!
//!     fn show(&self, State(shelf): State<Shelf>, id: u64) -> Result<Option<Book>, Error> {
//!         Ok(shelf.lock().unwrap().by_id.get(&id).cloned())
//!     }
//!
//!     fn replace(
//!         &self,
//!         State(shelf): State<Shelf>,
//!         id: u64,
//!         Json(book): Json<Book>,
//!         expected: &Expected<Book>,
//!     ) -> Result<Book, Error> {
//!         let shelf = &mut shelf.lock().unwrap().by_id;
//!         expected.check(shelf.get(&id))?; // Under the lock: nobody changes it in between.
//!         shelf.insert(id, book.clone());
//!         Ok(book)
//!     }
//!
//!     fn delete(&self, State(shelf): State<Shelf>, id: u64, expected: &Expected<Book>) -> Result<(), Error> {
//!         let shelf = &mut shelf.lock().unwrap().by_id;
//!         expected.check(shelf.get(&id))?;
//!         shelf.remove(&id);
//!         Ok(())
//!     }
//! }
//!
//! let client = Client::new(Router::new().state(Shelf::default()).resource("/books", Books));
//! let created = client.post_json("/books", &Book { title: "Emma".into() });
//! assert_eq!(created.status, 201);
//! assert_eq!(created.header("location"), Some("/books/1"));
//! client.set_header("if-none-match", created.header("etag").unwrap());
//! assert_eq!(client.get("/books/1").status, 304);
//! ```
//!
//! A [`ResourceAsync`] has the same methods as `async fn`s; [`resource(…).blocking()`](Collection::blocking) runs those of a
//! [`Resource`] on the pool. Otherwise they run on the worker, at once, and must not wait.

mod condition;
#[cfg(feature = "openapi")]
mod described;
#[cfg(feature = "openapi")]
mod documents;
mod handlers;
mod id;
mod page;
mod routes;
mod settings;

use std::future::Future;

use serde_core::Serialize;

use super::error::Error;
use super::extract::FromRequest;

pub use condition::Expected;
pub use id::Id;
pub use page::{Listing, Page};
pub use routes::{Collection, IntoCollection, resource};

/// The number of items on a page, unless the request or the resource sets another one.
pub const PER_PAGE: u32 = 20;

/// The largest page that a request may ask for, unless the resource sets another one; a larger page is answered 422.
pub const PER_PAGE_MAX: u32 = 100;

macro_rules! resource {
    ($(#[$doc:meta])* $name:ident, $answer:ident, $id:path) => {
        $(#[$doc])*
        pub trait $name: Send + Sync + 'static {
            /// What the methods need besides ids and content: an extractor, such as [`State`](crate::State), or a tuple of up to
            /// four: `(State<Pool>, Claims<User>)`. `()` for nothing.
            type Context: FromRequest + 'static;
            /// The id of an item: the last segment of its path.
            type Id: $id;
            /// The content of `POST` and `PUT`: an extractor, such as `Json<NewBook>` or `Valid<Json<NewBook>>`.
            type Input: FromRequest + 'static;
            /// What clients get, as JSON.
            type Item: Serialize + 'static;

            /// The items of a page, at most [`page.limit()`](Page::limit) of them: returning more is a bug, answered 500.
            fn list(&self, context: Self::Context, page: Page) -> $answer!(Listing<Self::Item>);

            /// Stores a new item, and returns it with its id.
            fn create(
                &self,
                context: Self::Context,
                input: Self::Input,
            ) -> $answer!((Self::Id, Self::Item));

            /// One item; `None` is answered 404.
            fn show(&self, context: Self::Context, id: Self::Id) -> $answer!(Option<Self::Item>);

            /// Replaces an item, if it exists and the client's `If-Match` allows it: call
            /// [`expected.check`](Expected::check) with the stored item, in the transaction that replaces it.
            fn replace(
                &self,
                context: Self::Context,
                id: Self::Id,
                input: Self::Input,
                expected: &Expected<Self::Item>,
            ) -> $answer!(Self::Item);

            /// Deletes an item, after the same check.
            fn delete(
                &self,
                context: Self::Context,
                id: Self::Id,
                expected: &Expected<Self::Item>,
            ) -> $answer!(());

            /// Identifies the state of an item, for `ETag`: for example by a number that each change increases. The default is a
            /// hash of the item as clients see it, which serializes it once more.
            fn version(item: &Self::Item) -> String {
                condition::version_of_content(item)
            }
        }
    };
}

macro_rules! at_once {
    ($answer:ty) => { Result<$answer, Error> };
}

macro_rules! later {
    ($answer:ty) => { impl Future<Output = Result<$answer, Error>> };
}

resource! {
    /// Items and their storage: see [the module](self).
    Resource, at_once, Id
}

resource! {
    /// A [`Resource`] whose methods wait: the same, with `async fn`s. Their futures stay on the worker, and need not be `Send`.
    ///
    /// ```
    /// use highwater::resource::{Expected, Listing, Page, ResourceAsync};
    /// use highwater::{Error, Json, Router, State};
    /// # #[derive(Clone)] struct Database;
    /// # impl Database {
    /// #     async fn page(&self, _: u64, _: usize) -> Vec<String> { vec![] }
    /// #     async fn insert(&self, name: String) -> (u64, String) { (1, name) }
    /// #     async fn find(&self, _: u64) -> Option<String> { None }
    /// # }
    ///
    /// struct Names;
    ///
    /// impl ResourceAsync for Names {
    ///     type Context = State<Database>;
    ///     type Id = u64;
    ///     type Input = Json<String>;
    ///     type Item = String;
    ///
    ///     async fn list(&self, State(db): State<Database>, page: Page) -> Result<Listing<String>, Error> {
    ///         Ok(Listing::new(db.page(page.offset(), page.limit()).await))
    ///     }
    ///
    ///     async fn create(&self, State(db): State<Database>, Json(name): Json<String>) -> Result<(u64, String), Error> {
    ///         Ok(db.insert(name).await)
    ///     }
    ///
    ///     async fn show(&self, State(db): State<Database>, id: u64) -> Result<Option<String>, Error> {
    ///         Ok(db.find(id).await)
    ///     }
    ///
    ///     // In a database: within one transaction, `SELECT … FOR UPDATE`, `check`, `UPDATE`.
    ///     async fn replace(
    ///         &self,
    ///         State(db): State<Database>,
    ///         id: u64,
    ///         Json(name): Json<String>,
    ///         expected: &Expected<String>,
    ///     ) -> Result<String, Error> {
    ///         expected.check(db.find(id).await.as_ref())?;
    ///         Ok(name)
    ///     }
    ///
    ///     async fn delete(&self, State(db): State<Database>, id: u64, expected: &Expected<String>) -> Result<(), Error> {
    ///         expected.check(db.find(id).await.as_ref())
    ///     }
    /// }
    ///
    /// let app = Router::new().state(Database).resource("/names", Names);
    /// # app.build().unwrap();
    /// ```
    ResourceAsync, later, Id
}

/// Nothing: for a [`Resource`] that needs nothing of a request.
impl FromRequest for () {
    fn from_request(_: &super::request::Request<'_>) -> Result<Self, Error> {
        Ok(())
    }
}
