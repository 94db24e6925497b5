//! One plan, from its tags to an [`Event`] or to the reason why not.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::civil::DateTime;
use quick_xml::XmlVersion;
use quick_xml::events::BytesStart;

use super::{Limits, Skip};
use crate::civil::parse_local;
use crate::event::Event;
use crate::money::Price;

/// A base plan, as far as its plans need it. A fault in it is a fault in each of them.
pub(super) struct BasePlan {
    pub(super) id: Arc<str>,
    pub(super) online: bool,
    title: Arc<str>,
    fault: Option<Skip>,
}

impl BasePlan {
    pub(super) fn read(tag: &BytesStart<'_>, limits: &Limits) -> BasePlan {
        let (mut id, mut title, mut online) = (String::new(), String::new(), false);
        let mut fault = None;
        let well_formed = for_each_attribute(tag, limits, |name, value| match name {
            "base_plan_id" | "base_event_id" => {
                id = keep(value, limits.id_bytes_max, &mut fault, Skip::Id)
            }
            "title" => title = keep(value, limits.title_bytes_max, &mut fault, Skip::Title),
            "sell_mode" => online = value == "online",
            _ => {}
        });
        if !well_formed {
            fault = fault.or(Some(Skip::Markup));
        }
        if id.is_empty() || id.contains(':') {
            fault = fault.or(Some(Skip::Id));
        }
        BasePlan { id: id.into(), online, title: title.into(), fault }
    }
}

/// A plan whose end tag has not been seen yet.
#[derive(Default)]
pub(super) struct Draft {
    plan_id: String,
    start: Option<DateTime>,
    end: Option<DateTime>,
    sell_from: Option<DateTime>,
    sell_to: Option<DateTime>,
    sold_out: Option<bool>,
    prices: Option<(Price, Price)>,
    fault: Option<Skip>,
}

impl Draft {
    pub(super) fn read(tag: &BytesStart<'_>, limits: &Limits) -> Draft {
        let mut draft = Draft::default();
        let well_formed =
            for_each_attribute(tag, limits, |name, value| draft.set(name, value, limits));
        if !well_formed {
            draft.fail(Skip::Markup);
        } else if draft.plan_id.is_empty() {
            draft.fail(Skip::Id);
        }
        draft
    }

    fn set(&mut self, name: &str, value: &str, limits: &Limits) {
        match name {
            "plan_id" | "event_id" => {
                self.plan_id = keep(value, limits.id_bytes_max, &mut self.fault, Skip::Id);
            }
            "plan_start_date" | "event_start_date" => self.start = self.date(value),
            "plan_end_date" | "event_end_date" => self.end = self.date(value),
            // An empty bound of the sale says that there is none; it is not a broken date.
            "sell_from" if !value.is_empty() => self.sell_from = self.date(value),
            "sell_to" if !value.is_empty() => self.sell_to = self.date(value),
            "sold_out" => {
                self.sold_out = match value {
                    "true" | "1" => Some(true),
                    "false" | "0" => Some(false),
                    _ => None,
                }
            }
            _ => {}
        }
    }

    fn date(&mut self, value: &str) -> Option<DateTime> {
        let date = parse_local(value);
        if date.is_none() {
            self.fail(Skip::Date);
        }
        date
    }

    /// Counts a zone's price in.
    pub(super) fn add_zone(&mut self, tag: &BytesStart<'_>, limits: &Limits) {
        let mut price = None;
        if !for_each_attribute(tag, limits, |name, value| {
            if name == "price" {
                price = Price::parse(value);
            }
        }) {
            self.fail(Skip::Markup);
        }
        match (price, self.prices) {
            (None, _) => self.fail(Skip::Price),
            (Some(price), None) => self.prices = Some((price, price)),
            (Some(price), Some((min, max))) => self.prices = Some((min.min(price), max.max(price))),
        }
    }

    /// Condemns the plan. The first reason stands.
    pub(super) fn fail(&mut self, reason: Skip) {
        self.fault.get_or_insert(reason);
    }

    pub(super) fn plan_id(&self) -> &str {
        &self.plan_id
    }

    /// The event, or why there is none together with the plan's identifier.
    pub(super) fn finish(self, base: &BasePlan) -> Result<Event, (Skip, String)> {
        if let Some(reason) = base.fault.or(self.fault) {
            return Err((reason, self.plan_id));
        }
        let (Some(start), Some(end)) = (self.start, self.end) else {
            return Err((Skip::Date, self.plan_id));
        };
        if end < start {
            return Err((Skip::Order, self.plan_id));
        }
        Ok(Event {
            id: Event::identity(&base.id, &self.plan_id),
            base_plan_id: Arc::clone(&base.id),
            plan_id: self.plan_id.into(),
            title: Arc::clone(&base.title),
            start,
            end,
            sell_from: self.sell_from,
            sell_to: self.sell_to,
            sold_out: self.sold_out,
            min_price: self.prices.map(|(min, _)| min),
            max_price: self.prices.map(|(_, max)| max),
        })
    }
}

/// Calls `each` with every attribute's name and normalized value (XML 1.0 section 3.3.3).
/// False when the tag is not well-formed, uses an unknown entity, or has too many attributes.
fn for_each_attribute(
    tag: &BytesStart<'_>,
    limits: &Limits,
    mut each: impl FnMut(&str, &str),
) -> bool {
    for (i, attribute) in tag.attributes().enumerate() {
        let Ok(attribute) = attribute else {
            return false;
        };
        let value: Cow<'_, str> = match attribute.normalized_value(XmlVersion::Explicit1_0) {
            Ok(value) if i < limits.attributes_max => value,
            _ => return false,
        };
        each(attribute.key.as_ref(), &value);
    }
    true
}

/// A text if it is printable and short enough; otherwise nothing, and `reason` as the fault.
/// A line break can only come from a character reference, and counts as printable in a title.
fn keep(value: &str, bytes_max: usize, fault: &mut Option<Skip>, reason: Skip) -> String {
    let printable =
        |c: char| !c.is_control() || (reason == Skip::Title && matches!(c, '\t' | '\n' | '\r'));
    if value.len() <= bytes_max && value.chars().all(printable) {
        return value.to_owned();
    }
    fault.get_or_insert(reason);
    String::new()
}
