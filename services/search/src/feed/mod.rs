//! Reads the provider's feed as untrusted input.
//!
//! ```text
//! <planList><output>
//!   <base_plan base_plan_id sell_mode title>
//!     <plan plan_id plan_start_date plan_end_date sell_from sell_to sold_out>
//!       <zone zone_id capacity price name numbered/> …
//! ```
//!
//! `eventList`, `base_event`, `event` and their attributes (`base_event_id`, `event_id`,
//! `event_start_date`, `event_end_date`) mean the same. Base plans count at any depth; elements and
//! attributes with other names are passed over.
//!
//! The reader streams: it holds one token, one open plan and the open base plans. Every complete
//! plan is handed over at its end tag. So a feed that breaks off still yields the plans before the
//! break, and the error says at which byte it broke. A plan with a broken part is skipped and
//! counted under the reason, whatever its `sell_mode`; nothing is repaired. Only the five entities
//! that XML predefines and character references are expanded, and no DTD is read. Input is UTF-8. A
//! byte that is not becomes U+001A, which no text here may contain; so only its plan is skipped,
//! not the feed.

mod input;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{self, Read};
use std::{error, fmt};

use quick_xml::errors::Error as XmlError;
use quick_xml::events::{BytesDecl, BytesStart, Event as Token};
use quick_xml::reader::Reader;

use self::input::Input;
use self::plan::{BasePlan, Draft};
use crate::event::Event;

/// Limits of a feed. Beyond the first group a part of the feed is skipped; beyond the second,
/// reading stops with an error, and what came before still counts.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a title, after unescaping. A longer one costs its plans ([`Skip::Title`]).
    pub title_bytes_max: usize,
    /// Bytes of an identifier, after unescaping. A longer one costs its plan ([`Skip::Id`]).
    pub id_bytes_max: usize,
    /// Attributes of one base plan, plan or zone. More cost the plan ([`Skip::Markup`]); unbounded,
    /// the check for repeated names would take time quadratic in the token's size.
    pub attributes_max: usize,
    /// Bytes of one tag, comment, text or other token, to within one buffer (16 KiB).
    pub token_bytes_max: usize,
    /// Elements open at once.
    pub depth_max: usize,
    /// Plans in one feed, whatever becomes of them.
    pub plans_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            title_bytes_max: 1024,
            id_bytes_max: 128,
            attributes_max: 64,
            token_bytes_max: 256 * 1024,
            depth_max: 64,
            plans_max: 200_000,
        }
    }
}

/// Why a plan was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It is in no base plan, so it has no identity.
    Orphan,
    /// It is inside another plan, or another is inside it: whose zones are whose is unclear.
    Nested,
    /// A tag of it, of a zone or of its base plan is not XML, or has too many attributes.
    Markup,
    /// One of its two identifiers is missing, empty, too long or not printable, or the base plan's
    /// has a colon, which would make identities ambiguous.
    Id,
    /// Its title is too long or not printable.
    Title,
    /// A date is missing, broken, or does not exist. (`sell_from` and `sell_to` may be missing.)
    Date,
    /// It ends before it starts.
    Order,
    /// A zone's price is missing, broken, negative, or out of range.
    Price,
}

impl Skip {
    /// Every reason, in the order of [`Stats::skipped`].
    pub const ALL: [Skip; 8] = [
        Skip::Orphan,
        Skip::Nested,
        Skip::Markup,
        Skip::Id,
        Skip::Title,
        Skip::Date,
        Skip::Order,
        Skip::Price,
    ];

    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Skip::Orphan => "orphan",
            Skip::Nested => "nested",
            Skip::Markup => "markup",
            Skip::Id => "id",
            Skip::Title => "title",
            Skip::Date => "date",
            Skip::Order => "order",
            Skip::Price => "price",
        }
    }
}

/// How many skipped plans of one feed are named.
pub const SKIPPED_NAMED_MAX: usize = 16;

/// A skipped plan, for the log: `price(291:1642)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Why.
    pub reason: Skip,
    /// The base plan's identifier as far as it could be read, else empty.
    pub base_plan_id: String,
    /// The plan's identifier as far as it could be read, else empty.
    pub plan_id: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, plan) = (self.base_plan_id.escape_debug(), self.plan_id.escape_debug());
        write!(f, "{}({base}:{plan})", self.reason.name())
    }
}

/// What one feed contained. `plans` is the sum of `online`, `offline` and all of `skipped`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Complete plans.
    pub plans: u64,
    /// Plans handed over.
    pub online: u64,
    /// Sound plans whose base plan's `sell_mode` is not `online`.
    pub offline: u64,
    /// Plans handed over whose identity an earlier plan of the same feed had.
    pub duplicates: u64,
    /// Skipped plans by reason, in the order of [`Skip::ALL`].
    pub skipped: [u64; Skip::ALL.len()],
    /// The first [`SKIPPED_NAMED_MAX`] of them.
    pub named: Vec<Skipped>,
}

