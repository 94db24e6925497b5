//! Documents of interfaces: what they say of each type, what cannot be said, and that the server does what they say.

use std::time::Duration;

use garde::Validate;
use highwater::layers::{csrf, rate_limit};
use highwater::openapi::{OpenApi, Operation, SecurityScheme, api, hidden};
use highwater::testing::{Client, Response as Answer};
use highwater::{
    Accepted, Bytes, Created, Csv, CsvAnswer, CsvRows, Error, Extension, Form, Handler, Html, Json,
    Layer, Method, NoContent, Path, Query, Redirect, Request, Response, Router, StatusCode, Valid,
    blocking, fixed,
};
use highwater_testkit::{Call, Document};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is read and written alike.
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
struct Book {
    /// Its title.
    title: String,
    pages: u32,
}

/// What is read and written differently: the default may be left out of requests only.
#[derive(Deserialize, Serialize, JsonSchema)]
struct Shelf {
    #[serde(default)]
    books: Vec<Book>,
}

#[derive(Deserialize, JsonSchema, Validate)]
struct NewBook {
    #[garde(length(min = 2, max = 50))]
    title: String,
    #[garde(range(min = 1, max = 5000))]
    pages: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Page {
    /// How many.
    limit: Option<u32>,
    #[serde(default)]
    tag: Vec<String>,
    order: Order,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    Up,
    Down,
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    shelf: String,
    position: u32,
}

fn list(Query(page): Query<Page>) -> Json<Vec<Book>> {
    let book = Book { title: page.tag.join(","), pages: page.limit.unwrap_or(1) };
    Json(match page.order {
        Order::Up => vec![book],
        Order::Down => Vec::new(),
    })
}

async fn create(Valid(Json(new)): Valid<Json<NewBook>>) -> Result<Created<Json<Book>>, Error> {
    if new.title == "xx" && new.pages == 1 {
        return Err(Error::conflict("it is there already"));
    }
    Ok(Created(Json(Book { title: new.title, pages: new.pages })))
}

fn at(Path(place): Path<Place>) -> Option<Json<Book>> {
    (place.position < 2).then_some(Json(Book { title: place.shelf, pages: place.position }))
}

fn fill(Path((shelf, position)): Path<(String, u8)>, Json(content): Json<Shelf>) -> Json<Shelf> {
    let title = format!("{shelf} {position}");
    Json(Shelf { books: [content.books, vec![Book { title, pages: 1 }]].concat() })
}

fn login(Form(book): Form<Book>) -> Redirect {
    Redirect::to(format!("/{}", book.title))
}

fn heavy(content: Bytes) -> Accepted<String> {
    Accepted(content.len().to_string())
}

fn key() -> Layer {
    let check = |request: &Request<'_>| match request.header("x-key") {
        Some("open sesame") => Ok(()),
        _ => Err(Error::unauthorized("a key is needed")),
    };
    Layer::new().on_request(check).documents(|operation: &mut Operation<'_>| {
        operation.security("key", &SecurityScheme::header("X-Key"));
        operation.error(StatusCode::UNAUTHORIZED, "There is no key.");
    })
}

fn router() -> Router {
    let secured = Router::new()
        .layer(key())
        .delete("/{id}", api(|Path(_): Path<u64>| NoContent).operation_id("remove"))
        .put(
            "/{id}",
            api(|_: Path<u64>| StatusCode::CREATED).status(StatusCode::CREATED).deprecated(),
        );
    Router::new()
        .openapi(
            OpenApi::new("Books", "1.2.3").description("About *books*.").tag("books", "Paper."),
        )
        .layer(rate_limit(10_000, Duration::from_secs(1)).by(|_| Some(1)))
        .layer(csrf())
        .get("/books", api(list).summary("All books").tag("books").name("all"))
        .post("/books", api(create.body_max(1000)).tag("books").name("create"))
        .get("/shelves/{shelf}/{position}", api(at))
        .put("/shelves/{shelf}/{position}", api(fill))
        .post("/login", api(login).status(StatusCode::SEE_OTHER))
        .post("/heavy", api(blocking(heavy)))
        .get("/page", api(|| Html("<p>")))
        .get(
            "/raw",
            api(|| Response::from("[1]").with_content_type("application/json"))
                .returns::<Json<Vec<u8>>>(),
        )
        .get("/health", fixed("ok"))
        .get("/tree/{*rest}", api(|Path(rest): Path<String>| rest))
        .get("/secret", hidden(|Extension(Book { title, .. })| title))
        .nest("/secured", secured)
        .fallback(|| Error::not_found("nothing"))
}

