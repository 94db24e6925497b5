//! Do the page on the metrics port and the documentation's site work in a real browser?
//!
//! A server in a process of its own, that is asked, killed and started again, and a browser that
//! looks at it meanwhile; `site.rs` has what is about the site, `docs.rs` about the page of an interface, `events.rs` WebSockets and server-sent events.
#![forbid(unsafe_code)]

mod browser;
mod docs;
mod events;
mod site;

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use highwater::{Response, Router, Server, ServerConfig};
use highwater_testkit::{Load, Process, lasting_ports, program};

use browser::Browser;

/// A server on these two ports: its own, and for its metrics.
fn serve(first: u16) -> Process {
    let [listen, metrics] = [first, first + 1].map(|port| format!("127.0.0.1:{port}"));
    let mut command = program(env!("CARGO_BIN_EXE_strained"));
    let flags = ["--workers", "1", "--listen", &listen, "--metrics", &metrics];
    Process::start(command.args(flags))
}

fn page(server: &Process) -> String {
    format!("http://{}/", server.metrics())
}

/// That a rate shown under this id is a number above zero; a duration may be below the first bound.
fn moves(id: &str) -> String {
    format!("parseFloat(document.getElementById({id:?}).textContent.replace('< ', '')) > 0")
}

/// Purpose: an operator sees requests as they come, what was refused, that the server is gone and
/// that it is back; no rate is ever negative; and the console stays clean but for the requests that
/// a server which is gone does not answer.
#[test]
fn the_page_is_live() {
    let Some(mut browser) = Browser::start() else { return };
    let first = lasting_ports(2);
    let mut server = serve(first);
    browser.open(&page(&server));
    browser.until("document.getElementById('state').textContent === 'live'");
    assert!(browser.text("note").starts_with("No request yet."), "{}", browser.text("note"));
    assert_eq!(browser.text("nothing-refused"), "Nothing has been refused.");
    assert_eq!(browser.value("document.getElementById('banner').hidden"), true);

    let load = Load::on(server.address, "/");
    for id in ["requests", "goodput", "latency", "wait"] {
        browser.until(&moves(id));
    }
    browser.until("document.getElementById('note').hidden");
    browser.until(
        "document.getElementById('endpoints').tBodies[0].rows[0].cells[0].innerText === '/'",
    );
    browser.until("document.querySelectorAll('#charts path').length >= 6");
    browser.until("document.querySelectorAll('#workers li').length === 1");
    let mut garbage = server.connect();
    garbage.send(b"\r\r\r\r").expect("it is open");
    assert_eq!(garbage.answer().status, 400);
    browser.until(
        "document.getElementById('refused').innerText.includes('request: malformed_request')",
    );
    assert_eq!(browser.complaints(), []);

    server.kill();
    browser.until("!document.getElementById('banner').hidden");
    browser.until("document.getElementById('state').textContent === 'gone'");
    let banner = browser.text("banner");
    assert!(banner.contains("The server has been unreachable since "), "{banner}");
    assert!(banner.contains("does not accept connections"), "{banner}");
    assert!(
        browser.value("document.title").as_str().is_some_and(|title| title.starts_with("Gone: "))
    );

    let _server = serve(first);
    browser.until("document.getElementById('banner').hidden");
    browser.until("document.getElementById('state').textContent === 'live'");
    browser.until(&moves("requests"));
    let restarts = browser.value("points.filter(point => point.restarted).length");
    assert_eq!(restarts, 1);
    let negative = "points.some(point => point.now && [point.requests, point.good, point.refused,
        ...point.endpoints.map(endpoint => endpoint.rate)].some(rate => rate !== null && !(rate >= 0)))";
    assert_eq!(browser.value(negative), false);
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|complaint| complaint.source == "network"), "{complaints:?}");
    drop(load);
}

