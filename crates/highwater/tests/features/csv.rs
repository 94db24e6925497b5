//! Rows of CSV: what answers look like to the byte, how they end, what they hold in memory, and what uploads are refused.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use highwater::testing::{Client, Response};
use highwater::{CSV_ROWS_MAX, Csv, Handler as _, IntoResponse, Method, Router};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Row {
    name: String,
    count: Option<i64>,
    share: f64,
    is_new: bool,
}

fn row(name: &str, count: Option<i64>) -> Row {
    Row { name: name.to_owned(), count, share: 0.5, is_new: true }
}

fn answer<R: IntoResponse + 'static>(rows: fn() -> R) -> Response {
    Client::new(Router::new().get("/", rows)).get("/")
}

/// Purpose: fields are quoted as RFC 4180 §2 says: with a comma, a quote or a line end, and only then; quotes are doubled,
/// lines end with CRLF, nothing is an empty field.
#[test]
fn quoted_as_rfc_4180() {
    let answer = answer(|| {
        Csv([
            row("plain", Some(-1)),
            row("a,b", None),
            row("say \"hi\"", Some(0)),
            row("two\r\nlines", None),
        ])
    });
    assert_eq!(answer.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    let expected = "name,count,share,is_new\r\nplain,-1,0.5,true\r\n\"a,b\",,0.5,true\r\n\
                    \"say \"\"hi\"\"\",0,0.5,true\r\n\"two\r\nlines\",,0.5,true\r\n";
    assert_eq!(answer.text(), expected);
}

/// Purpose: a header row that was given is sent whether or not there are rows; without one, no rows are no content.
#[test]
fn header_rows() {
    assert_eq!(answer(|| Csv(Vec::<Row>::new())).text(), "");
    assert_eq!(answer(|| Csv(Vec::<Row>::new()).header(["a", "b,c"])).text(), "a,\"b,c\"\r\n");
    assert_eq!(answer(|| Csv([("x", 1)]).header(["a", "b"])).text(), "a,b\r\nx,1\r\n");
}

/// Purpose: rows without names are a mistake of the program, which ends the answer visibly instead of giving a client its
/// first row as a header.
#[test]
fn rows_without_names() {
    let (received, has_ended) = received(|| Csv([("x", 1), ("y", 2)]));
    assert!(has_ended && !received.ends_with(LAST_CHUNK), "{received}");
}

/// Purpose: what a spreadsheet would run is text, if that was asked for, in iterators and streams; numbers stay numbers,
/// and without the setting nothing is changed.
#[test]
fn formulas() {
    let rows = || [row("=1+1", Some(-5)), row("@a,b", None)];
    let escaped =
        Client::new(Router::new().get("/", move || Csv(rows()).escape_formulas())).get("/");
    assert_eq!(
        escaped.text(),
        "name,count,share,is_new\r\n'=1+1,-5,0.5,true\r\n\"'@a,b\",,0.5,true\r\n"
    );
    let plain = Client::new(Router::new().get("/", move || Csv(rows()))).get("/");
    assert!(plain.text().contains("\r\n=1+1,-5,"), "{}", plain.text());
}

/// Rows of a query: some, then a pause, then more, and perhaps an error.
struct Query {
    next: u32,
    rows: u32,
    fails: bool,
    has_paused: bool,
}

impl Stream for Query {
    type Item = Result<Row, &'static str>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.next == 2 && !self.has_paused {
            self.has_paused = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.next < self.rows {
            self.next += 1;
            return Poll::Ready(Some(Ok(row(&self.next.to_string(), None))));
        }
        match std::mem::take(&mut self.fails) {
            true => Poll::Ready(Some(Err("the database has gone"))),
            false => Poll::Ready(None),
        }
    }
}

fn query(rows: u32, fails: bool) -> Query {
    Query { next: 0, rows, fails, has_paused: false }
}

/// Purpose: a stream's rows all come, with one header row, however they were cut into pieces.
#[test]
fn streams() {
    let answer = answer(|| Csv::stream(query(5000, false)));
    let lines: Vec<&str> = answer.text().split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 5001);
    assert_eq!((lines[0], lines[5000]), ("name,count,share,is_new", "5000,,0.5,true"));
    assert_eq!(answer.text().matches("name").count(), 1);
}

/// What is received of an answer, and whether its connection has ended.
fn received<R: IntoResponse + 'static>(
    rows: impl Fn() -> R + Send + Sync + 'static,
) -> (String, bool) {
    let client = Client::new(Router::new().get("/", rows));
    let mut connection = client.connect();
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let received = String::from_utf8_lossy(connection.received()).into_owned();
    (received, connection.is_closed() || connection.is_reset())
}

/// The end of an answer that is whole.
const LAST_CHUNK: &str = "\r\n0\r\n\r\n";

/// Purpose: an error in the middle is seen by the client, wherever it comes: there is no last chunk, and the connection ends.
/// Without one both are as they should be.
#[test]
fn a_stream_that_fails() {
    for rows in [0, 1, 3, 2000] {
        let (whole, has_ended) = received(move || Csv::stream(query(rows, false)));
        assert!(!has_ended && whole.ends_with(LAST_CHUNK), "{rows} rows: {whole}");
        let (cut, has_ended) = received(move || Csv::stream(query(rows, true)));
        assert!(has_ended && !cut.ends_with(LAST_CHUNK), "{rows} rows: {cut}");
    }
}