fn document_of(client: &Client) -> Document {
    let answer = client.get("/openapi.json");
    assert_eq!(
        (answer.status.as_u16(), answer.header("content-type")),
        (200, Some("application/json"))
    );
    Document::new(answer.text())
}

fn problems(router: Router) -> Vec<String> {
    router.build().expect_err("it cannot be described").problems().to_vec()
}

fn send(
    client: &Client,
    call: &Call,
    content: Option<(&str, &str)>,
    fields: &[(&str, &str)],
) -> Answer {
    let method = Method::try_from(call.method.as_str()).expect("a method");
    let mut request = client.request(method, &call.target);
    if let Some((kind, content)) = content {
        let kind = if kind == "*/*" { "text/plain" } else { kind };
        request = request.header("content-type", kind).body(content.to_owned());
    }
    fields.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
}

/// Purpose: what the document says is what the server does: each operation is called as the document says, and wrongly in
/// every way that its types notice, and each answer is one that the document has.
#[test]
fn the_server_does_what_the_document_says() {
    let client = Client::new(router());
    let document = document_of(&client);
    assert_eq!(document.problems(), Vec::<String>::new());
    let calls = document.calls();
    assert_eq!(calls.len(), 12);
    let check = |call: &Call, answer: &Answer| {
        let checked = document.check(
            call,
            answer.status.as_u16(),
            answer.header("content-type"),
            &answer.body,
        );
        checked.unwrap_or_else(|problem| panic!("{problem}"));
        answer.status.as_u16()
    };
    let mut seen = Vec::new();
    for call in &calls {
        let content =
            call.content.as_ref().map(|(kind, content)| (kind.as_str(), content.as_str()));
        let key = [("x-key", "open sesame")];
        let good = check(call, &send(&client, call, content, &key));
        assert!(good < 400 || good == 409, "{} {} is answered {good}", call.method, call.target);
        let mut statuses = vec![good, check(call, &send(&client, call, content, &[]))];
        for wrong in ["{", "{}", "null", &"x".repeat(2000)] {
            let kind = content.map_or("text/plain", |(kind, _)| kind);
            statuses.push(check(call, &send(&client, call, Some((kind, wrong)), &key)));
            statuses.push(check(call, &send(&client, call, Some(("image/png", wrong)), &key)));
        }
        for target in
            [call.target.replace("/1", "/x"), format!("{}?order=x&order=y", call.template)]
        {
            let call =
                Call { target: target.replace('{', "%7B").replace('}', "%7D"), ..call.clone() };
            statuses.push(check(&call, &send(&client, &call, content, &key)));
        }
        if call.method != "GET" {
            let foreign = [("x-key", "open sesame"), ("sec-fetch-site", "cross-site")];
            statuses.push(check(call, &send(&client, call, content, &foreign)));
            assert_eq!(statuses.last(), Some(&403));
        }
        seen.extend(statuses);
    }
    for status in [200, 201, 202, 204, 303, 400, 401, 403, 409, 413, 415, 422] {
        assert!(seen.contains(&status), "nothing was answered {status}");
    }
}

