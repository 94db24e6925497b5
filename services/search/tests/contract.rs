//! What clients see, byte for byte: the real binary, over real sockets, with a feed small enough to
//! know by heart.

mod service;

use highwater_testkit::{Call, Document, Process, schemathesis, typescript};
use service::{provider, search, wait_for_poll};
use tempfile::TempDir;

/// Every form the feed has: three events of two base plans, one by the other names; one without
/// zones; one that is offline; and one whose day does not exist, beside a sound one.
const FEED: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<planList version="1.0"><output>
 <base_plan base_plan_id="291" sell_mode="online" title="Camela &amp; &quot;Ñu&quot;">
  <plan plan_id="291" plan_start_date="2021-06-30T21:00:00" plan_end_date="2021-06-30T22:00:00" sell_from="2020-07-01T00:00:00" sell_to="2021-06-30T20:00:00" sold_out="false">
   <zone zone_id="40" capacity="240" price="20.00" name="Platea" numbered="true"/>
   <zone zone_id="38" capacity="50" price="15.00" name="Grada 2" numbered="false"/>
   <zone zone_id="30" capacity="90" price="30.50" name="A28" numbered="true"/>
  </plan>
 </base_plan>
 <base_event base_event_id="322" sell_mode="online" title="Pantomima Full">
  <event event_id="1642" event_start_date="2021-02-10T20:00:00" event_end_date="2021-02-10T21:30:00"/>
  <event event_id="1643" event_start_date="2021-02-11T20:00:00" event_end_date="2021-02-12T00:00:00">
   <zone zone_id="311" capacity="2" price="55" name="A42" numbered="true"/>
  </event>
  <event event_id="1644" event_start_date="2021-02-30T20:00:00" event_end_date="2021-02-30T21:30:00"/>
 </base_event>
 <base_plan base_plan_id="444" sell_mode="offline" title="Never online">
  <plan plan_id="1" plan_start_date="2021-03-31T20:00:00" plan_end_date="2021-03-31T21:00:00"/>
 </base_plan>
</output></planList>
"#;

// The identifiers are those of Python's `uuid.uuid5(uuid.NAMESPACE_URL, "event:322:1642")`, ….
const PANTOMIMA_1: &str = r#"{"id":"2a6c67ba-04fc-500d-ad88-886784b5486a","title":"Pantomima Full","start_date":"2021-02-10","start_time":"20:00:00","end_date":"2021-02-10","end_time":"21:30:00","min_price":null,"max_price":null}"#;
const PANTOMIMA_2: &str = r#"{"id":"c6d7bbc7-a8fd-558e-9e0d-0a1af3b28fee","title":"Pantomima Full","start_date":"2021-02-11","start_time":"20:00:00","end_date":"2021-02-12","end_time":"00:00:00","min_price":55,"max_price":55}"#;
const CAMELA: &str = r#"{"id":"7e7cdd0e-f65b-5a19-9b48-5977c918d43e","title":"Camela & \"Ñu\"","start_date":"2021-06-30","start_time":"21:00:00","end_date":"2021-06-30","end_time":"22:00:00","min_price":15,"max_price":30.5}"#;