#[derive(Serialize)]
struct Uneven {
    a: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<u32>,
}

/// Purpose: a row with another number of fields than the first would shift the columns of a reader; it ends the answer, in
/// whichever piece it comes.
#[test]
fn rows_of_other_lengths() {
    for even in [1, 5000] {
        let rows = move |last| (0..=even).map(move |a| Uneven { a, b: (a < last).then_some(7) });
        let (whole, has_ended) = received(move || Csv(rows(even + 1)));
        assert!(!has_ended && whole.ends_with(LAST_CHUNK), "{even}");
        let (cut, has_ended) = received(move || Csv(rows(even)));
        assert!(has_ended && !cut.ends_with(LAST_CHUNK), "{even}");
    }
}

/// Purpose: rows are made only as fast as the client reads: with a client that reads nothing more, only a bounded number
/// of a million rows is made.
#[test]
fn made_as_it_is_read() {
    let made = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&made);
    let rows = move || {
        let made = Arc::clone(&counted);
        Csv((0..1_000_000).map(move |_| {
            made.fetch_add(1, Ordering::Relaxed);
            row("x", None)
        }))
    };
    let client = Client::new(Router::new().get("/", rows));
    let mut connection = client.connect_slow(1000);
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.read(1000);
    let first = made.load(Ordering::Relaxed);
    // A row has 13 bytes: 64 KiB are encoded ahead, and a piece of up to 24 KiB stands behind them.
    assert!((1..20_000).contains(&first), "{first} rows");
    let read: usize = (0..200).map(|_| connection.read(1000).len()).sum();
    assert!(read > 100_000, "{read} bytes");
    let then = made.load(Ordering::Relaxed);
    assert!(then > first && then < 60_000, "{then} rows");
}

fn upload(content_type: &str, body: impl Into<highwater::Bytes>) -> Response {
    let take = |Csv(rows): Csv<Vec<Row>>| format!("{rows:?}");
    let client = Client::new(Router::new().post("/", take.body_max(8 << 20)));
    client.request(Method::POST, "/").header("content-type", content_type).body(body).send()
}

const NAMES: &str = "name,count,share,is_new\n";

/// Purpose: an upload is what an answer is, in any order of columns, with a byte order mark, other line ends or quotes, and
/// without a header row if the type says so.
#[test]
fn uploads() {
    let rows = [row("a,\"b\"\r\nc", Some(3)), row("", None)];
    let expected = format!("{rows:?}");
    let bodies = [
        format!("{NAMES}\"a,\"\"b\"\"\r\nc\",3,0.5,true\n,,0.5,true\n"),
        format!("\u{feff}{NAMES}\"a,\"\"b\"\"\r\nc\",3,0.5,true\r\n\"\",,0.5,true"),
        String::from(
            "count,more,is_new,share,name\n3,x,true,0.5,\"a,\"\"b\"\"\r\nc\"\n,,true,0.5,\n",
        ),
    ];
    for body in bodies {
        let answer = upload("Text/CSV; charset=utf-8", body.clone());
        assert_eq!((answer.status.as_u16(), answer.text()), (200, expected.as_str()), "{body}");
    }
    let absent = upload("text/csv; header=absent", "x,1,0.5,true\n");
    assert_eq!(absent.text(), format!("{:?}", [row("x", Some(1))]));
    assert_eq!(upload("text/csv", NAMES).text(), "[]");
}

/// Purpose: what is refused says where it is wrong, and by which status: the type, the form, a value, the number of rows.
#[test]
fn uploads_that_are_refused() {
    let many = |rows: usize| NAMES.to_owned() + &"x,,1,true\n".repeat(rows);
    let cases: [(&str, Vec<u8>, u16, &[&str]); 8] = [
        ("application/json", b"[]".to_vec(), 415, &["text/csv"]),
        ("text/csvs", NAMES.into(), 415, &["text/csv"]),
        ("text/csv", b"".to_vec(), 400, &["invalid_csv", "header row"]),
        ("text/csv", format!("{NAMES}x,1\n").into(), 400, &["invalid_csv", "line 2", "2 fields"]),
        ("text/csv", [NAMES.as_bytes(), b"\xff,1,1,true\n"].concat(), 400, &["line 2", "UTF-8"]),
        (
            "text/csv",
            format!("{NAMES}x,1,1,true\nx,many,1,true\n").into(),
            422,
            &["invalid_body", "line 3", "`count`"],
        ),
        ("text/csv", b"name\nx\n".to_vec(), 422, &["invalid_body", "line 2", "share"]),
        ("text/csv", many(CSV_ROWS_MAX + 1).into(), 413, &["too_many_rows", "100000"]),
    ];
    for (content_type, body, status, words) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let answer = upload(content_type, body);
        assert_eq!(answer.status.as_u16(), status, "{shown}: {}", answer.text());
        for word in words {
            assert!(answer.text().contains(word), "{shown}: no {word:?} in {}", answer.text());
        }
    }
    assert_eq!(upload("text/csv", many(CSV_ROWS_MAX)).status, 200);
}