/// Purpose: each kind of argument and answer is in the document as clients need it.
#[test]
fn every_type_is_described() {
    let client = Client::new(router());
    let document = document_of(&client);
    let document = document.value();
    assert_eq!(
        document["info"],
        json!({ "title": "Books", "version": "1.2.3", "description": "About *books*." })
    );
    let list = &document["paths"]["/books"]["get"];
    assert_eq!(
        (&list["operationId"], &list["summary"], &list["tags"]),
        (&json!("list"), &json!("All books"), &json!(["books"]))
    );
    let parameter = |name: &str| {
        let all = list["parameters"].as_array().expect("there are some");
        all.iter().find(|one| one["name"] == name).cloned().expect("it is there")
    };
    let limit = json!({ "in": "query", "name": "limit", "description": "How many.",
        "schema": { "type": "integer", "format": "uint32", "minimum": 0 } });
    assert_eq!(parameter("limit"), limit, "it may be absent, and is never null");
    assert_eq!(parameter("tag")["schema"]["type"], "array");
    assert_eq!(parameter("order")["required"], true);
    for status in ["200", "400", "429", "503", "default"] {
        assert!(list["responses"][status]["description"].is_string(), "{status} of {list}");
    }
    assert_eq!(list["responses"]["403"], Value::Null, "a GET is no forgery");
    assert!(list["responses"]["429"]["headers"]["Retry-After"].is_object());

    let create = &document["paths"]["/books"]["post"];
    assert_eq!(create["requestBody"]["required"], true);
    let schemas = &document["components"]["schemas"];
    let rules = &schemas["NewBook"]["properties"];
    assert_eq!(
        (&rules["title"]["minLength"], &rules["title"]["maxLength"]),
        (&json!(2), &json!(50))
    );
    assert_eq!((&rules["pages"]["minimum"], &rules["pages"]["maximum"]), (&json!(1), &json!(5000)));
    let of = |status: &str| {
        create["responses"][status]["content"]["application/json"]["schema"]["$ref"].clone()
    };
    assert_eq!(of("201"), "#/components/schemas/Book");
    assert_eq!(of("422"), "#/components/schemas/ValidationError");
    assert_eq!(of("default"), "#/components/schemas/Error");

    let fill = &document["paths"]["/shelves/{shelf}/{position}"]["put"];
    let content = |of: &Value| of["content"]["application/json"]["schema"]["$ref"].clone();
    assert_eq!(
        content(&fill["requestBody"]),
        "#/components/schemas/ShelfInput",
        "a default may be left out"
    );
    assert_eq!(content(&fill["responses"]["200"]), "#/components/schemas/Shelf");
    assert_eq!(schemas["Shelf"]["required"], json!(["books"]));
    assert_eq!(schemas["ShelfInput"]["required"], Value::Null);
    assert_eq!(schemas["BookInput"], Value::Null, "one schema is enough where both are the same");
    let places: Vec<&Value> =
        fill["parameters"].as_array().expect("two").iter().map(|one| &one["name"]).collect();
    assert_eq!(places, ["shelf", "position"]);

    let removed = &document["paths"]["/secured/{id}"]["delete"];
    assert_eq!(removed["security"], json!([{ "key": [] }]));
    assert_eq!(removed["operationId"], "remove");
    assert_eq!(document["components"]["securitySchemes"]["key"]["name"], "X-Key");
    assert_eq!(document["paths"]["/secured/{id}"]["put"]["deprecated"], true);
    let health = &document["paths"]["/health"]["get"]["responses"];
    assert_eq!(health["200"]["content"]["text/plain; charset=utf-8"]["schema"]["const"], "ok");
    assert_eq!(document["paths"]["/secret"], Value::Null);
    assert_eq!(document["paths"]["/tree/{rest}"]["get"]["operationId"], "get_tree_rest");
    assert_eq!(document["paths"]["/openapi.json"], Value::Null);
}

