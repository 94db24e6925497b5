//! A resource: five routes, pages, and changes that do not overwrite each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use garde::Validate;
use highwater::resource::{Expected, Listing, Page, Resource, resource};
use highwater::{Error, Json, Router, State, Valid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many books there are at most; beyond it 409. They are kept in memory.
const BOOKS_MAX: usize = 10_000;

/// `/books` and `/books/{id}`.
pub(crate) fn routes() -> Router {
    Router::new()
        .state(Arc::new(Shelf::default()))
        .resource("/books", resource(Books).described("book", "books"))
}

struct Books;

#[derive(Clone, Deserialize, Serialize, JsonSchema, Validate)]
struct NewBook {
    #[garde(length(chars, min = 1, max = 200))]
    title: String,
    #[garde(length(chars, min = 1, max = 200))]
    author: String,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Book {
    id: u64,
    #[serde(flatten)]
    book: NewBook,
    /// The state that it is in: of all changes, so that none comes back.
    #[serde(skip)]
    version: u64,
}

#[derive(Default)]
struct Shelf(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    books: BTreeMap<u64, Book>,
    last_id: u64,
    last_version: u64,
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn put(&mut self, id: u64, book: NewBook) -> Book {
        self.last_version += 1;
        let book = Book { id, book, version: self.last_version };
        self.books.insert(id, book.clone());
        book
    }
}

impl Resource for Books {
    type Context = State<Arc<Shelf>>;
    type Id = u64;
    type Input = Valid<Json<NewBook>>;
    type Item = Book;

    fn list(&self, State(shelf): Self::Context, page: Page) -> Result<Listing<Book>, Error> {
        let inner = shelf.lock();
        let items = inner.books.values().skip(page.offset_usize()).take(page.limit());
        Ok(Listing::new(items.cloned().collect()).total(inner.books.len()))
    }

    fn create(
        &self,
        State(shelf): Self::Context,
        Valid(Json(book)): Self::Input,
    ) -> Result<(u64, Book), Error> {
        let mut inner = shelf.lock();
        if inner.books.len() == BOOKS_MAX {
            return Err(Error::conflict(format!(
                "there are {BOOKS_MAX} books, and there may be no more"
            )));
        }
        inner.last_id += 1;
        let id = inner.last_id;
        Ok((id, inner.put(id, book)))
    }

    fn show(&self, State(shelf): Self::Context, id: u64) -> Result<Option<Book>, Error> {
        Ok(shelf.lock().books.get(&id).cloned())
    }

    fn replace(
        &self,
        State(shelf): Self::Context,
        id: u64,
        Valid(Json(book)): Self::Input,
        expected: &Expected<Book>,
    ) -> Result<Book, Error> {
        let mut inner = shelf.lock();
        expected.check(inner.books.get(&id))?;
        Ok(inner.put(id, book))
    }

    fn delete(
        &self,
        State(shelf): Self::Context,
        id: u64,
        expected: &Expected<Book>,
    ) -> Result<(), Error> {
        let mut inner = shelf.lock();
        expected.check(inner.books.get(&id))?;
        inner.books.remove(&id);
        Ok(())
    }

    fn version(book: &Book) -> String {
        book.version.to_string()
    }
}