impl Stats {
    /// How many plans were skipped, for all reasons.
    pub fn skipped_total(&self) -> u64 {
        self.skipped.iter().sum()
    }
}

/// Why reading stopped before the feed's end, and where.
#[derive(Debug)]
pub struct FeedError {
    /// How many bytes of the (decompressed) feed had been read.
    pub byte: u64,
    /// What happened there.
    pub fault: Fault,
}

/// What is wrong with a feed as a whole.
#[derive(Debug)]
pub enum Fault {
    /// It ends before its root element does.
    Truncated,
    /// It is not well-formed XML.
    Malformed(String),
    /// It is XML, but its root element is this one.
    Root(String),
    /// It says that it is written in this encoding.
    Encoding(String),
    /// A token is larger than [`Limits::token_bytes_max`].
    TokenTooLong,
    /// Elements are nested deeper than [`Limits::depth_max`].
    TooDeep,
    /// It has more plans than [`Limits::plans_max`].
    TooManyPlans,
    /// The connection or the decompression failed.
    Input(io::Error),
}

impl Fault {
    /// A word for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Truncated => "truncated",
            Fault::Malformed(_) => "malformed",
            Fault::Root(_) => "not_a_feed",
            Fault::Encoding(_) => "encoding",
            Fault::TokenTooLong | Fault::TooDeep | Fault::TooManyPlans => "limit",
            Fault::Input(_) => "input",
        }
    }
}

impl fmt::Display for FeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Truncated => f.write_str("the feed ends before its root element does")?,
            Fault::Malformed(what) => write!(f, "the feed is not well-formed XML: {what}")?,
            Fault::Root(name) => {
                write!(f, "the root element is {name:?}, not planList: not a feed")?
            }
            Fault::Encoding(name) => {
                write!(f, "the feed is written in {name:?}; only UTF-8 is read")?
            }
            Fault::TokenTooLong => f.write_str("a tag, text or comment exceeds token_bytes_max")?,
            Fault::TooDeep => f.write_str("elements are nested deeper than depth_max")?,
            Fault::TooManyPlans => f.write_str("more plans than plans_max")?,
            Fault::Input(e) => write!(f, "reading failed: {e}")?,
        }
        write!(f, " (at byte {})", self.byte)
    }
}

impl error::Error for FeedError {}

/// A feed read to its end, or as far as it went.
#[derive(Debug)]
pub struct Feed {
    /// The online plans, in the feed's order; of duplicates only the last.
    pub events: Vec<Event>,
    /// What was counted.
    pub stats: Stats,
    /// Whether the feed was whole. If not, `events` and `stats` are about the part before the break.
    pub end: Result<(), FeedError>,
}

impl Feed {
    /// Reads a whole feed. Memory: the online plans, plus one token.
    pub fn read(input: impl Read, limits: &Limits) -> Feed {
        let mut positions = HashMap::new();
        let mut events: Vec<Event> = Vec::new();
        let mut duplicates = 0;
        let (mut stats, end) = read(input, limits, |event| match positions.get(&event.id) {
            Some(&position) => {
                duplicates += 1;
                events[position] = event;
            }
            None => {
                positions.insert(event.id, events.len());
                events.push(event);
            }
        });
        stats.duplicates = duplicates;
        Feed { events, stats, end }
    }
}

/// Reads a feed and hands every sound online plan to `online`, duplicates included.
///
/// Plans before an error have been handed over and counted, and are as valid as if the feed had
/// been whole.
pub fn read(
    input: impl Read,
    limits: &Limits,
    online: impl FnMut(Event),
) -> (Stats, Result<(), FeedError>) {
    let mut reader = Reader::from_reader(Input::new(input, limits.token_bytes_max));
    reader.config_mut().expand_empty_elements = true;
    let mut parser = Parser {
        limits,
        online,
        stats: Stats::default(),
        depth: 0,
        rooted: false,
        bases: Vec::new(),
        draft: None,
    };
    let mut token = Vec::new();
    let fault = loop {
        token.clear();
        reader.get_mut().begin_token();
        match reader.read_event_into(&mut token) {
            Ok(Token::Eof) if parser.rooted && parser.depth == 0 => return (parser.stats, Ok(())),
            Ok(Token::Eof) => break Fault::Truncated,
            Ok(token) => match parser.take(&token) {
                Ok(()) => {}
                Err(fault) => break fault,
            },
            Err(error) => break reader.get_mut().explain(error),
        }
    };
    // A plan that was still open is not among those that count.
    parser.stats.plans -= u64::from(parser.draft.is_some());
    let byte = reader.get_ref().position();
    (parser.stats, Err(FeedError { byte, fault }))
}