/// Purpose: the page can be read in light and in dark, on a wide screen and on a phone, and used by
/// keyboard and by screen readers.
#[test]
fn the_page_is_for_everybody() {
    let Some(mut browser) = Browser::start() else { return };
    let server = serve(lasting_ports(2));
    browser.open(&page(&server));
    let load = Load::on(server.address, "/");
    browser.until(&moves("requests"));

    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for width in [1280, 360] {
            browser.resize(width, 800);
            browser.until(&format!("innerWidth === {width}"));
            browser.until("document.documentElement.scrollWidth <= innerWidth");
        }
        let pale = browser.value(CONTRAST);
        assert_eq!(pale, serde_json::json!([]), "{scheme}");
        grounds.push(browser.value("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(grounds[0], grounds[1]);

    let labels = browser.value("[...document.querySelectorAll('svg')].map(svg => svg.ariaLabel)");
    let labels: Vec<String> = serde_json::from_value(labels).expect("each has one");
    assert_eq!(labels.len(), 4);
    assert!(labels[0].starts_with("Requests and goodput now: requests "), "{}", labels[0]);
    let focusable = "[...document.querySelectorAll('button, [tabindex=\"0\"]')].length";
    assert!(browser.value(focusable).as_u64() >= Some(5));

    browser.press("p");
    browser.until("document.getElementById('state').textContent === 'paused'");
    assert_eq!(browser.text("pause"), "Resume");
    browser.press("p");
    browser.until("document.getElementById('state').textContent === 'live'");
    assert_eq!(browser.complaints(), []);
    drop(load);
}

/// Texts whose contrast with the ground behind them is below 4.5, as WCAG 2 computes it.
const CONTRAST: &str = "(() => {
  const parse = color => color.match(/[\\d.]+/g).map(Number);
  const luminance = color => parse(color).slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (parse(color)[3] !== 0) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const texts = [...document.querySelectorAll('h1, h2, p, dt, dd, small, b, li, th, td, button, strong, .unit, .more')];
  return texts.filter(element => element.offsetParent && element.innerText.trim()).filter(element => {
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(ground(element))].sort((a, b) => b - a);
    return (a + 0.05) / (b + 0.05) < 4.5;
  }).map(element => element.innerText);
})()";

/// Purpose: whatever a server calls its endpoints and its reasons is shown as it is, and never becomes a
/// part of the page. The parser refuses the worst of it in a path, so another server says it here.
#[test]
fn names_are_text() {
    let Some(mut browser) = Browser::start() else { return };
    let wicked = "<img src=x onerror=alert(1)>\"&amp;'}\\{";
    let escaped = wicked.replace('\\', "\\\\").replace('"', "\\\"");
    let real = serve(lasting_ports(2));
    assert_eq!(real.get("/").status, 200);
    let page = real.get_metrics("/");
    let policy = page.header("content-security-policy").expect("it has one").to_owned();
    let html = page.text().to_owned();
    let metrics = real.metrics_page();
    let metrics = metrics.replace("{endpoint=\"/\"", &format!("{{endpoint=\"{escaped}\""));
    let metrics = metrics.replace("{mechanism=\"", &format!("{{mechanism=\"{escaped}"));

    let router = Router::new()
        .get("/", move || {
            Response::from(html.clone())
                .with_content_type("text/html; charset=utf-8")
                .with_header("content-security-policy", policy.as_str())
        })
        .get("/metrics", move || metrics.clone());
    let config = ServerConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        metrics: None,
        workers: NonZeroUsize::new(1),
        ..ServerConfig::default()
    };
    let server = Server::new(router).config(config).start().expect("loopback has free ports");
    browser.open(&format!("http://{}/", server.address()));
    browser.until("document.getElementById('endpoints').tBodies[0].rows.length === 1");
    let shown = browser.value("document.querySelector('#endpoints tbody td').innerText");
    assert_eq!(shown, wicked);
    let gate = browser.value("document.querySelector('#facts dd').innerText");
    assert!(gate.as_str().is_some_and(|gate| gate.starts_with(wicked)), "{gate}");
    assert_eq!(browser.value("document.images.length"), 0);
    assert_eq!(browser.complaints(), []);
}

/// Purpose: the browser is told what the page may do, and not to keep it: what the next version of a
/// server shows is that version's page.
#[test]
fn the_browser_is_told_to_be_careful() {
    let server = serve(lasting_ports(2));
    let reply = server.get_metrics("/");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let policy = reply.header("content-security-policy").expect("it has one");
    for part in ["default-src 'none'", "connect-src 'self'", "script-src 'sha256-"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(reply.text().starts_with("<!doctype html>"));
    assert!(reply.text().ends_with("</html>\n"));
}
