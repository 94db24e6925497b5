//! One event, as it goes over the wire (WHATWG HTML §9.2.5).

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;

#[cfg(feature = "json")]
use crate::app::Error;

/// An event for a browser's `EventSource`, or a comment, which pages do not see.
///
/// ```
/// use highwater::sse::Event;
///
/// let event = Event::data("line one\nline two").event("note").id(7);
/// assert_eq!(&event.to_bytes()[..], b"event: note\nid: 7\ndata: line one\ndata: line two\n\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Everything but the end.
    lines: String,
    data: Option<String>,
}

impl Event {
    /// An event with this data, of any number of lines. A line ends with a line feed, a carriage return, or both; the page
    /// gets a line feed.
    pub fn data(data: impl Into<String>) -> Event {
        Event { data: Some(data.into()), ..Event::default() }
    }

    /// An event whose data is `value` as JSON.
    ///
    /// # Errors
    /// 500 if `value` cannot be serialized.
    #[cfg(feature = "json")]
    pub fn json(value: &(impl serde_core::Serialize + ?Sized)) -> Result<Event, Error> {
        serde_json::to_string(value).map(Event::data).map_err(Error::internal)
    }

    /// A comment: it keeps a silent connection alive. Line breaks become spaces.
    pub fn comment(text: &str) -> Event {
        Event::default().line("", text)
    }

    /// An event that only sets the time after which a disconnected client reconnects.
    pub fn retry_only(after: Duration) -> Event {
        Event::default().retry(after)
    }

    /// The event's type, for the page's listeners: `message` unless this is set. Line breaks become spaces.
    #[must_use]
    pub fn event(self, name: &str) -> Event {
        self.line("event", name)
    }

    /// The event's id, which a client sends when it reconnects ([`LastEventId`](super::LastEventId)). Line breaks become
    /// spaces, and so do NULs, since a browser ignores an id with one.
    #[must_use]
    pub fn id(self, id: impl std::fmt::Display) -> Event {
        let id = id.to_string().replace('\0', " ");
        self.line("id", &id)
    }

    /// The time after which a disconnected client reconnects, in whole milliseconds.
    #[must_use]
    pub fn retry(self, after: Duration) -> Event {
        let millis = after.as_millis();
        self.line("retry", &millis.to_string())
    }

    fn line(mut self, name: &str, value: &str) -> Event {
        let value = value.replace(['\r', '\n'], " ");
        let written = writeln!(self.lines, "{name}: {value}");
        debug_assert!(written.is_ok(), "memory takes everything");
        self
    }

    /// The event as it is sent.
    pub fn to_bytes(&self) -> Bytes {
        let data = self.data.as_deref();
        let mut bytes =
            String::with_capacity(self.lines.len() + data.map_or(1, |data| data.len() + 8));
        bytes.push_str(&self.lines);
        for line in data.into_iter().flat_map(lines) {
            bytes.push_str("data: ");
            bytes.push_str(line);
            bytes.push('\n');
        }
        bytes.push('\n');
        bytes.into()
    }
}

/// The lines of a text, whatever they end with; an empty text has one.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\r', '\n']) else { return rest.take() };
        let is_both = text[end..].starts_with("\r\n");
        rest = Some(&text[end + if is_both { 2 } else { 1 }..]);
        Some(&text[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(event: &Event) -> String {
        String::from_utf8(event.to_bytes().to_vec()).expect("it was text")
    }

    /// Purpose: data keeps its lines, whatever they end with, also empty ones; no value can begin a line of its own, which
    /// would let one client's text forge events of others.
    #[test]
    fn lines_cannot_be_forged() {
        for (data, expected) in [
            ("", "data: \n\n"),
            ("a", "data: a\n\n"),
            ("a\nb", "data: a\ndata: b\n\n"),
            ("a\r\nb\rc\n", "data: a\ndata: b\ndata: c\ndata: \n\n"),
            ("a\n\nid: 1", "data: a\ndata: \ndata: id: 1\n\n"),
        ] {
            assert_eq!(sent(&Event::data(data)), expected, "{data:?}");
        }
        let forged = Event::data("x").event("a\nid: 9").id("7\r\ndata: y\0");
        assert_eq!(sent(&forged), "event: a id: 9\nid: 7  data: y \ndata: x\n\n");
    }

    /// Purpose: comments and retries alone are no events: they have no data.
    #[test]
    fn without_data() {
        assert_eq!(sent(&Event::comment("still here")), ": still here\n\n");
        assert_eq!(sent(&Event::retry_only(Duration::from_millis(1500))), "retry: 1500\n\n");
    }
}
