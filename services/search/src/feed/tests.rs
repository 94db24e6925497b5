//! Feeds as they should be, as they are, and as an attacker would write them.

use super::*;
use crate::money::Price;
use jiff::civil::datetime;
use proptest::prelude::*;

const SAMPLE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<planList version="1.0"><output>
  <base_plan base_plan_id="291" sell_mode="online" title="Camela en concierto">
    <plan plan_start_date="2021-06-30T21:00:00" plan_end_date="2021-06-30T22:00:00" plan_id="291"
          sell_from="2020-07-01T00:00:00" sell_to="2021-06-30T20:00:00" sold_out="false">
      <zone zone_id="40" capacity="243" price="20.00" name="Platea" numbered="true"/>
      <zone zone_id="38" capacity="100" price="15.00" name="Grada 2" numbered="false"/>
      <zone zone_id="30" capacity="90" price="30.00" name="A28" numbered="true"/>
    </plan>
  </base_plan>
  <base_plan base_plan_id="444" sell_mode="offline" organizer_company_id="1" title="Tributo">
    <plan plan_start_date="2021-09-31T20:00:00" plan_end_date="2021-09-30T20:00:00" plan_id="1642"/>
    <plan plan_start_date="2021-09-30T20:00:00" plan_end_date="2021-09-30T20:00:00" plan_id="1643"/>
  </base_plan>
</output></planList>
"#;

fn feed(text: impl AsRef<[u8]>) -> Feed {
    Feed::read(text.as_ref(), &Limits::default())
}

/// A feed of one online base plan with this inside.
fn online(plans: &str) -> Feed {
    let head = r#"<planList><output><base_plan base_plan_id="1" sell_mode="online" title="t">"#;
    feed(format!("{head}{plans}</base_plan></output></planList>"))
}

fn plan(id: &str, zones: &str) -> String {
    let dates = r#"plan_start_date="2024-06-30T21:00:00" plan_end_date="2024-06-30T22:00:00""#;
    format!(r#"<plan plan_id="{id}" {dates}>{zones}</plan>"#)
}

fn ids(feed: &Feed) -> Vec<&str> {
    feed.events.iter().map(|event| &*event.plan_id).collect()
}

fn fault(feed: Feed) -> &'static str {
    feed.end.expect_err("the feed is broken").fault.name()
}

/// Purpose: the documented feed is read into exactly what it says; one date in it does not exist.
#[test]
fn documented_feed() {
    let feed = feed(SAMPLE);
    feed.end.expect("it is whole");
    let expected = Event {
        id: Event::identity("291", "291"),
        base_plan_id: "291".into(),
        plan_id: "291".into(),
        title: "Camela en concierto".into(),
        start: datetime(2021, 6, 30, 21, 0, 0, 0),
        end: datetime(2021, 6, 30, 22, 0, 0, 0),
        sell_from: Some(datetime(2020, 7, 1, 0, 0, 0, 0)),
        sell_to: Some(datetime(2021, 6, 30, 20, 0, 0, 0)),
        sold_out: Some(false),
        min_price: Price::parse("15"),
        max_price: Price::parse("30"),
    };
    assert_eq!(feed.events, [expected]);
    let Stats { plans, online, offline, .. } = feed.stats;
    assert_eq!((plans, online, offline, feed.stats.skipped_total()), (3, 1, 1, 1));
    assert_eq!(feed.stats.named[0].to_string(), "date(444:1642)");
}

/// Purpose: the other vocabulary, any depth, CDATA, comments, entities and a DTD change nothing.
#[test]
fn aliases_and_decorations() {
    let text = "\u{feff}<?xml version='1.0' encoding='utf-8'?><!DOCTYPE eventList SYSTEM 'x.dtd'><eventList><a><b>\
        <!-- <base_event> --><base_event base_event_id='7' sell_mode='online' title='A &amp; B &#x20AC;\n&lt;'>\
        <list><event event_id='8' event_start_date='2024-01-01T00:00:00' event_end_date='2024-01-01T00:00:00'>\
        <zones><![CDATA[<zone price='1'/>]]><zone price='2.5'/>&unknown;</zones></event></list></base_event>\
        </b></a></eventList>\n<!-- end -->\n";
    let feed = feed(text);
    feed.end.expect("it is well-formed");
    assert_eq!(feed.events[0].id, Event::identity("7", "8"));
    assert_eq!(&*feed.events[0].title, "A & B € <");
    assert_eq!(feed.events[0].min_price, Price::parse("2.5"));
}

