//! Resources: five routes of one trait, whichever way its methods are run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use garde::Validate;
use highwater::openapi::OpenApi;
use highwater::resource::{
    Collection, Expected, IntoCollection, Listing, PER_PAGE, PER_PAGE_MAX, Page, Resource,
    ResourceAsync, resource,
};
use highwater::testing::{Client, Response};
use highwater::{Error, Json, Method, Path, Router, State, Valid};
use highwater_testkit::Document;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Deserialize, Serialize, JsonSchema, Validate)]
struct Book {
    #[garde(length(min = 1, max = 20))]
    title: String,
}

type Shelf = Arc<Mutex<BTreeMap<u32, Book>>>;
type Kept = State<Shelf>;

/// Its methods return at once.
struct Plain;

impl Resource for Plain {
    type Context = Kept;
    type Id = u32;
    type Input = Valid<Json<Book>>;
    type Item = Book;

    fn list(&self, State(shelf): Kept, page: Page) -> Result<Listing<Book>, Error> {
        let shelf = shelf.lock().expect("nobody panics");
        let items = shelf.values().skip(page.offset_usize()).take(page.limit()).cloned().collect();
        Ok(Listing::new(items).total(shelf.len()))
    }

    fn create(&self, State(shelf): Kept, input: Self::Input) -> Result<(u32, Book), Error> {
        let mut shelf = shelf.lock().expect("nobody panics");
        let id = shelf.last_key_value().map_or(1, |(last, _)| last + 1);
        let Valid(Json(book)) = input;
        shelf.insert(id, book.clone());
        Ok((id, book))
    }

    fn show(&self, State(shelf): Kept, id: u32) -> Result<Option<Book>, Error> {
        Ok(shelf.lock().expect("nobody panics").get(&id).cloned())
    }

    fn replace(
        &self,
        State(shelf): Kept,
        id: u32,
        Valid(Json(book)): Self::Input,
        expected: &Expected<Book>,
    ) -> Result<Book, Error> {
        let mut shelf = shelf.lock().expect("nobody panics");
        expected.check(shelf.get(&id))?;
        shelf.insert(id, book.clone());
        Ok(book)
    }

    fn delete(&self, State(shelf): Kept, id: u32, expected: &Expected<Book>) -> Result<(), Error> {
        let mut shelf = shelf.lock().expect("nobody panics");
        expected.check(shelf.get(&id))?;
        shelf.remove(&id);
        Ok(())
    }
}

/// The same, with methods that wait.
struct Waiting;

impl ResourceAsync for Waiting {
    type Context = Kept;
    type Id = u32;
    type Input = Valid<Json<Book>>;
    type Item = Book;

    async fn list(&self, shelf: Kept, page: Page) -> Result<Listing<Book>, Error> {
        tokio::task::yield_now().await;
        Plain.list(shelf, page)
    }

    async fn create(&self, shelf: Kept, input: Self::Input) -> Result<(u32, Book), Error> {
        tokio::task::yield_now().await;
        Plain.create(shelf, input)
    }

    async fn show(&self, shelf: Kept, id: u32) -> Result<Option<Book>, Error> {
        tokio::task::yield_now().await;
        Plain.show(shelf, id)
    }

    async fn replace(
        &self,
        shelf: Kept,
        id: u32,
        input: Self::Input,
        expected: &Expected<Book>,
    ) -> Result<Book, Error> {
        tokio::task::yield_now().await;
        Plain.replace(shelf, id, input, expected)
    }

    async fn delete(&self, shelf: Kept, id: u32, expected: &Expected<Book>) -> Result<(), Error> {
        tokio::task::yield_now().await;
        Plain.delete(shelf, id, expected)
    }
}

fn client<M>(books: impl IntoCollection<M>) -> Client {
    Client::new(Router::new().state(Shelf::default()).resource("/books", books))
}

fn book(title: impl ToString) -> Book {
    Book { title: title.to_string() }
}

/// A request with a header field.
fn with(client: &Client, field: (&str, &str), request: (&str, &str, Option<Book>)) -> Response {
    let (method, target, content) = request;
    let method = Method::from_bytes(method.as_bytes()).expect("it is one");
    let request = client.request(method, target).header(field.0, field.1);
    match content {
        Some(book) => request.json(&book).send(),
        None => request.send(),
    }
}