fn body(events: &[&str]) -> String {
    format!(r#"{{"data":{{"events":[{}]}},"error":null}}"#, events.join(","))
}

/// A service that has polled [`FEED`] once.
fn service() -> (Process, Process, TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let feed = directory.path().join("feed.xml");
    std::fs::write(&feed, FEED).expect("writable");
    let provider = provider(0, &["--file", feed.to_str().expect("a plain name")]);
    let search = search(provider.address, &directory.path().join("data"));
    let line = wait_for_poll(&search, "ok");
    assert!(
        line.contains(" online=3 new=3 changed=0 skipped=1 skipped_plans=date(322:1644)"),
        "{line}"
    );
    (search, provider, directory)
}

/// Purpose: the answers are the contract's, byte for byte, for every form of a bound.
#[test]
fn answers() {
    let (search, _provider, _directory) = service();
    let all: &[&str] = &[PANTOMIMA_1, PANTOMIMA_2, CAMELA];
    let cases: [(&str, &[&str]); 17] = [
        ("", all),
        ("?", all),
        // Dates: the first instant of the one, the last of the other.
        ("?starts_at=2021-02-10&ends_at=2021-06-30", all),
        ("?starts_at=2021-02-11", &[PANTOMIMA_2, CAMELA]),
        ("?ends_at=2021-02-10", &[PANTOMIMA_1]),
        ("?ends_at=2021-02-11", &[PANTOMIMA_1]),
        ("?ends_at=2021-02-12", &[PANTOMIMA_1, PANTOMIMA_2]),
        // Both bounds are inclusive, to the second.
        ("?starts_at=2021-06-30T21:00:00&ends_at=2021-06-30T22:00:00", &[CAMELA]),
        ("?starts_at=2021-06-30T21:00:01", &[]),
        ("?starts_at=2021-06-30T00:00:00&ends_at=2021-06-30T21:59:59", &[]),
        // UTC and offsets, escaped or not.
        ("?starts_at=2021-06-30T21:00:00Z", &[CAMELA]),
        ("?starts_at=2021-06-30T23:00:00%2B02:00", &[CAMELA]),
        ("?starts_at=2021-06-30T23:00:00+02:00", &[CAMELA]),
        ("?starts_at=2021-06-30T22:59:59-02:00", &[]),
        ("?ends_at=2021-02-10T16:30:00-05:00", &[PANTOMIMA_1]),
        // Neither a range far away nor an inverted one is an error.
        ("?starts_at=2017-07-21T17:32:28Z&ends_at=2019-07-21T17:32:28Z", &[]),
        ("?starts_at=2021-06-30&ends_at=2021-02-10", &[]),
    ];
    for (query, events) in cases {
        let answer = search.get(&format!("/search{query}"));
        assert_eq!(answer.text(), body(events), "{query}");
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    }
}

/// Purpose: a parameter that cannot be read is refused by name, with a message for people.
#[test]
fn broken_parameters() {
    let (search, _provider, _directory) = service();
    let cases = [
        ("starts_at=yesterday", "starts_at"),
        ("ends_at=2021-02-30", "ends_at"),
        ("starts_at=2021-06-30&ends_at=30/06/2021", "ends_at"),
        ("starts_at=2021-06-30T25:00:00Z", "starts_at"),
        ("starts_at=", "starts_at"),
        ("ends_at", "ends_at"),
        ("ends_at=2021-06-30&ends_at=2021-07-01", "ends_at"),
        ("starts_at=%zz", "starts_at"),
        ("starts_at=%22%5C%00", "starts_at"),
    ];
    for (query, parameter) in cases {
        let answer = search.get(&format!("/search?{query}"));
        assert_eq!((answer.status, answer.header("content-type")), (400, Some("application/json")));
        let prefix =
            format!(r#"{{"data":null,"error":{{"code":"invalid_parameter","message":"{parameter}"#);
        assert!(answer.text().starts_with(&prefix), "{query}: {}", answer.text());
        let read: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert!(
            read["error"]["message"]
                .as_str()
                .is_some_and(|message| message.contains("for example"))
        );
    }
}

/// Purpose: every other error has the same shape, those of the protocol engine included.
#[test]
fn errors_have_one_shape() {
    let (search, _provider, _directory) = service();
    let long = format!("GET /search?{} HTTP/1.1\r\nHost: test\r\n\r\n", "x".repeat(9000));
    let wide = format!("GET / HTTP/1.1\r\nHost: test\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let cases = [
        ("GET / HTTP/1.1\r\nHost: test\r\n\r\n", 404, "not_found"),
        ("GET /search/ HTTP/1.1\r\nHost: test\r\n\r\n", 404, "not_found"),
        (
            "POST /search HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\n{}",
            405,
            "method_not_allowed",
        ),
        ("DELETE /health HTTP/1.1\r\nHost: test\r\n\r\n", 405, "method_not_allowed"),
        ("GET /search HTTP/1.1\r\n\r\n", 400, "invalid_request"),
        ("GET /search\r\nHost: test\r\n\r\n", 400, "invalid_request"),
        ("GET /search HTTP/3.0\r\nHost: test\r\n\r\n", 505, "invalid_request"),
        (&long, 414, "invalid_request"),
        (&wide, 431, "invalid_request"),
    ];
    for (sent, status, code) in cases {
        let answer = search.ask(sent);
        let shown = &sent[..sent.len().min(80)];
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, Some("application/json")),
            "{shown}"
        );
        let read: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(read["error"]["code"], code, "{shown}");
        assert!(read["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
        assert_eq!(
            read.as_object().expect("an object").get("data"),
            Some(&serde_json::Value::Null)
        );
        let allow = (status == 405).then_some("GET, HEAD, OPTIONS");
        assert_eq!(answer.header("allow"), allow, "{shown}");
    }
}

/// Purpose: `HEAD` is `GET` without the body, on both routes; and health is what it always was.
#[test]
fn head_and_health() {
    let (search, _provider, _directory) = service();
    let health = search.get("/health");
    assert_eq!((health.status, health.text()), (200, r#"{"status":"healthy"}"#));
    for target in ["/health", "/search", "/search?starts_at=2021-02-11", "/search?starts_at=x"] {
        let got = search.get(target);
        let head = search.ask(format!("HEAD {target} HTTP/1.1\r\nHost: test\r\n\r\n"));
        let heads = [&got, &head].map(|answer| {
            let kept = answer.headers.iter().filter(|(name, _)| name != "date");
            (answer.status, kept.collect::<Vec<_>>())
        });
        assert_eq!(heads[0], heads[1], "{target}");
    }
}

/// Purpose: what the service counts is what happened, under the names of the contract.
#[test]
fn metrics() {
    let (search, _provider, _directory) = service();
    let metric = |sample: &str| search.metric(sample);
    assert_eq!((metric("http_store_size"), metric("http_cache_size")), (3.0, 0.0));
    assert_eq!((metric("http_cache_hits"), metric("http_cache_misses")), (0.0, 0.0));
    for _ in 0..3 {
        search.get("/search");
        search.get("/search?starts_at=2021-02-11");
        search.get("/search?starts_at=2021-02-11T00:00:00Z");
    }
    // Two of the three ask for the same range: one answer.
    assert_eq!((metric("http_cache_hits"), metric("http_cache_misses")), (7.0, 2.0));
    assert_eq!(metric("http_cache_size"), 2.0);
    assert_eq!(metric(r#"http_requests_by_endpoint{endpoint="search"}"#), 9.0);
    assert_eq!((metric("search_store_version"), metric("search_events_refused_total")), (1.0, 0.0));
    assert!(metric(r#"search_polls_total{outcome="ok"}"#) >= 1.0);
    assert_eq!(metric(r#"search_polls_total{outcome="failed"}"#), 0.0);
    assert!(metric(r#"search_plans_skipped_total{reason="date"}"#) >= 1.0);
    assert_eq!(metric(r#"search_plans_skipped_total{reason="price"}"#), 0.0);
    assert!(metric("search_last_success_timestamp_seconds") > 1.7e9);
    assert_eq!(search.get_metrics("/readyz").status, 200);
}

/// Purpose: what `/openapi.json` says is what the service does, with events and without, and for errors.
#[test]
fn the_document_is_true() {
    let (search, _provider, _directory) = service();
    let document = Document::new(search.get("/openapi.json").text());
    assert_eq!(document.problems(), Vec::<String>::new());
    assert!(search.get("/docs").text().starts_with("<!doctype html>"));
    let check = |call: &Call, target: &str, status: u16| {
        let answer = search.get(target);
        assert_eq!(answer.status, status, "{target}");
        document.check(call, status, answer.header("content-type"), &answer.body).expect(target);
    };
    let calls = document.calls();
    assert_eq!(calls.len(), 2);
    for call in &calls {
        check(call, &call.target, 200);
        if call.template == "/search" {
            check(call, "/search?starts_at=2021-02-10&ends_at=2021-06-30", 200);
            check(call, "/search?starts_at=2030-01-01", 200);
            check(call, "/search?starts_at=x", 400);
        }
    }
}

/// Purpose: so it is for whatever a client may send that the document allows, and much that it does not.
#[test]
fn the_document_is_true_for_values_that_nobody_thought_of() {
    let (search, _provider, _directory) = service();
    schemathesis(&format!("http://{}/openapi.json", search.address), &[]);
}

/// Purpose: a client that a tool makes of the document compiles, strictly, and does with the service what its types say.
#[test]
fn a_client_in_typescript() {
    let (search, _provider, _directory) = service();
    typescript(&format!("http://{}/openapi.json", search.address), "search.ts", &[]);
}
