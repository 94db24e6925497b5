//! Can the interface of an application be read and tried out in a browser?

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use highwater::openapi::{OpenApi, api};
use highwater::{Csv, Error, Json, Path, Query, Router, Running, Server, ServerConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CONTRAST;
use super::browser::Browser;

#[derive(Deserialize, Serialize, JsonSchema)]
struct Note {
    text: String,
    #[serde(default)]
    stars: u8,
}

#[derive(Deserialize, JsonSchema)]
struct Shout {
    /// How loud.
    loud: Option<bool>,
}

fn show(Path(name): Path<String>, Query(shout): Query<Shout>) -> Result<String, Error> {
    match shout.loud {
        Some(true) => Ok(name.to_uppercase()),
        _ => Ok(name),
    }
}

fn keep(Json(note): Json<Note>) -> Json<Note> {
    Json(note)
}

fn import(Csv(notes): Csv<Vec<Note>>) -> String {
    format!("{} notes", notes.len())
}

fn serve(title: &'static str) -> Running {
    let config = ServerConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        metrics: None,
        workers: NonZeroUsize::new(1),
        ..ServerConfig::default()
    };
    let router = Router::new()
        .openapi(OpenApi::new(title, "1.0").tag("notes", title))
        .get("/notes/{name}", api(show).summary(title).tag("notes"))
        .post("/notes", api(keep).description(title).tag("notes"))
        .post("/notes.csv", api(import).tag("notes"));
    Server::new(router).config(config).start().expect("loopback has free ports")
}

/// Purpose: who uses an interface reads in the page what it takes and answers, and tries it out there, with nothing but what
/// the server has; the console stays clean.
#[test]
fn an_interface_is_read_and_tried_out() {
    let Some(mut browser) = Browser::start() else { return };
    let server = serve("Notes");
    browser.open(&format!("http://{}/docs", server.address()));
    browser.until("document.querySelector('h1')?.textContent === 'Notes1.0'");
    assert_eq!(browser.value("document.title"), "Notes 1.0");
    assert_eq!(browser.value("document.querySelectorAll('details.operation').length"), 3);

    browser.value("document.getElementById('show').open = true");
    browser.until("document.querySelectorAll('#show tbody tr').length === 2");
    assert_eq!(browser.value("document.querySelector('#show tbody td p').textContent"), "");
    browser.value(
        "(() => { const form = document.querySelector('#show form');
           form.elements['path:name'].value = 'a/b c'; form.elements['query:loud'].value = 'true';
           form.requestSubmit(); return 1; })()",
    );
    let answered = "document.querySelector('#show .result').textContent";
    browser.until(&format!("{answered}.startsWith('200')"));
    browser.until(&format!("{answered}.endsWith('A/B C')"));

    browser.value("document.getElementById('keep').open = true");
    browser.until("document.querySelector('#keep textarea') !== null");
    let sample = browser.value("JSON.parse(document.querySelector('#keep textarea').value)");
    assert_eq!(sample, serde_json::json!({ "text": "" }));
    browser.value("(() => { document.querySelector('#keep form').requestSubmit(); return 1; })()");
    let kept = "document.querySelector('#keep .result').textContent.endsWith('{\"text\":\"\",\"stars\":0}')";
    browser.until(kept);

    browser.value("document.getElementById('import').open = true");
    browser.until("document.querySelector('#import textarea') !== null");
    let sample = browser.value("document.querySelector('#import textarea').value");
    assert_eq!(sample, "text\n\n");
    browser.until("document.querySelector('#import pre').textContent.includes('stars')");
    browser.value(
        "(() => { const form = document.querySelector('#import form');
           form.elements['body'].value = 'text,stars\\nlow,1\\nhigh,2\\n'; form.requestSubmit(); return 1; })()",
    );
    browser.until("document.querySelector('#import .result').textContent.endsWith('2 notes')");
    assert_eq!(browser.complaints(), []);
}

/// Purpose: the page can be read in light and in dark, on a wide screen and on a phone; and whatever a document says is shown
/// as it is, and never becomes a part of the page.
#[test]
fn a_document_is_text_for_everybody() {
    let Some(mut browser) = Browser::start() else { return };
    let wicked = "</script><img src=x onerror=alert(1)>&amp;\"'";
    let server = serve(wicked);
    browser.open(&format!("http://{}/docs", server.address()));
    browser.until("document.querySelectorAll('details.operation').length === 3");
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })");
    browser.until("document.querySelectorAll('form').length === 3");
    assert_eq!(browser.value("document.querySelector('#show .about').textContent"), wicked);
    assert_eq!(browser.value("document.images.length"), 0);
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for width in [1280, 360] {
            browser.resize(width, 800);
            browser.until(&format!("innerWidth === {width}"));
            browser.until("document.documentElement.scrollWidth <= innerWidth");
        }
        assert_eq!(browser.value(CONTRAST), serde_json::json!([]), "{scheme}");
    }
    assert_eq!(browser.complaints(), []);
}
