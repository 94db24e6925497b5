//! How is an event formatted?
//!
//! Invariants: a line is one line, whatever its values contain; a value takes up at most
//! [`VALUE_SIZE_MAX`] bytes before it is escaped.

use std::backtrace::Backtrace;
use std::fmt::{self, Debug, Display, Write};
use std::panic::PanicHookInfo;
use std::thread;

use highwater_core::http_date::civil_from_days;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::LogFormat;
use crate::escape;

/// Longest value, in bytes; the rest is cut off and replaced by an ellipsis.
const VALUE_SIZE_MAX: usize = 2048;

/// The line, with its end, about an `event` at `millis` since the epoch.
pub(super) fn line(format: LogFormat, millis: u64, event: &Event<'_>) -> String {
    let mut line = Line::new(format);
    event.record(&mut line);
    line.end(millis, *event.metadata().level())
}

/// The line that reports how many lines were dropped.
pub(super) fn dropped(format: LogFormat, millis: u64, count: u64) -> String {
    let mut line = Line::new(format);
    line.message.push_str("log lines were dropped");
    line.bare("count", count);
    line.end(millis, Level::WARN)
}

/// The line about a panic on this thread, before which so many were suppressed; as text, with the lines of `backtrace` behind it.
pub(super) fn panicked(
    format: LogFormat,
    millis: u64,
    (panic, suppressed): (&PanicHookInfo<'_>, Option<u32>),
    backtrace: Option<&Backtrace>,
) -> String {
    let mut line = Line::new(format);
    line.message.push_str("a thread panicked");
    if let Some(suppressed) = suppressed {
        line.bare("suppressed", suppressed);
    }
    let thread = thread::current();
    line.text("thread", format_args!("{}", thread.name().unwrap_or_default()));
    if let Some(location) = panic.location() {
        line.text("location", format_args!("{location}"));
    }
    let cause = panic.payload_as_str().unwrap_or("no message");
    line.text("cause", format_args!("{cause}"));
    let Some(backtrace) = backtrace.map(Backtrace::to_string) else {
        return line.end(millis, Level::ERROR);
    };
    if line.is_json {
        line.name("backtrace");
        quote(&mut line.fields, &backtrace);
        return line.end(millis, Level::ERROR);
    }
    line.end(millis, Level::ERROR) + &backtrace
}

/// The parts of a line. An event's message may come after its fields.
struct Line {
    is_json: bool,
    message: String,
    fields: String,
}

impl Line {
    fn new(format: LogFormat) -> Self {
        Line { is_json: format == LogFormat::Json, message: String::new(), fields: String::new() }
    }

    fn name(&mut self, name: &str) {
        if self.is_json {
            self.fields.push(',');
            quote(&mut self.fields, name);
            self.fields.push(':');
        } else {
            append(&mut self.fields, format_args!(" {name}="));
        }
    }

    /// Adds a field whose value needs no quotes.
    fn bare(&mut self, name: &str, value: impl Display) {
        self.name(name);
        append(&mut self.fields, format_args!("{value}"));
    }

    /// Takes the message, or adds a field.
    fn text(&mut self, name: &str, value: fmt::Arguments<'_>) {
        let value = cut(value);
        if name == "message" {
            self.message = value;
            return;
        }
        self.name(name);
        let plain = |c: char| !c.is_control() && !c.is_whitespace() && !"\"=\\".contains(c);
        if self.is_json || value.is_empty() || !value.chars().all(plain) {
            quote(&mut self.fields, &value);
        } else {
            self.fields.push_str(&value);
        }
    }

    fn end(self, millis: u64, level: Level) -> String {
        let time = Timestamp(millis);
        let mut text = String::with_capacity(64 + self.message.len() + self.fields.len());
        if self.is_json {
            let level = level.as_str().to_ascii_lowercase();
            append(&mut text, format_args!("{{\"ts\":\"{time}\",\"level\":\"{level}\",\"msg\":"));
            quote(&mut text, &self.message);
            append(&mut text, format_args!("{}}}\n", self.fields));
        } else {
            append(&mut text, format_args!("{time} {:<5} ", level.as_str()));
            text.extend(self.message.chars().map(|c| if c.is_control() { ' ' } else { c }));
            append(&mut text, format_args!("{}\n", self.fields));
        }
        text
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field.name(), format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.bare(field.name(), value);
        } else {
            self.text(field.name(), format_args!("{value}"));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field.name(), value);
    }
}

fn append(text: &mut String, arguments: fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a String takes everything");
}

