//! How is an event written down?
//!
//! Invariants: a line is one line, whatever its values contain; a value takes up at most
//! [`VALUE_SIZE_MAX`] bytes before it is escaped.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};
use std::net::SocketAddr;

use super::LogFormat;

/// Longest value, in bytes; what follows is cut off and replaced by an ellipsis.
const VALUE_SIZE_MAX: usize = 2048;

/// How much attention a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something will fail, or works worse than it could.
    Warn,
    /// Something happened.
    Info,
}

/// A field's value.
#[derive(Clone)]
pub enum Value<'a> {
    /// A number from zero up.
    Unsigned(u64),
    /// A number.
    Signed(i64),
    /// A number that need not be whole.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// Where somebody listens.
    Address(SocketAddr),
    /// Text.
    Text(Cow<'a, str>),
    /// Text that is made when it is written.
    Shown(&'a dyn Display),
    /// None: the field is left out.
    Absent,
}

macro_rules! values {
    ($($variant:ident: $($from:ty),+;)+) => {$($(
        impl From<$from> for Value<'_> {
            fn from(value: $from) -> Self {
                Value::$variant(value.into())
            }
        }
    )+)+};
}

values! {
    Unsigned: u8, u16, u32, u64;
    Signed: i8, i16, i32, i64;
    Float: f32, f64;
    Bool: bool;
    Address: SocketAddr;
}

impl From<usize> for Value<'_> {
    fn from(value: usize) -> Self {
        Value::Unsigned(value as u64)
    }
}

macro_rules! texts {
    ($($from:ty),+) => {$(
        impl<'a> From<$from> for Value<'a> {
            fn from(value: $from) -> Self {
                Value::Text(value.into())
            }
        }
    )+};
}

texts!(&'a str, &'a String, String, Cow<'a, str>);

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Absent, Into::into)
    }
}

impl Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(value) => value.fmt(f),
            Value::Signed(value) => value.fmt(f),
            Value::Float(value) => value.fmt(f),
            Value::Bool(value) => value.fmt(f),
            Value::Address(value) => value.fmt(f),
            Value::Text(value) => f.write_str(value),
            Value::Shown(value) => value.fmt(f),
            Value::Absent => Ok(()),
        }
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// A line that is being written.
pub(super) struct Line {
    format: LogFormat,
    text: String,
}

/// Begins a line about what happened at `millis` since the epoch.
pub(super) fn begin(format: LogFormat, millis: u64, level: Level, message: &str) -> Line {
    let mut line = Line { format, text: String::with_capacity(128) };
    let time = Timestamp(millis);
    let text = &mut line.text;
    match format {
        LogFormat::Json => {
            let level = match level {
                Level::Error => "error",
                Level::Warn => "warn",
                Level::Info => "info",
            };
            append(text, format_args!("{{\"ts\":\"{time}\",\"level\":\"{level}\",\"msg\":"));
            quote(text, &cut(message));
        }
        LogFormat::Text | LogFormat::Off => {
            let level = match level {
                Level::Error => "ERROR",
                Level::Warn => "WARN ",
                Level::Info => "INFO ",
            };
            append(text, format_args!("{time} {level} "));
            text.extend(cut(message).chars().map(|c| if c.is_control() { ' ' } else { c }));
        }
    }
    line
}

impl Line {
    /// Adds a field.
    pub(super) fn field(&mut self, key: &str, value: &Value<'_>) {
        if matches!(value, Value::Absent) {
            return;
        }
        let text = &mut self.text;
        if self.format == LogFormat::Json {
            append(text, format_args!(",\"{key}\":"));
        } else {
            append(text, format_args!(" {key}="));
        }
        match value {
            Value::Unsigned(_) | Value::Signed(_) | Value::Bool(_) => {
                append(text, format_args!("{value}"));
            }
            Value::Float(number) if number.is_finite() => append(text, format_args!("{number}")),
            _ => {
                let shown = cut(value);
                let plain = |c: char| !c.is_control() && !c.is_whitespace() && !"\"=\\".contains(c);
                if self.format == LogFormat::Json || shown.is_empty() || !shown.chars().all(plain) {
                    quote(text, &shown);
                } else {
                    text.push_str(&shown);
                }
            }
        }
    }

