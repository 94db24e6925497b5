//! One event: what a plan of the feed becomes, and the JSON a client reads.
//!
//! An event's identity is a function of the feed's own two identifiers and nothing else, so it is
//! the same on every machine and for ever. Its JSON is written once, when it changes, and copied
//! from then on.

use std::io::Write as _;
use std::sync::Arc;

use jiff::civil::DateTime;
use uuid::Uuid;

use crate::money::Price;

/// A plan that was seen online, with everything the feed said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// See [`Event::identity`].
    pub id: Uuid,
    /// The feed's identifier of the base plan. It contains no colon.
    pub base_plan_id: Arc<str>,
    /// The feed's identifier of the plan within its base plan.
    pub plan_id: Arc<str>,
    /// The base plan's title; empty when the feed gives none.
    pub title: Arc<str>,
    /// When it starts: local time, no zone.
    pub start: DateTime,
    /// When it ends: local time, no zone, never before `start`.
    pub end: DateTime,
    /// When its sale opens, if the feed says.
    pub sell_from: Option<DateTime>,
    /// When its sale closes, if the feed says.
    pub sell_to: Option<DateTime>,
    /// Whether it is sold out, if the feed says so in words we know.
    pub sold_out: Option<bool>,
    /// The cheapest zone's price; `None` when it has no zones.
    pub min_price: Option<Price>,
    /// The dearest zone's price; `None` when it has no zones.
    pub max_price: Option<Price>,
}

impl Event {
    /// The UUIDv5 (RFC 9562 section 5.5) of `event:<base_plan_id>:<plan_id>` in the URL namespace.
    ///
    /// Two plans never share a name, because a base plan's identifier with a colon is refused.
    pub fn identity(base_plan_id: &str, plan_id: &str) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("event:{base_plan_id}:{plan_id}").as_bytes())
    }

    /// Appends the event as clients read it: one JSON object, its keys always in the same order.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        const INFALLIBLE: &str = "writing to a Vec cannot fail";
        let Event { id, start, end, .. } = self;
        write!(out, r#"{{"id":"{id}","title":"#).expect(INFALLIBLE);
        serde_json::to_writer(&mut *out, &*self.title).expect(INFALLIBLE);
        for (name, at) in [("start", start), ("end", end)] {
            let (date, time) = (at.date(), at.time());
            let (h, m, s) = (time.hour(), time.minute(), time.second());
            write!(out, r#","{name}_date":"{date}","{name}_time":"{h:02}:{m:02}:{s:02}""#)
                .expect(INFALLIBLE);
        }
        for (name, price) in [("min", self.min_price), ("max", self.max_price)] {
            match price {
                Some(price) => write!(out, r#","{name}_price":{price}"#),
                None => write!(out, r#","{name}_price":null"#),
            }
            .expect(INFALLIBLE);
        }
        out.push(b'}');
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use jiff::civil::datetime;

    /// An event of base plan 291 for tests that only care about one or two of its fields.
    pub(crate) fn sample(plan_id: &str, start: DateTime, end: DateTime, title: &str) -> Event {
        Event {
            id: Event::identity("291", plan_id),
            base_plan_id: "291".into(),
            plan_id: plan_id.into(),
            title: title.into(),
            start,
            end,
            sell_from: None,
            sell_to: Some(start),
            sold_out: Some(false),
            min_price: Price::parse("15.00"),
            max_price: Price::parse("30.50"),
        }
    }

    /// Purpose: the identity is the one any RFC 9562 implementation computes (here Python's `uuid.uuid5`).
    #[test]
    fn identity_is_uuid_v5() {
        let id = |base, plan| Event::identity(base, plan).to_string();
        assert_eq!(id("291", "1642"), "e500997c-3c5a-56e5-ba19-d0565abd32ea");
        assert_eq!(id("ñ", "a b"), "b8a65880-d365-57a7-984d-10387db48d3c");
    }

    /// Purpose: the JSON is the contract's, byte for byte, whatever the title contains.
    #[test]
    fn json_is_the_contract() {
        let start = datetime(2024, 6, 30, 21, 0, 0, 0);
        let mut event = sample(
            "1642",
            start,
            datetime(2024, 6, 30, 22, 30, 5, 999),
            "Camela \"en\"\u{1}\n</b>\\ñ",
        );
        let mut out = b"x".to_vec();
        event.write_json(&mut out);
        let expected = r#"x{"id":"e500997c-3c5a-56e5-ba19-d0565abd32ea","title":"Camela \"en\"\u0001\n</b>\\ñ","start_date":"2024-06-30","start_time":"21:00:00","end_date":"2024-06-30","end_time":"22:30:05","min_price":15,"max_price":30.5}"#;
        assert_eq!(std::str::from_utf8(&out), Ok(expected));
        (event.min_price, event.max_price) = (None, None);
        out.clear();
        event.write_json(&mut out);
        let read: serde_json::Value = serde_json::from_slice(&out).expect("valid JSON");
        assert_eq!(read["title"], "Camela \"en\"\u{1}\n</b>\\ñ");
        assert!(read["min_price"].is_null() && read["max_price"].is_null());
    }
}