/// Purpose: the page may run its own script, and nothing else; a title is text.
#[test]
fn the_page_is_careful() {
    let client = Client::new(Router::new().openapi(OpenApi::new("<b>&", "1")));
    let page = client.get("/docs");
    assert_eq!(
        (page.status.as_u16(), page.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    let policy = page.header("content-security-policy").expect("it has one");
    for part in [
        "default-src 'none'",
        "connect-src 'self'",
        "script-src 'sha256-",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(page.text().contains("<title>&lt;b&gt;&amp;</title>"));
}

/// Purpose: a route of several methods is an operation for each, and each has a name of its own, which stays what it is.
#[test]
fn several_methods_have_several_names() {
    let update = [Method::PUT, Method::PATCH];
    fn save() -> NoContent {
        NoContent
    }
    let client = Client::new(
        Router::new()
            .openapi(OpenApi::new("x", "1"))
            .on(&update, "/a", api(save))
            .on(&update, "/b", api(save).operation_id("keep"))
            .on(&update, "/c/{*d}", api(|_: Path<String>| NoContent)),
    );
    let document: Value = client.get("/openapi.json").json();
    for (path, put, patch) in [
        ("/a", "save", "save_patch"),
        ("/b", "keep", "keep_patch"),
        ("/c/{d}", "put_c_d", "patch_c_d"),
    ] {
        let operations = &document["paths"][path];
        assert_eq!(operations["put"]["operationId"], put);
        assert_eq!(operations["patch"]["operationId"], patch);
    }
}

/// Purpose: what the document cannot say is found when the application is built, with the route and what to write instead.
#[test]
fn what_cannot_be_described_is_a_problem() {
    let begin = || Router::new().openapi(OpenApi::new("x", "1"));
    let only = |router: Router| {
        let problems = problems(router);
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems[0].clone()
    };
    let cases = [
        (
            begin().get("/a", || "a"),
            "GET /a: the document cannot describe it",
            "openapi::api(handler)",
        ),
        (
            begin().any("/a", api(|| "a")),
            "* /a: OpenAPI 3.1 has no word for these methods",
            "openapi::hidden(handler)",
        ),
        (
            begin().get("/a", api(|| StatusCode::CREATED)),
            "GET /a: only a request decides the status",
            ".status(",
        ),
        (
            begin().get("/a", api(|| Response::from("a"))),
            "GET /a: its handler returns a `Response`",
            ".returns::<",
        ),
        (
            begin().get("/a", api(|_: Query<u8>| "a")),
            "GET /a: `Query<u8>` has no parameters with names",
            "struct",
        ),
        (begin().get("/a", api(list)).get("/b", api(list)), "both called `list`", "operation_id"),
        (
            begin()
                .get("/a/{x}", api(|_: Path<u8>| "a"))
                .get("/a/{*x}", api(|_: Path<String>| "b")),
            "GET /a/{*x}: another route is GET /a/{x} in the document already",
            "openapi::hidden(handler)",
        ),
        (
            begin().get("/{{a}}", api(|| "a")),
            "GET /{{a}}: OpenAPI cannot write a brace",
            "openapi::hidden(handler)",
        ),
        (
            begin().errors(|_: &Error| Json("x")).get("/a", api(|| "a")),
            "GET /a: its errors are rendered as `highwater::app::extract::json::Json<&str>`",
            ".errors::<Json<T>>()",
        ),
    ];
    for (router, what, instead) in cases {
        let problem = only(router);
        assert!(problem.contains(what) && problem.contains(instead), "{problem}");
    }
    let elsewhere = Router::new().get("/a", || "a").nest("/api", begin().get("/b", api(|| "b")));
    let client = Client::new(elsewhere);
    let document: Value = client.get("/api/openapi.json").json();
    assert_eq!(document["paths"].as_object().expect("some").keys().collect::<Vec<_>>(), ["/api/b"]);
    assert_eq!(client.get("/openapi.json").status, 404);
}

/// Purpose: errors in a shape of the service's own are described by that shape, and by the innermost one that renders them.
#[test]
fn errors_have_the_shape_that_renders_them() {
    #[derive(Serialize, JsonSchema)]
    struct Failure {
        reason: String,
    }
    #[derive(Serialize, JsonSchema)]
    struct Inner {
        code: &'static str,
    }
    fn failure(error: &Error) -> Json<Failure> {
        Json(Failure { reason: error.message().to_owned() })
    }
    fn inner(error: &Error) -> Json<Inner> {
        Json(Inner { code: error.code() })
    }
    let inside =
        Router::new().errors(inner).get("/b", api(|| Error::conflict("b")).operation_id("b"));
    let openapi = OpenApi::new("x", "1").errors::<Json<Failure>>().errors::<Json<Inner>>();
    let router = Router::new()
        .openapi(openapi)
        .errors(failure)
        .get("/a", api(|| Error::conflict("a")).operation_id("a"))
        .nest("/inside", inside);
    let client = Client::new(router);
    let document = document_of(&client);
    assert_eq!(document.problems(), Vec::<String>::new());
    for (call, shape) in document.calls().iter().zip(["Failure", "Inner"]) {
        let answer = send(&client, call, None, &[]);
        assert_eq!(answer.status, 409);
        document
            .check(call, 409, answer.header("content-type"), &answer.body)
            .expect("as the document says");
        let responses = &document.value()["paths"][&call.template]["get"]["responses"];
        let schema = &responses["default"]["content"]["application/json"]["schema"];
        assert_eq!(schema["$ref"], format!("#/components/schemas/{shape}"));
    }
}

/// Purpose: a table is text to a validator, and has columns to a reader: those of its rows, in answers and in uploads, and what
/// the server answers is what the document says.
#[test]
fn tables_have_columns() {
    const TABLE: &str = "text/csv; charset=utf-8; header=present";
    fn export() -> Csv<Vec<Book>> {
        Csv(vec![Book { title: "Emma".into(), pages: 474 }])
    }
    fn sorted() -> CsvAnswer<impl CsvRows<Row = (&'static str, u32)>> {
        Csv([("Emma", 474)]).header(["title", "pages"])
    }
    fn import(Csv(books): Csv<Vec<Shelf>>) -> String {
        books.len().to_string()
    }
    let app = Router::new()
        .openapi(OpenApi::new("Tables", "1"))
        .get("/books.csv", api(export))
        .get("/sorted.csv", api(sorted))
        .post("/shelves", api(import));
    let client = Client::new(app);
    let document = document_of(&client);
    assert_eq!(document.problems(), Vec::<String>::new());
    let value = document.value();
    let answer = |path: &str| value["paths"][path]["get"]["responses"]["200"]["content"].clone();
    let row = json!({ "$ref": "#/components/schemas/Book" });
    let expected = json!({ TABLE: { "schema": { "type": "string" }, "x-oai-itemSchema": row } });
    assert_eq!(answer("/books.csv"), expected);
    let columns = &value["components"]["schemas"]["Book"]["properties"];
    assert_eq!(columns["title"], json!({ "type": "string", "description": "Its title." }));
    let items = &answer("/sorted.csv")[TABLE]["x-oai-itemSchema"];
    assert_eq!(
        (&items["prefixItems"][1]["type"], &items["maxItems"]),
        (&json!("integer"), &json!(2))
    );
    let read = &value["paths"]["/shelves"]["post"]["requestBody"]["content"]["text/csv"];
    let name = read["x-oai-itemSchema"]["$ref"].as_str().expect("a reference");
    let name = name.strip_prefix("#/components/schemas/").expect("it leads to the components");
    assert!(value["components"]["schemas"][name]["properties"]["books"].is_object(), "{name}");

    let answered = client.get("/books.csv");
    let call = document.calls().into_iter().find(|call| call.target == "/books.csv");
    let kind = answered.header("content-type");
    let checked = document.check(&call.expect("it is there"), 200, kind, &answered.body);
    checked.expect("it is as the document says");
}