    /// The line, with its end.
    pub(super) fn end(mut self) -> String {
        if self.format == LogFormat::Json {
            self.text.push('}');
        }
        self.text.push('\n');
        self.text
    }
}

fn append(text: &mut String, arguments: fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a String takes everything");
}

/// Appends `content` as a JSON string (RFC 8259 §7), which is fit for text lines as well.
fn quote(text: &mut String, content: &str) {
    text.push('"');
    for character in content.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            // C1 controls and the separators U+2028 and U+2029 end lines for some readers.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                append(text, format_args!("\\u{:04x}", u32::from(c)));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// Writes `value` out, up to [`VALUE_SIZE_MAX`] bytes of it.
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
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// The date `days` after 1970-01-01 (H. Hinnant, "chrono-compatible low-level date algorithms",
/// `civil_from_days`; its years begin in March, so that the leap day comes last).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: LogFormat, message: &str, fields: &[(&str, Value<'_>)]) -> String {
        let mut line = begin(format, 1_772_509_506_789, Level::Warn, message);
        for (key, value) in fields {
            line.field(key, value);
        }
        line.end()
    }

    /// Purpose: the two formats, byte by byte.
    #[test]
    fn formats_look_as_promised() {
        let address = std::net::Ipv4Addr::LOCALHOST;
        let fields = [
            ("address", Value::Shown(&address)),
            ("absent", Value::from(None::<u32>)),
            ("open", Value::from(1024_u32)),
            ("change", Value::from(-3)),
            ("ratio", Value::from(0.5)),
            ("odd", Value::from(f64::NAN)),
            ("fine", Value::from(false)),
            ("why", Value::from("no descriptor left")),
            ("nothing", Value::from("")),
        ];
        assert_eq!(
            line(LogFormat::Text, "accepting paused", &fields),
            "2026-03-03T03:45:06.789Z WARN  accepting paused address=127.0.0.1 open=1024 change=-3 \
             ratio=0.5 odd=NaN fine=false why=\"no descriptor left\" nothing=\"\"\n"
        );
        assert_eq!(
            line(LogFormat::Json, "accepting paused", &fields),
            "{\"ts\":\"2026-03-03T03:45:06.789Z\",\"level\":\"warn\",\"msg\":\"accepting paused\",\
             \"address\":\"127.0.0.1\",\"open\":1024,\"change\":-3,\"ratio\":0.5,\"odd\":\"NaN\",\
             \"fine\":false,\"why\":\"no descriptor left\",\"nothing\":\"\"}\n"
        );
    }

    /// Purpose: content from outside can neither forge a line nor flood the log.
    #[test]
    fn values_cannot_break_out() {
        let hostile = "x\"\r\n\u{1b}[31mfake\\\u{2028}";
        assert_eq!(
            line(LogFormat::Text, "m\nn", &[("v", Value::from(hostile))]),
            "2026-03-03T03:45:06.789Z WARN  m n v=\"x\\\"\\r\\n\\u001b[31mfake\\\\\\u2028\"\n"
        );
        let json = line(LogFormat::Json, hostile, &[]);
        assert!(json.ends_with("\"msg\":\"x\\\"\\r\\n\\u001b[31mfake\\\\\\u2028\"}\n"), "{json}");
        for size in [VALUE_SIZE_MAX - 1, VALUE_SIZE_MAX, VALUE_SIZE_MAX + 1] {
            let long = "x".repeat(size);
            let shown = cut(&long);
            assert_eq!(shown.len() > size, size > VALUE_SIZE_MAX, "{size}");
            assert_eq!(shown.ends_with('…'), size > VALUE_SIZE_MAX, "{size}");
        }
        let wide = "é".repeat(VALUE_SIZE_MAX);
        assert_eq!(cut(format!("x{wide}")).chars().count(), 1 + (VALUE_SIZE_MAX - 1) / 2 + 1);
    }

    /// Purpose: dates as `date --utc` gives them, around leap days and centuries.
    #[test]
    fn timestamps_are_rfc_3339() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(seconds * 1000).to_string(), expected);
        }
    }
}
