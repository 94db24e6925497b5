//! Generates a feed from a seed: the same seed gives the same feed on every machine.

use std::fmt::Write as _;

use fastrand::Rng;
use jiff::ToSpan as _;
use jiff::civil::{DateTime, datetime};

/// When the first event can start. The last starts less than [`SPAN_MINUTES`] later.
const FIRST: DateTime = datetime(2024, 1, 1, 0, 0, 0, 0);
const SPAN_MINUTES: u64 = 3 * 365 * 24 * 60;

const ACTS: [&str; 8] = [
    "Camela",
    "Pantomima Full",
    "Los Morancos",
    "Tributo a Juanito Valderrama",
    "Coro & Orquesta",
    "Ballet de Ñuñoa",
    "\"La Voz\"",
    "Café <Teatro>",
];
const PLACES: [&str; 6] =
    ["en concierto", "en vivo", "— gira", "sin filtros", "al aire libre", "de cerca"];
const ZONES: [&str; 4] = ["Platea", "Grada", "Anfiteatro", "Palco"];

/// A feed of `events` plans that are online, and about a tenth as many that are not.
pub fn generate(events: usize, seed: u64) -> String {
    let mut rng = Rng::with_seed(seed);
    let mut feed = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<planList version=\"1.0\"><output>\n",
    );
    let (mut left, mut base) = (events, 0);
    while left > 0 {
        base += 1;
        let online = rng.u64(..11) > 0;
        let plans = left.min(rng.usize(1..=4));
        left -= if online { plans } else { 0 };
        write_base(&mut feed, base, online, plans, &mut rng);
    }
    feed.push_str("</output></planList>\n");
    feed
}

const INFALLIBLE: &str = "writing to a String cannot fail";

fn write_base(feed: &mut String, base: usize, online: bool, plans: usize, rng: &mut Rng) {
    let mode = if online { "online" } else { "offline" };
    let act = ACTS[rng.usize(..ACTS.len())];
    let place = PLACES[rng.usize(..PLACES.len())];
    let title = quick_xml::escape::escape(format!("{act} {place}")).into_owned();
    writeln!(feed, r#" <base_plan base_plan_id="{base}" sell_mode="{mode}" title="{title}">"#)
        .expect(INFALLIBLE);
    for plan in 1..=plans {
        write_plan(feed, base * 10 + plan, rng);
    }
    feed.push_str(" </base_plan>\n");
}

fn write_plan(feed: &mut String, plan: usize, rng: &mut Rng) {
    let after = |from: DateTime, minutes: u64| {
        from.checked_add((minutes as i64).minutes())
            .expect("some years after 2024 is within the calendar")
    };
    let start = after(FIRST, rng.u64(..SPAN_MINUTES / 15) * 15);
    let end = after(start, 60 + rng.u64(..8) * 15);
    let sold_out = rng.u64(..5) == 0;
    write!(
        feed,
        r#"  <plan plan_id="{plan}" plan_start_date="{start}" plan_end_date="{end}" sell_from="{FIRST}" sell_to="{start}" sold_out="{sold_out}">"#
    )
    .expect(INFALLIBLE);
    for (id, name) in ZONES.iter().enumerate().take(rng.usize(..5)) {
        let (capacity, cents) = (rng.u64(..500), rng.u64(..10_000));
        let (euros, cents) = (cents / 100, cents % 100);
        write!(
            feed,
            r#"<zone zone_id="{id}" capacity="{capacity}" price="{euros}.{cents:02}" name="{name}" numbered="{}"/>"#,
            id % 2 == 0
        )
        .expect(INFALLIBLE);
    }
    feed.push_str("</plan>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Feed, Limits};

    /// Purpose: a generated feed is sound and has as many online plans as asked for, each only once.
    #[test]
    fn sound_and_counted() {
        for events in [0, 1, 7, 2000] {
            let feed = Feed::read(generate(events, 42).as_bytes(), &Limits::default());
            feed.end.expect("it is whole");
            assert_eq!(feed.events.len(), events);
            assert_eq!((feed.stats.skipped_total(), feed.stats.duplicates), (0, 0));
        }
    }

    /// Purpose: a seed means one feed, and another seed another.
    #[test]
    fn deterministic() {
        assert_eq!(generate(100, 1), generate(100, 1));
        assert_ne!(generate(100, 1), generate(100, 2));
    }
}