fn code(response: &Response) -> String {
    response.json::<Value>()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

/// All that a client meets.
fn promises(client: &Client) {
    let created = client.post_json("/books", &book("a"));
    assert_eq!((created.status.as_u16(), created.header("location")), (201, Some("/books/1")));
    assert_eq!(created.json::<Value>(), json!({ "title": "a" }));
    let tag = created.header("etag").expect("it has one").to_owned();
    assert!(tag.starts_with('"'), "it is strong: {tag}");

    let one = client.get("/books/1");
    assert_eq!((one.status.as_u16(), one.header("etag")), (200, Some(&*tag)));
    let again = with(client, ("if-none-match", &tag), ("GET", "/books/1", None));
    assert_eq!((again.status.as_u16(), again.header("etag"), again.text()), (304, Some(&*tag), ""));
    assert_eq!(with(client, ("if-match", "\"x\""), ("GET", "/books/1", None)).status, 412);

    let replace = || ("PUT", "/books/1", Some(book("b")));
    let replaced = with(client, ("if-match", &tag), replace());
    assert_eq!(
        (replaced.status.as_u16(), replaced.json::<Value>()),
        (200, json!({ "title": "b" }))
    );
    let late = with(client, ("if-match", &tag), replace());
    assert_eq!((late.status.as_u16(), code(&late)), (412, "precondition_failed".to_owned()));
    let late = with(client, ("if-match", &tag), ("DELETE", "/books/1", None));
    assert_eq!(late.status.as_u16(), 412);
    assert_eq!(with(client, ("if-none-match", "*"), replace()).status, 412);
    let tag = replaced.header("etag").expect("it has one").to_owned();
    let deleted = with(client, ("if-match", &tag), ("DELETE", "/books/1", None));
    assert_eq!((deleted.status.as_u16(), deleted.text()), (204, ""));

    for gone in
        [client.get("/books/1"), client.delete("/books/1"), client.put_json("/books/1", &book("b"))]
    {
        assert_eq!((gone.status.as_u16(), code(&gone)), (404, "not_found".to_owned()));
    }
    assert_eq!(with(client, ("if-match", "*"), replace()).status, 412, "nothing matches nothing");
    assert_eq!(code(&client.get("/books/first")), "invalid_path");
    assert_eq!(client.post_json("/books", &book("")).status, 422);
    let refused = client.delete("/books");
    assert_eq!(
        (refused.status.as_u16(), refused.header("allow")),
        (405, Some("GET, HEAD, POST, OPTIONS"))
    );
    let refused = client.post_json("/books/1", &book("a"));
    let allowed = "GET, HEAD, PUT, DELETE, OPTIONS";
    assert_eq!((refused.status.as_u16(), refused.header("allow")), (405, Some(allowed)));
}

/// Purpose: the promises hold whether the methods run at once, on the pool, or are awaited.
#[test]
fn three_ways_to_run() {
    promises(&client(Plain));
    promises(&client(resource(Plain).blocking()));
    promises(&client(Waiting));
}

/// Purpose: a resource whose methods return at once starts no runtime, and one on the pool runs there.
#[test]
fn kinds() {
    fn kinds<M>(books: impl IntoCollection<M>) -> Vec<String> {
        let app = Router::new().state(Shelf::default()).resource("/books", books);
        let app = app.build().expect("it is right");
        app.endpoints().iter().map(|endpoint| endpoint.kind().to_string()).collect()
    }
    assert_eq!(kinds(Plain), ["inline"; 5]);
    assert_eq!(kinds(resource(Plain).blocking()), ["blocking"; 5]);
    assert_eq!(kinds(Waiting), ["async"; 5]);
}

/// Purpose: pages have a bound, say where the others are, and can be asked for again without being sent again.
#[test]
fn pages() {
    let client = client(resource(Plain).per_page(2, 3));
    let empty: Value = client.get("/books").json();
    assert_eq!(empty, json!({ "items": [], "page": 1, "per_page": 2, "total": 0 }));
    for number in 1..=5 {
        assert_eq!(client.post_json("/books", &book(number)).status, 201);
    }
    let titles = |page: &Response| -> Vec<String> {
        let page: Value = page.json();
        let items = page["items"].as_array().expect("they are a list").clone();
        items.iter().map(|item| item["title"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let first = client.get("/books");
    assert_eq!(titles(&first), ["1", "2"]);
    let next = "<?page=2&per_page=2>; rel=\"next\", <?page=3&per_page=2>; rel=\"last\"";
    assert_eq!(first.header("link"), Some(next));
    let middle = client.get("/books?sort=%3Eup&page=2&per_page=2&a=<b>");
    assert_eq!(titles(&middle), ["3", "4"]);
    let links = middle.header("link").expect("there are others");
    let before = "<?sort=%3Eup&a=%3Cb%3E&page=1&per_page=2>; rel=\"first\", ";
    assert!(links.starts_with(before), "{links}");
    let last = client.get("/books?page=2&per_page=3");
    assert_eq!(titles(&last), ["4", "5"]);
    assert!(!last.header("link").expect("there are others").contains("next"));
    let beyond = client.get(&format!("/books?page={}&per_page=3", u32::MAX));
    assert_eq!((beyond.status.as_u16(), titles(&beyond)), (200, vec![]));
    assert!(
        beyond
            .header("link")
            .expect("there are others")
            .contains("<?page=2&per_page=3>; rel=\"prev\"")
    );

    for (query, status) in [
        ("per_page=3", 200),
        ("per_page=4", 422),
        ("per_page=0", 422),
        ("page=0", 422),
        ("page=-1", 400),
        ("page=4294967296", 400),
    ] {
        assert_eq!(client.get(&format!("/books?{query}")).status, status, "{query}");
    }
    let tag = first.header("etag").expect("it has one").to_owned();
    assert_eq!(with(&client, ("if-none-match", &tag), ("GET", "/books", None)).status, 304);
    client.delete("/books/5");
    assert_eq!(with(&client, ("if-none-match", &tag), ("GET", "/books", None)).status, 200);
    assert_eq!((PER_PAGE, PER_PAGE_MAX), (20, 100));
}

/// Purpose: where a state must be named, a request that names none is refused with that reason, and nothing is changed.
#[test]
fn required_conditions() {
    let client = client(resource(Plain).if_match_required());
    client.post_json("/books", &book("a"));
    let without = client.put_json("/books/1", &book("b"));
    assert_eq!(
        (without.status.as_u16(), code(&without)),
        (428, "precondition_required".to_owned())
    );
    assert_eq!(client.delete("/books/1").status, 428);
    let other = with(&client, ("if-none-match", "\"x\""), ("DELETE", "/books/1", None));
    assert_eq!(other.status.as_u16(), 428, "it names a state that it is not in");
    assert_eq!(client.get("/books/1").json::<Value>()["title"], "a");
    assert_eq!(with(&client, ("if-match", "*"), ("DELETE", "/books/1", None)).status, 204);
}

/// A resource with mistakes.
struct Careless;

impl Resource for Careless {
    type Context = ();
    type Id = String;
    type Input = Json<Book>;
    type Item = Book;

    fn list(&self, (): (), page: Page) -> Result<Listing<Book>, Error> {
        Ok(Listing::new(vec![book("a"); page.limit() + 1]))
    }

    fn create(&self, (): (), Json(book): Json<Book>) -> Result<(String, Book), Error> {
        Ok((book.title.clone(), book))
    }

    fn show(&self, (): (), id: String) -> Result<Option<Book>, Error> {
        Ok(Some(book(id)))
    }

    fn replace(
        &self,
        (): (),
        _: String,
        Json(book): Json<Book>,
        _: &Expected<Book>,
    ) -> Result<Book, Error> {
        Ok(book)
    }

    fn delete(&self, (): (), _: String, _: &Expected<Book>) -> Result<(), Error> {
        Ok(())
    }

    fn version(book: &Book) -> String {
        book.title.clone()
    }
}

/// Purpose: a mistake of the resource is found by its first test, and does not become a page without a bound or a condition
/// that holds by chance; ids and versions may be any text.
#[test]
fn mistakes() {
    let client = client(Careless);
    assert_eq!(client.get("/books").status, 500, "more items than the page has");
    assert_eq!(client.put_json("/books/a", &book("a")).status, 200);
    for field in [("if-match", "\"a\""), ("if-none-match", "\"b\"")] {
        let unchecked = with(&client, field, ("PUT", "/books/a", Some(book("a"))));
        assert_eq!(unchecked.status.as_u16(), 500, "the condition was not checked");
        assert_eq!(with(&client, field, ("DELETE", "/books/a", None)).status, 500);
    }
    let created = client.post_json("/books", &book("a/b \"c\""));
    assert_eq!(created.header("location"), Some("/books/a%2Fb%20%22c%22"));
    let shown = client.get("/books/a%2Fb%20%22c%22");
    assert_eq!((shown.status.as_u16(), shown.header("etag")), (200, created.header("etag")));
    assert_eq!(client.get("/books/a").header("etag"), Some("\"a\""));
}

#[derive(Deserialize, JsonSchema)]
struct Owner {
    user: String,
}

/// Each user's books.
struct OfUser;

impl Resource for OfUser {
    type Context = Path<Owner>;
    type Id = u32;
    type Input = Json<Book>;
    type Item = Book;

    fn list(&self, Path(owner): Path<Owner>, _: Page) -> Result<Listing<Book>, Error> {
        Ok(Listing::new(vec![book(owner.user)]))
    }

    fn create(&self, _: Path<Owner>, Json(book): Json<Book>) -> Result<(u32, Book), Error> {
        Ok((7, book))
    }

    fn show(&self, Path(owner): Path<Owner>, id: u32) -> Result<Option<Book>, Error> {
        Ok(Some(book(format!("{} {id}", owner.user))))
    }

    fn replace(
        &self,
        _: Path<Owner>,
        _: u32,
        _: Json<Book>,
        expected: &Expected<Book>,
    ) -> Result<Book, Error> {
        expected.check_version(Some("3"))?;
        Ok(book("c"))
    }

    fn delete(&self, _: Path<Owner>, _: u32, expected: &Expected<Book>) -> Result<(), Error> {
        expected.check_version(None)
    }
}

/// Purpose: a resource may stand below others, its path may have parameters, and addresses are those that clients use; a store
/// that knows versions need not read items.
#[test]
fn below_others() {
    let users = Router::new().resource("/{user}/books", OfUser);
    let client = Client::new(Router::new().nest("/users", users));
    assert_eq!(client.get("/users/ann/books").json::<Value>()["items"][0]["title"], "ann");
    assert_eq!(client.get("/users/ann/books/5").json::<Value>()["title"], "ann 5");
    let created = client.post_json("/users/ann/books", &book("a"));
    assert_eq!(created.header("location"), Some("/users/ann/books/7"));
    let replace = || ("PUT", "/users/ann/books/5", Some(book("b")));
    assert_eq!(with(&client, ("if-match", "\"3\""), replace()).status, 200);
    assert_eq!(with(&client, ("if-match", "\"2\""), replace()).status, 412);
    assert_eq!(client.delete("/users/ann/books/5").status, 404);
    // Without a total, a full page may have another one behind it.
    assert_eq!(client.get("/users/ann/books").header("link"), None);
    let full = client.get("/users/ann/books?per_page=1");
    assert_eq!(full.header("link"), Some("<?page=2&per_page=1>; rel=\"next\""));
}

/// Purpose: what the document says of a resource is what the server does.
#[test]
fn described() {
    fn check<R: 'static>(books: Collection<R>, more: &[&str]) {
        let app = Router::new()
            .openapi(OpenApi::new("Library", "1"))
            .state(Shelf::default())
            .resource("/books", books);
        let client = Client::new(app);
        for title in ["a", "b"] {
            client.post_json("/books", &book(title));
        }
        let answer = client.get("/openapi.json");
        let document = Document::new(answer.text());
        assert_eq!(document.problems(), Vec::<String>::new());
        let value: Value = answer.json();
        let of = |path: &str, method: &str| value["paths"][path][method].clone();
        let ids = [("/books", "get"), ("/books", "post"), ("/books/{id}", "get")];
        let ids = ids.map(|(path, method)| of(path, method)["operationId"].clone());
        assert_eq!(ids, ["list_books", "create_book", "show_book"]);
        let list = of("/books", "get");
        assert_eq!(list["parameters"][1]["schema"]["maximum"], 30);
        let replace = of("/books/{id}", "put");
        assert_eq!(replace["parameters"][0]["schema"]["type"], "integer");
        for status in ["200", "400", "404", "412", "413", "415", "422"].iter().chain(more) {
            assert!(replace["responses"].get(*status).is_some(), "{status}: {replace}");
        }
        assert!(replace["responses"]["200"]["headers"].get("ETag").is_some(), "{replace}");
        let calls = document.calls();
        assert_eq!(calls.len(), 5);
        for call in calls {
            let (kind, content) = call.content.clone().unwrap_or_default();
            let mut request = client.request(call.method.parse().expect("it is one"), &call.target);
            if !kind.is_empty() {
                request = request.header("content-type", &kind).body(content);
            }
            let response = request.send();
            let kind = response.header("content-type");
            let checked = document.check(&call, response.status.into(), kind, &response.body);
            checked.expect("it is as the document says");
        }
    }
    check(resource(Plain).per_page(10, 30).described("book", "books"), &[]);
    check(resource(Waiting).per_page(10, 30).described("book", "books"), &[]);
    // The order of the settings does not matter.
    let strict = resource(Plain).described("book", "books").per_page(10, 30).if_match_required();
    check(strict, &["428"]);
}

/// Purpose: a resource whose author forgot to describe it is found when the application is built, with the remedy for
/// resources; one that is hidden is served, and left out of the document.
#[test]
fn forgotten_or_hidden() {
    let begin = || Router::new().openapi(OpenApi::new("Library", "1")).state(Shelf::default());
    let forgotten = begin().resource("/books", resource(Plain));
    let error = forgotten.build().expect_err("nothing describes it");
    let problems = error.problems();
    assert_eq!(problems.len(), 5, "{problems:?}");
    let expected =
        "GET /books: the document cannot describe this resource; write `resource(…).described(";
    assert!(problems[0].starts_with(expected), "{}", problems[0]);
    assert!(problems[0].contains("`resource(…).hidden()`"), "{}", problems[0]);

    let client = Client::new(begin().resource("/books", resource(Plain).hidden()));
    assert_eq!(client.post_json("/books", &book("a")).status, 201);
    let document: Value = client.get("/openapi.json").json();
    assert_eq!(document["paths"], json!({}));
}
