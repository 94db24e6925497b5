//! A resource: five routes, pages, and changes that do not overwrite each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use garde::Validate;
use highwater::layers::etag;
use highwater::openapi::{DescribeOutput, Operation, api};
use highwater::{
    Created, Error, IntoResponse, Json, NoContent, Path, Preconditions, Query, Response, Router,
    State, StatusCode, Valid,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many books a page has, unless it is said, and at most.
const PER_PAGE: u32 = 20;
const PER_PAGE_MAX: u32 = 100;

/// How many books there are at most; beyond it 409. They are kept in memory.
const BOOKS_MAX: usize = 10_000;

/// The five routes of a resource.
pub(crate) fn routes() -> Router {
    Router::new()
        .state(Arc::new(Shelf::default()))
        .layer(etag())
        .get("/books", api(list).operation_id("list_books").summary("A page of books").tag("books"))
        .post("/books", api(create).operation_id("create_book").summary("A new book").tag("books"))
        .get("/books/{id}", api(show).operation_id("show_book").summary("One book").tag("books"))
        .put(
            "/books/{id}",
            api(replace).operation_id("replace_book").summary("Replaces a book").tag("books"),
        )
        .delete(
            "/books/{id}",
            api(remove).operation_id("remove_book").summary("Removes a book").tag("books"),
        )
}

type Books = State<Arc<Shelf>>;

#[derive(Clone, Deserialize, Serialize, JsonSchema, Validate)]
struct NewBook {
    #[garde(length(min = 1, max = 200))]
    title: String,
    #[garde(length(min = 1, max = 200))]
    author: String,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Book {
    id: u64,
    #[serde(flatten)]
    book: NewBook,
}

/// A book and its state, which `ETag` names.
struct Stored {
    book: Book,
    version: u64,
}

#[derive(Default)]
struct Shelf(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    books: BTreeMap<u64, Stored>,
    last_id: u64,
    /// Of all changes: no state comes back.
    last_version: u64,
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn put(&mut self, id: u64, book: NewBook) -> Tagged {
        self.last_version += 1;
        let stored = Stored { book: Book { id, book }, version: self.last_version };
        let tagged = Tagged::of(&stored);
        self.books.insert(id, stored);
        tagged
    }

    fn tag(&self, id: u64) -> Option<String> {
        self.books.get(&id).map(|stored| tag(stored.version))
    }
}

fn tag(version: u64) -> String {
    format!("\"{version}\"")
}

/// A book with its `ETag`.
struct Tagged {
    book: Book,
    tag: String,
}

impl Tagged {
    fn of(stored: &Stored) -> Self {
        Tagged { book: stored.book.clone(), tag: tag(stored.version) }
    }
}

impl IntoResponse for Tagged {
    fn into_response(self) -> Response {
        ([("etag", self.tag)], Json(self.book)).into_response()
    }
}

impl DescribeOutput for Tagged {
    fn describe(operation: &mut Operation<'_>) {
        Json::<Book>::describe(operation);
        operation.answer_header("ETag", "The state of the book, for `If-Match`.");
    }
}

#[derive(Deserialize, JsonSchema, Validate)]
struct PageQuery {
    /// From 1.
    #[garde(range(min = 1))]
    #[serde(default = "first")]
    page: u32,
    #[garde(range(min = 1, max = PER_PAGE_MAX))]
    #[serde(default = "per_page")]
    per_page: u32,
}

fn first() -> u32 {
    1
}

fn per_page() -> u32 {
    PER_PAGE
}

#[derive(Serialize, JsonSchema)]
struct Page {
    items: Vec<Book>,
    page: u32,
    per_page: u32,
    /// Of all pages.
    total: usize,
}

fn list(
    State(shelf): Books,
    Valid(Query(PageQuery { page, per_page })): Valid<Query<PageQuery>>,
) -> Json<Page> {
    let inner = shelf.lock();
    let before = (u64::from(page) - 1) * u64::from(per_page);
    let before = usize::try_from(before).unwrap_or(usize::MAX);
    let items = inner.books.values().skip(before).take(per_page as usize);
    let items = items.map(|stored| stored.book.clone()).collect();
    Json(Page { items, page, per_page, total: inner.books.len() })
}

/// An answer with a `Location`.
type Located<T> = ([(&'static str, String); 1], T);

fn create(
    State(shelf): Books,
    Valid(Json(book)): Valid<Json<NewBook>>,
) -> Result<Located<Created<Tagged>>, Error> {
    let mut inner = shelf.lock();
    if inner.books.len() == BOOKS_MAX {
        return Err(Error::conflict(format!(
            "there are {BOOKS_MAX} books, and there may be no more"
        )));
    }
    inner.last_id += 1;
    let id = inner.last_id;
    let tagged = inner.put(id, book);
    Ok(([("location", format!("/books/{id}"))], Created(tagged)))
}

fn show(State(shelf): Books, Path(id): Path<u64>) -> Option<Tagged> {
    shelf.lock().books.get(&id).map(Tagged::of)
}

fn replace(
    State(shelf): Books,
    Path(id): Path<u64>,
    conditions: Preconditions,
    Valid(Json(book)): Valid<Json<NewBook>>,
) -> Result<Tagged, Error> {
    let mut inner = shelf.lock();
    let tag = inner.tag(id);
    conditions.check(tag.as_deref())?;
    match tag {
        Some(_) => Ok(inner.put(id, book)),
        None => Err(unknown(id)),
    }
}

fn remove(
    State(shelf): Books,
    Path(id): Path<u64>,
    conditions: Preconditions,
) -> Result<NoContent, Error> {
    let mut inner = shelf.lock();
    conditions.check(inner.tag(id).as_deref())?;
    inner.books.remove(&id).map(|_| NoContent).ok_or_else(|| unknown(id))
}

fn unknown(id: u64) -> Error {
    Error::new(StatusCode::NOT_FOUND, "not_found", format!("there is no book {id}"))
}