struct Parser<'a, F> {
    limits: &'a Limits,
    online: F,
    stats: Stats,
    /// Elements open now.
    depth: usize,
    /// Whether the root element has begun (and, at depth 0, ended).
    rooted: bool,
    /// The base plans open now with their depths, innermost last: at most `depth_max`.
    bases: Vec<(usize, BasePlan)>,
    /// The plan open now with its depth.
    draft: Option<(usize, Draft)>,
}

impl<F: FnMut(Event)> Parser<'_, F> {
    fn take(&mut self, token: &Token<'_>) -> Result<(), Fault> {
        match token {
            Token::Start(tag) => self.open(tag),
            Token::End(_) => {
                self.close();
                Ok(())
            }
            Token::Text(text) if self.depth == 0 && !text.trim_ascii().is_empty() => Err(outside()),
            Token::CData(_) | Token::GeneralRef(_) if self.depth == 0 => Err(outside()),
            Token::Decl(decl) => accept_encoding(decl),
            _ => Ok(()),
        }
    }

    fn open(&mut self, tag: &BytesStart<'_>) -> Result<(), Fault> {
        let name = tag.local_name();
        if self.depth == 0 {
            if self.rooted {
                return Err(Fault::Malformed("a second root element".to_owned()));
            }
            if !matches!(name.as_ref(), "planList" | "eventList") {
                return Err(Fault::Root(name.as_ref().chars().take(64).collect()));
            }
            self.rooted = true;
        }
        if self.depth == self.limits.depth_max {
            return Err(Fault::TooDeep);
        }
        self.depth += 1;
        match name.as_ref() {
            "base_plan" | "base_event" => {
                self.bases.push((self.depth, BasePlan::read(tag, self.limits)))
            }
            "plan" | "event" => return self.open_plan(tag),
            "zone" => {
                if let Some((_, draft)) = &mut self.draft {
                    draft.add_zone(tag, self.limits);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn open_plan(&mut self, tag: &BytesStart<'_>) -> Result<(), Fault> {
        if self.stats.plans == self.limits.plans_max {
            return Err(Fault::TooManyPlans);
        }
        self.stats.plans += 1;
        let draft = Draft::read(tag, self.limits);
        if let Some((_, outer)) = &mut self.draft {
            outer.fail(Skip::Nested);
            self.skip(Skip::Nested, draft.plan_id());
        } else {
            self.draft = Some((self.depth, draft));
        }
        Ok(())
    }

    fn close(&mut self) {
        if let Some((_, draft)) = self.draft.take_if(|(depth, _)| *depth == self.depth) {
            self.finish(draft);
        }
        self.bases.pop_if(|(depth, _)| *depth == self.depth);
        self.depth -= 1;
    }

    fn finish(&mut self, draft: Draft) {
        let Some((_, base)) = self.bases.last() else {
            return self.skip(Skip::Orphan, draft.plan_id());
        };
        match draft.finish(base) {
            Ok(event) if base.online => {
                self.stats.online += 1;
                (self.online)(event);
            }
            Ok(_) => self.stats.offline += 1,
            Err((reason, plan_id)) => self.skip(reason, &plan_id),
        }
    }

    fn skip(&mut self, reason: Skip, plan_id: &str) {
        self.stats.skipped[reason as usize] += 1;
        if self.stats.named.len() < SKIPPED_NAMED_MAX {
            let base_plan_id =
                self.bases.last().map_or_else(String::new, |(_, base)| base.id.to_string());
            self.stats.named.push(Skipped { reason, base_plan_id, plan_id: plan_id.to_owned() });
        }
    }
}

fn outside() -> Fault {
    Fault::Malformed("text outside the root element".to_owned())
}

/// The names of UTF-8 and of its subset, as providers write them; only those with a hyphen are registered.
const ENCODINGS: [&str; 4] = ["utf-8", "utf8", "us-ascii", "ascii"];

/// UTF-8 and its subset are read; any other declared encoding would have to be guessed at.
fn accept_encoding(decl: &BytesDecl<'_>) -> Result<(), Fault> {
    match decl.encoding() {
        None => Ok(()),
        Some(Ok(name)) if ENCODINGS.iter().any(|known| name.eq_ignore_ascii_case(known)) => Ok(()),
        Some(Ok(name)) => Err(Fault::Encoding(name.chars().take(64).collect())),
        Some(Err(e)) => Err(Fault::Malformed(e.to_string())),
    }
}

impl<R: Read> Input<R> {
    /// Tells what stopped the XML reader: the input itself, its end, a limit, or the markup.
    fn explain(&mut self, error: XmlError) -> Fault {
        match (self.take_failure(), error) {
            (Some(failure), _) => Fault::Input(failure),
            _ if self.token_too_long() => Fault::TokenTooLong,
            (None, XmlError::Syntax(_)) if self.ended() => Fault::Truncated,
            (None, error) => Fault::Malformed(error.to_string().chars().take(200).collect()),
        }
    }
}
