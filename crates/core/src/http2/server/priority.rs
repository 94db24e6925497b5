//! In which order does a client want its answers (RFC 9218)? Priorities are hints: only the order of answers depends on
//! them.

/// The priority of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Priority {
    /// From 0, the most urgent, to 7.
    pub(super) urgency: u8,
    /// It shares the connection with others of its urgency; else one follows the other.
    pub(super) is_incremental: bool,
}

impl Priority {
    /// For a client that has not sent a priority: its answers take turns, so that a long one does not block others. By
    /// the RFC they would follow one another; but most such clients do not know priorities.
    pub(super) const UNKNOWN: Priority = Priority { urgency: 3, is_incremental: true };

    /// Reads a field value (RFC 9218 §4): `u=N` and `i`. An invalid member is ignored.
    pub(super) fn parse(value: &[u8]) -> Priority {
        let mut priority = Priority { urgency: 3, is_incremental: false };
        for member in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the values that browsers send are read, and others change nothing.
    #[test]
    fn values() {
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=5, i", 5, true),
            ("i,u=7", 7, true),
            ("i=?1", 3, true),
            ("u=1,i=?0", 1, false),
            ("u=8", 3, false),
            ("u=-1, x=2, i=1", 3, false),
        ] {
            let expected = Priority { urgency, is_incremental };
            assert_eq!(Priority::parse(value.as_bytes()), expected, "{value}");
        }
    }
}
