//! How important is a request, when not all of them can be served?
//!
//! Read only while requests wait in the queue.

use std::fmt;

use highwater_core::http::Head;

/// How important the requests of a route are. While requests wait for their turn, the more important
/// go first, and under overload the less important are refused first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before the others.
    High,
    /// The usual priority.
    #[default]
    Normal,
    /// Only when there is time.
    Low,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Priority::High => "high",
            Priority::Normal => "normal",
            Priority::Low => "low",
        })
    }
}

impl Priority {
    /// The priority in the field `name` of a request: one of our names, or an urgency (RFC 9218 §4.1, 0 to 7,
    /// of which 3 is the default). Anything else is ignored.
    pub(crate) fn of_field(head: &Head<'_>, name: &str) -> Option<Priority> {
        let value = head.headers().get(name)?;
        let names = [Priority::High, Priority::Normal, Priority::Low];
        let named =
            |priority: &Priority| value.eq_ignore_ascii_case(priority.to_string().as_bytes());
        names.into_iter().find(named).or_else(|| {
            let mut members = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            match members.find_map(|member| member.strip_prefix(b"u="))? {
                b"0" | b"1" | b"2" => Some(Priority::High),
                b"3" => Some(Priority::Normal),
                b"4" | b"5" | b"6" | b"7" => Some(Priority::Low),
                _ => None,
            }
        })
    }
}