/// Purpose: a plan with a broken part is skipped under the right reason, and its neighbours count.
#[test]
fn broken_plans_are_skipped() {
    let dates = |start: &str, end: &str| {
        format!(r#"<plan plan_id="x" plan_start_date="{start}" plan_end_date="{end}"/>"#)
    };
    let noon = "2024-01-01T12:00:00";
    let zone = |price: &str| plan("x", &format!(r#"<zone price="10"/><zone price="{price}"/>"#));
    let cases = [
        (dates("2021-02-30T12:00:00", noon), Skip::Date),
        (dates(noon, "2024-01-01"), Skip::Date),
        (dates("", noon), Skip::Date),
        (r#"<plan plan_id="x"/>"#.to_owned(), Skip::Date),
        (plan("x", "").replace("<plan ", r#"<plan sell_from="soon" "#), Skip::Date),
        (dates(noon, "2024-01-01T11:59:59"), Skip::Order),
        (zone("abc"), Skip::Price),
        (zone("1e999"), Skip::Price),
        (zone("-1"), Skip::Price),
        (zone("NaN"), Skip::Price),
        (zone(""), Skip::Price),
        (plan("x", r#"<zone zone_id="1"/>"#), Skip::Price),
        (plan("", ""), Skip::Id),
        (plan("", "").replace(r#"plan_id="""#, ""), Skip::Id),
        (plan(&"x".repeat(129), ""), Skip::Id),
        (plan("a&#1;b", ""), Skip::Id),
        (plan("x", "").replace("<plan ", "<plan a=b "), Skip::Markup),
        (plan("x", "").replace("<plan ", "<plan plan_id='y' "), Skip::Markup),
        (plan("&lol9;", ""), Skip::Markup),
        (plan("x", "<zone price='1' price='2'/>"), Skip::Markup),
    ];
    for (broken, reason) in cases {
        let feed = online(&format!("{}{broken}{}", plan("a", ""), plan("b", "")));
        feed.end.as_ref().expect(&broken);
        assert_eq!(ids(&feed), ["a", "b"], "{broken}");
        assert_eq!(feed.stats.skipped[reason as usize], 1, "{broken} is {:?}", feed.stats.named);
        assert_eq!((feed.stats.plans, feed.stats.skipped_total()), (3, 1), "{broken}");
    }
}

/// Purpose: the bounds of an event's life may coincide, the sale's may be absent, zones may be none.
#[test]
fn legal_edges() {
    let feed = online(
        r#"<plan plan_id="a" plan_start_date="2024-01-01T12:00:00" plan_end_date="2024-01-01T12:00:00"
            sell_from="" sell_to="" sold_out="perhaps"/>"#,
    );
    let event = &feed.events[0];
    assert_eq!((event.sell_from, event.sell_to, event.sold_out), (None, None, None));
    assert_eq!((event.min_price, event.max_price), (None, None));
}

/// Purpose: a broken base plan costs its own plans only, and a plan without one has no identity.
#[test]
fn broken_base_plans() {
    let base = |attributes: &str, id: &str| {
        format!("<base_plan {attributes}>{}</base_plan>", plan(id, ""))
    };
    let feed = feed(format!(
        "<planList>{}{}{}{}{}{}{}</planList>",
        plan("orphan", ""),
        base("sell_mode='online'", "no id"),
        base("base_plan_id='1:2' sell_mode='online'", "colon"),
        base("base_plan_id='1' sell_mode='online' x", "markup"),
        base(&format!("base_plan_id='1' sell_mode='online' title='{}'", "ñ".repeat(513)), "title"),
        base("base_plan_id='1' sell_mode='ONLINE' title='t'", "no mode we know"),
        base("base_plan_id='1' sell_mode='online'", "sound"),
    ));
    feed.end.as_ref().expect("it is well-formed");
    assert_eq!(ids(&feed), ["sound"]);
    assert_eq!(&*feed.events[0].title, "");
    let named: Vec<String> = feed.stats.named.iter().map(Skipped::to_string).collect();
    assert_eq!(
        named,
        ["orphan(:orphan)", "id(:no id)", "id(1:2:colon)", "markup(1:markup)", "title(1:title)"]
    );
    assert_eq!(feed.stats.offline, 1);
}

/// Purpose: a plan inside a plan costs both, because the zones cannot be told apart.
#[test]
fn nested_plans() {
    let feed =
        online(&format!("{}{}", plan("outer", &plan("inner", "<zone price='1'/>")), plan("b", "")));
    assert_eq!(ids(&feed), ["b"]);
    assert_eq!(feed.stats.skipped[Skip::Nested as usize], 2);
}

/// Purpose: of two plans with one identity the later wins, in the earlier one's place.
#[test]
fn duplicates() {
    let feed =
        online(&format!("{}{}{}", plan("a", ""), plan("b", ""), plan("a", "<zone price='9'/>")));
    assert_eq!(ids(&feed), ["a", "b"]);
    assert_eq!(feed.events[0].max_price, Price::parse("9"));
    assert_eq!((feed.stats.online, feed.stats.duplicates), (3, 1));
}

/// Purpose: cut anywhere, a feed yields exactly the plans that were complete, and says where it ended.
#[test]
fn truncated_everywhere() {
    let whole = SAMPLE.trim_end();
    let complete = whole.find("</plan>").expect("one has an end tag") + "</plan>".len();
    for cut in 0..whole.len() {
        let feed = feed(&whole[..cut]);
        assert_eq!(feed.events.len(), usize::from(cut >= complete), "cut at {cut}");
        let error = feed.end.expect_err("it is cut");
        assert_eq!(error.byte, cut as u64, "{error}");
        assert!(matches!(error.fault, Fault::Truncated), "cut at {cut}: {error}");
    }
}

/// Purpose: what is not a feed is told apart from an empty feed.
#[test]
fn lies() {
    feed("<planList/>").end.expect("an empty feed is a feed");
    assert_eq!(fault(feed("")), "truncated");
    assert_eq!(fault(feed("<!DOCTYPE html><html><body><br></body></html>")), "not_a_feed");
    assert_eq!(fault(feed(r#"{"plans":[]}"#)), "malformed");
    assert_eq!(fault(feed("&amp;<planList/>")), "malformed");
    assert_eq!(fault(feed("<planList/><planList/>")), "malformed");
    assert_eq!(fault(feed("<planList/>HTTP/1.1 200 OK")), "malformed");
    assert_eq!(fault(feed("<planList></output>")), "malformed");
    assert_eq!(fault(feed("<?xml version='1.0' encoding='ISO-8859-1'?><planList/>")), "encoding");
    for name in ["utf8", "UTF8", "Utf-8", "us-ascii", "ASCII"] {
        let text = format!("<?xml version='1.0' encoding='{name}'?><planList/>");
        feed(text).end.expect("it is UTF-8");
    }
    assert_eq!(fault(feed([0xff, 0xfe, b'<', 0, b'p', 0])), "malformed");
    assert_eq!(fault(feed([0_u8; 5000])), "malformed");
}

/// Purpose: a byte that is not UTF-8 costs the plan it is in, not the feed.
#[test]
fn invalid_utf8() {
    let text = format!(
        "{}{}{}",
        plan("a", ""),
        plan("b\u{1}", ""),
        plan("c", "<zone name='\u{1}' price='1'/>")
    );
    let mut bytes = SAMPLE.replace("</base_plan>", &format!("{text}</base_plan>")).into_bytes();
    bytes.iter_mut().filter(|byte| **byte == 1).for_each(|byte| *byte = 0xF1);
    let feed = feed(bytes);
    feed.end.as_ref().expect("it is well-formed but for the bytes");
    assert_eq!(ids(&feed), ["291", "a", "c"]);
    assert_eq!(feed.stats.skipped[Skip::Id as usize], 2, "once in each base plan");
}

/// Purpose: entities of a DTD are never expanded, so a billion laughs cost one plan.
#[test]
fn billion_laughs() {
    let mut dtd = String::from("<!DOCTYPE planList [<!ENTITY lol0 \"lol\">");
    for i in 1..10 {
        let uses = format!("&lol{};", i - 1).repeat(10);
        dtd += &format!("<!ENTITY lol{i} \"{uses}\">");
    }
    let base = |title: &str| {
        let plan = plan(&title.len().to_string(), "");
        format!("<base_plan base_plan_id='1' sell_mode='online' title='{title}'>{plan}</base_plan>")
    };
    let feed = feed(format!("{dtd}]><planList>&lol9;{}{}</planList>", base("&lol9;"), base("t")));
    feed.end.as_ref().expect("it is well-formed");
    assert_eq!(ids(&feed), ["1"]);
    assert_eq!(feed.stats.skipped[Skip::Markup as usize], 1);
}

/// Purpose: a token of any kind beyond the limit stops the reader instead of filling memory.
#[test]
fn huge_tokens() {
    let huge = "x".repeat(10_000_000);
    for text in [
        format!("{}<plan plan_id='{huge}'/>", plan("a", "")),
        format!("{}<!-- {huge} -->", plan("a", "")),
        format!("{}<![CDATA[{huge}]]>", plan("a", "")),
        format!("{}{huge}", plan("a", "")),
        format!("{}</{huge}>", plan("a", "")),
        format!("{}&{huge};", plan("a", "")),
        format!("{}<?{huge}?>", plan("a", "")),
    ] {
        let feed = online(&text);
        assert_eq!(ids(&feed), ["a"]);
        let error = feed.end.expect_err("a token is too long");
        assert!(matches!(error.fault, Fault::TokenTooLong), "{error}");
        let most = Limits::default().token_bytes_max + input::BUFFER_BYTES + 1000;
        assert!(error.byte <= most as u64, "{error}");
    }
}

/// Purpose: each countable limit admits its bound and refuses one more.
#[test]
fn limits_are_exact() {
    let nested = |depth: usize| {
        format!("<planList>{}{}</planList>", "<a>".repeat(depth - 1), "</a>".repeat(depth - 1))
    };
    let depth_max = Limits::default().depth_max;
    feed(nested(depth_max)).end.expect("as deep as is allowed");
    assert_eq!(fault(feed(nested(depth_max + 1))), "limit");

    let limits = Limits { plans_max: 3, ..Limits::default() };
    let plans = |n: usize| format!("<planList>{}</planList>", plan("a", "").repeat(n));
    Feed::read(plans(3).as_bytes(), &limits).end.expect("as many as are allowed");
    let beyond = Feed::read(plans(4).as_bytes(), &limits);
    assert_eq!((beyond.stats.plans, fault(beyond)), (3, "limit"));

    let attributes = |n: usize| {
        let more: String = (3..n).map(|i| format!(" a{i}=''")).collect();
        online(&plan("a", "").replace("<plan", &format!("<plan{more}")))
    };
    let most = Limits::default().attributes_max;
    assert_eq!(attributes(most).stats.online, 1);
    assert_eq!(attributes(most + 1).stats.skipped[Skip::Markup as usize], 1);

    assert_eq!(online(&plan(&"x".repeat(128), "")).stats.online, 1);
}

/// Purpose: a failing connection is reported as such, with what came before it.
#[test]
fn input_failure() {
    struct Reset;
    impl Read for Reset {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let cut = SAMPLE.find("</plan>").expect("one has an end tag") + 20;
    let feed = Feed::read(SAMPLE.as_bytes()[..cut].chain(Reset), &Limits::default());
    assert_eq!(ids(&feed), ["291"]);
    let error = feed.end.expect_err("the connection failed");
    assert_eq!(error.byte, cut as u64);
    assert!(matches!(error.fault, Fault::Input(e) if e.kind() == io::ErrorKind::ConnectionReset));
}

/// Purpose: the log names some of what was skipped, in one line however hostile the identifiers.
#[test]
fn named_skips_are_bounded() {
    let feed = online(&"<plan plan_id='&#x2028;x'/>".repeat(100));
    assert_eq!(feed.stats.skipped[Skip::Date as usize], 100);
    assert_eq!(feed.stats.named.len(), SKIPPED_NAMED_MAX);
    assert_eq!(feed.stats.named[0].to_string(), "date(1:\\u{2028}x)");
}

proptest! {
    /// Purpose: no bytes make the reader panic, and its counts always add up.
    #[test]
    fn total_on_noise(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check_sums(&feed(bytes));
    }

    /// Purpose: nor does any damage to a real feed: bytes changed, removed and repeated.
    #[test]
    fn total_on_damage(damage in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>()), 1..12)) {
        let mut bytes = SAMPLE.as_bytes().to_vec();
        for (index, kind, byte) in damage {
            let at = index.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes[at] = b"<>/&\"'=! -"[usize::from(byte) % 10],
                2 => drop(bytes.drain(at..(at + usize::from(byte)).min(bytes.len() - 1))),
                _ => bytes.extend_from_within(at..(at + usize::from(byte)).min(bytes.len())),
            }
        }
        check_sums(&feed(bytes));
    }
}

fn check_sums(feed: &Feed) {
    let stats = &feed.stats;
    assert_eq!(stats.plans, stats.online + stats.offline + stats.skipped_total());
    assert_eq!(stats.online, feed.events.len() as u64 + stats.duplicates);
    assert!(
        feed.events
            .iter()
            .all(|event| event.start <= event.end && event.min_price <= event.max_price)
    );
}