/// Appends `content` as a JSON string, which is fit for text lines as well.
fn quote(text: &mut String, content: &str) {
    text.push('"');
    escape::json(content, text);
    text.push('"');
}

/// Writes `value`, up to [`VALUE_SIZE_MAX`] bytes of it.
fn cut(value: impl Display) -> String {
    struct Cut(String);
    impl Write for Cut {
        fn write_str(&mut self, piece: &str) -> fmt::Result {
            let room = VALUE_SIZE_MAX - self.0.len();
            if piece.len() <= room {
                self.0.push_str(piece);
                return Ok(());
            }
            self.0.push_str(&piece[..piece.floor_char_boundary(room)]);
            Err(fmt::Error)
        }
    }
    let mut cut = Cut(String::new());
    if write!(cut, "{value}").is_err() {
        cut.0.push('…');
    }
    cut.0
}

/// Milliseconds since the epoch, as RFC 3339 writes them.
struct Timestamp(u64);

impl Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0 / 1000, self.0 % 1000);
        let (year, month, day) = civil_from_days(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::super::subscriber::tests::written;
    use super::*;

    /// Purpose: the two formats, byte by byte.
    #[test]
    fn formats_look_as_promised() {
        let emit = || {
            let address = std::net::Ipv4Addr::LOCALHOST;
            tracing::warn!(
                address = %address,
                absent = None::<u32>,
                open = 1024_usize,
                change = -3,
                ratio = 0.5,
                odd = f64::NAN,
                fine = false,
                why = "no descriptor left",
                nothing = "",
                plain = "plain",
                "accepting {}",
                "paused",
            );
        };
        assert_eq!(
            written(LogFormat::Text, emit),
            "2026-03-03T03:45:06.789Z WARN  accepting paused address=127.0.0.1 open=1024 change=-3 \
             ratio=0.5 odd=NaN fine=false why=\"no descriptor left\" nothing=\"\" plain=plain\n"
        );
        assert_eq!(
            written(LogFormat::Json, emit),
            "{\"ts\":\"2026-03-03T03:45:06.789Z\",\"level\":\"warn\",\"msg\":\"accepting paused\",\
             \"address\":\"127.0.0.1\",\"open\":1024,\"change\":-3,\"ratio\":0.5,\"odd\":\"NaN\",\
             \"fine\":false,\"why\":\"no descriptor left\",\"nothing\":\"\",\"plain\":\"plain\"}\n"
        );
    }

    /// Purpose: content from outside can neither forge a line nor flood the log, whichever way it is recorded.
    #[test]
    fn values_cannot_break_out() {
        let hostile = "x\"\r\n\u{1b}[31mfake\\\u{2028}";
        let escaped = "\"x\\\"\\r\\n\\u001b[31mfake\\\\\\u2028\"";
        assert_eq!(
            written(LogFormat::Text, || tracing::warn!(v = hostile, w = %hostile, "m\nn")),
            format!("2026-03-03T03:45:06.789Z WARN  m n v={escaped} w={escaped}\n")
        );
        let json = written(LogFormat::Json, || tracing::warn!("{hostile}"));
        assert!(json.ends_with(&format!("\"msg\":{escaped}}}\n")), "{json}");
        for size in [VALUE_SIZE_MAX - 1, VALUE_SIZE_MAX, VALUE_SIZE_MAX + 1] {
            let long = "x".repeat(size);
            let shown = cut(&long);
            assert_eq!(shown.len() > size, size > VALUE_SIZE_MAX, "{size}");
            assert_eq!(shown.ends_with('…'), size > VALUE_SIZE_MAX, "{size}");
        }
        let wide = "é".repeat(VALUE_SIZE_MAX);
        assert_eq!(cut(format!("x{wide}")).chars().count(), 1 + (VALUE_SIZE_MAX - 1) / 2 + 1);
    }

    /// Purpose: the report of dropped lines is a line like any other.
    #[test]
    fn what_was_dropped_is_a_line() {
        let millis = 951_782_400_007;
        assert_eq!(
            dropped(LogFormat::Text, millis, 3),
            "2000-02-29T00:00:00.007Z WARN  log lines were dropped count=3\n"
        );
        assert_eq!(
            dropped(LogFormat::Json, millis, 3),
            "{\"ts\":\"2000-02-29T00:00:00.007Z\",\"level\":\"warn\",\"msg\":\"log lines were dropped\",\
             \"count\":3}\n"
        );
    }
}
