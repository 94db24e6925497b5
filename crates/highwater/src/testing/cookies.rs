//! Which cookies does a client keep? Those that answers set, by name, until an answer removes them.
//!
//! Where they belong (`Domain`, `Path`, `Secure`) makes no difference: a test has one server, and wants to see what it sets.

use std::collections::BTreeMap;
use std::time::SystemTime;

use highwater_core::http_date;
use highwater_core::time::UnixSeconds;
use http::{HeaderMap, header};

/// The value of each cookie, by its name.
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeMap<String, String>);

impl Kept {
    /// Keeps what an answer with these fields sets.
    pub(super) fn store(&mut self, fields: &HeaderMap) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = UnixSeconds(now.unwrap_or_default().as_secs());
        let values = fields.get_all(header::SET_COOKIE).iter();
        values.filter_map(|value| value.to_str().ok()).for_each(|text| self.set(text, now));
    }

    fn set(&mut self, text: &str, now: UnixSeconds) {
        let mut parts = text.split(';');
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
            return;
        };
        let (mut max_age, mut expires) = (None, None);
        for (attribute, value) in parts.filter_map(|part| part.split_once('=')) {
            let (attribute, value) = (attribute.trim(), value.trim());
            if attribute.eq_ignore_ascii_case("max-age") {
                max_age = value.parse::<i64>().ok();
            } else if attribute.eq_ignore_ascii_case("expires") {
                expires = http_date::parse(value.as_bytes(), now);
            }
        }
        // `Max-Age` counts before `Expires` (RFC 6265 §5.3).
        let is_over = match (max_age, expires) {
            (Some(seconds), _) => seconds <= 0,
            (None, Some(end)) => end <= now,
            (None, None) => false,
        };
        match is_over {
            true => self.0.remove(name.trim()),
            false => self.0.insert(name.trim().to_owned(), value.trim().to_owned()),
        };
    }

    /// The field that sends them, unless there is none.
    pub(super) fn field(&self) -> Option<String> {
        let pairs: Vec<_> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: cookies are replaced and removed as a browser would do it (RFC 6265 §5.3); a test that still sent a removed
    /// one would not see that a sign-out works.
    #[test]
    fn kept_until_they_are_removed() {
        let now = UnixSeconds(1_767_225_600); // 2026-01-01T00:00:00Z
        let cases: [(&str, Option<&str>); 9] = [
            ("a=1; Path=/; HttpOnly", Some("a=1")),
            ("b=x=y; Max-Age=60", Some("a=1; b=x=y")),
            ("a=2;max-age = 0", Some("b=x=y")),
            ("b=; Expires=Wed, 31 Dec 2025 23:59:59 GMT", None),
            ("c=3; Expires=Thu, 01 Jan 2026 00:00:01 GMT", Some("c=3")),
            ("c=4; Max-Age=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", Some("c=4")),
            ("nothing", Some("c=4")),
            ("c=5; Max-Age=soon", Some("c=5")),
            ("c=; Max-Age=-1", None),
        ];
        let mut kept = Kept::default();
        for (set, sent) in cases {
            kept.set(set, now);
            assert_eq!(kept.field().as_deref(), sent, "after {set}");
        }
    }
}
