//! The forms that an answer has: chosen by the client, line by line, as a page.

use highwater::layers::CsrfToken;
use highwater::{
    Accept, Csv, CsvAnswer, CsvRows, Error, Form, Html, IntoResponse, Json, NdJson, Query,
    Redirect, Response,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The most lines of `/ndjson`.
const LINES_MAX: u64 = 1_000_000;

#[derive(Serialize)]
struct Planet {
    name: &'static str,
    moons: u32,
}

const PLANETS: [Planet; 3] = [
    Planet { name: "Earth", moons: 1 },
    Planet { name: "Mars", moons: 2 },
    Planet { name: "Venus, \"dry\"", moons: 0 },
];

/// `GET /accept`: JSON, CSV or HTML, as the client likes it best.
pub(crate) fn accept(accept: Accept) -> Result<Response, Error> {
    let answer = match accept.choose(&["application/json", "text/csv", "text/html"])? {
        "text/csv" => Csv(PLANETS).into_response(),
        "text/html" => Html(page()).into_response(),
        _ => Json(PLANETS).into_response(),
    };
    Ok(answer.with_header("vary", "accept"))
}

fn page() -> String {
    let row = |planet: &Planet| format!("<tr><td>{}<td>{}", escaped(planet.name), planet.moons);
    let rows: String = PLANETS.iter().map(row).collect();
    format!("<!doctype html><title>Planets</title><table><tr><th>Name<th>Moons{rows}</table>")
}

#[derive(Deserialize)]
pub(crate) struct Count {
    n: u64,
}

#[derive(Serialize)]
struct Line {
    n: u64,
}

/// `GET /ndjson?n=N`: made while it is sent.
pub(crate) fn lines(Query(Count { n }): Query<Count>) -> Result<Response, Error> {
    if n > LINES_MAX {
        return Err(Error::bad_request(format!("n: there are at most {LINES_MAX} lines")));
    }
    Ok(NdJson((0..n).map(|n| Line { n })).into_response())
}

/// `GET /csv?n=N`: a table for a spreadsheet, made while it is sent. What users wrote may begin like a formula.
pub(crate) fn table(Query(Count { n }): Query<Count>) -> Result<CsvAnswer<impl CsvRows>, Error> {
    if n > LINES_MAX {
        return Err(Error::bad_request(format!("n: there are at most {LINES_MAX} rows")));
    }
    let rows = (0..n).map(|n| Entry { n, note: format!("=A{n}, as somebody wrote it") });
    Ok(Csv(rows).header(["n", "note"]).escape_formulas())
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Entry {
    n: u64,
    note: String,
}

/// `POST /csv`: a table with these columns, in any order. Answers the sum of the numbers and the longest note.
pub(crate) fn imported(Csv(entries): Csv<Vec<Entry>>) -> String {
    let sum: u64 = entries.iter().map(|entry| entry.n).fold(0, u64::wrapping_add);
    let longest = entries.iter().map(|entry| entry.note.as_str()).max_by_key(|note| note.len());
    format!("{sum} {}", longest.unwrap_or_default())
}

/// `GET /redirect`
pub(crate) fn redirect() -> Redirect {
    Redirect::to("/template?name=you%20were%20sent%20here")
}

#[derive(Deserialize)]
pub(crate) struct Name {
    name: Option<String>,
}

/// `GET /template?name=`: a page with what the client sends, as text. With a crate for templates it is
/// `Html(template.render().map_err(Error::internal)?)`.
pub(crate) fn template(Query(Name { name }): Query<Name>) -> Html<String> {
    let name = escaped(name.as_deref().unwrap_or("World"));
    Html(format!("<!doctype html><title>Hello</title><h1>Hello, {name}!</h1>"))
}

/// `GET /form`: a page with a token, or the token alone as JSON.
pub(crate) fn form(token: CsrfToken, accept: Accept) -> Response {
    let answer = match accept.best(&["text/html", "application/json"]) {
        Some("application/json") => Json(json!({ "csrf_token": token.value() })).into_response(),
        _ => {
            let field = token.field();
            let form = format!(
                "<form method=\"post\">{field}<input name=\"text\"><button>Send</button></form>"
            );
            Html(format!("<!doctype html><title>Form</title>{form}")).into_response()
        }
    };
    answer.with_header("vary", "accept").with_header("cache-control", "no-store")
}

#[derive(Deserialize)]
pub(crate) struct Sent {
    #[serde(default)]
    text: String,
}

/// `POST /form`: only with the token of a page.
pub(crate) fn sent(Form(Sent { text }): Form<Sent>) -> Html<String> {
    Html(format!("<!doctype html><title>Sent</title><p>{}</p>", escaped(&text)))
}

/// Text in HTML: no part of it is markup, neither between tags nor in an attribute with quotes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}
