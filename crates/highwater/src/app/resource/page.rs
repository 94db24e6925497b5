//! The requested page of a list, and its answer.

use std::fmt;

use serde_core::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_core::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::json;

use super::settings::Settings;
use crate::app::Json;
use crate::app::error::Error;
use crate::app::extract::{FromRequest, Preconditions, Query};
use crate::app::into_response::IntoResponse;
use crate::app::request::Request;
use crate::app::response::Response;
use crate::content::entity_tag;
use crate::content::precondition::Verdict;

/// The page of a list that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    number: u32,
    size: u32,
}

impl Page {
    /// Its number: the first is 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// How many items come before it.
    pub fn offset(self) -> u64 {
        u64::from(self.number - 1) * u64::from(self.size)
    }

    /// The same, for iterators; a number that no iterator reaches if it is too large for this machine.
    pub fn offset_usize(self) -> usize {
        usize::try_from(self.offset()).unwrap_or(usize::MAX)
    }

    /// The largest number of its items.
    pub fn limit(self) -> usize {
        self.size as usize
    }
}

/// The items of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    items: Vec<T>,
    total: Option<u64>,
}

impl<T> Listing<T> {
    /// These items, without a total number.
    pub fn new(items: Vec<T>) -> Self {
        Listing { items, total: None }
    }

    /// Sets the number of items on all pages.
    #[must_use]
    pub fn total(mut self, total: impl TryInto<u64>) -> Self {
        self.total = total.try_into().ok();
        self
    }
}

/// What a request for a page says.
#[derive(Debug)]
pub(super) struct Asked {
    wanted: Wanted,
    /// The rest of the query, as it came.
    others: String,
    preconditions: Preconditions,
}

#[derive(Debug, Default)]
struct Wanted {
    page: Option<u32>,
    per_page: Option<u32>,
}

impl<'de> Deserialize<'de> for Wanted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Wanted", &["page", "per_page"], WantedVisitor)
    }
}

struct WantedVisitor;

impl<'de> Visitor<'de> for WantedVisitor {
    type Value = Wanted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number and the size of a page")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Wanted, A::Error> {
        let mut wanted = Wanted::default();
        while let Some(name) = pairs.next_key::<String>()? {
            match name.as_str() {
                "page" => wanted.page = pairs.next_value()?,
                "per_page" => wanted.per_page = pairs.next_value()?,
                _ => drop(pairs.next_value::<IgnoredAny>()?),
            }
        }
        Ok(wanted)
    }
}

impl FromRequest for Asked {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let Query(wanted) = Query::from_request(request)?;
        let is_ours = |part: &&str| matches!(part.split('=').next(), Some("page" | "per_page"));
        let others = request.query().unwrap_or_default().split('&');
        let others = others.filter(|part| !part.is_empty() && !is_ours(part));
        let others = others.collect::<Vec<_>>().join("&");
        Ok(Asked { wanted, others, preconditions: Preconditions::from_request(request)? })
    }
}

impl Asked {
    /// The page.
    ///
    /// # Errors
    /// 422 `validation_failed` if there can be no such page.
    pub(super) fn page(&self, settings: Settings) -> Result<Page, Error> {
        let number = self.wanted.page.unwrap_or(1);
        let size = self.wanted.per_page.unwrap_or(settings.per_page);
        let max = settings.per_page_max;
        let problem = match (number, size) {
            (0, _) => ("page", "the first page is 1".to_owned()),
            (_, 0) => ("per_page", format!("it must be from 1 to {max}")),
            (_, size) if size > max => ("per_page", format!("it must be from 1 to {max}")),
            _ => return Ok(Page { number, size }),
        };
        let (field, message) = problem;
        Err(Error::unprocessable(format!("{field}: {message}"))
            .with_code("validation_failed")
            .with_details(&json!([{ "field": field, "message": message }])))
    }

    /// Answers with a page.
    pub(super) fn answer<T: Serialize>(
        self,
        page: Page,
        listing: Listing<T>,
    ) -> Result<Response, Error> {
        let count = listing.items.len();
        if count > page.limit() {
            return Err(Error::internal(format!(
                "`list` has returned {count} items for a page of {}; take no more than `page.limit()`",
                page.limit()
            )));
        }
        let links = self.links(page, count, listing.total);
        let body = Envelope {
            items: &listing.items,
            page: page.number,
            per_page: page.size,
            total: listing.total,
        };
        let mut response = Json(body).into_response();
        let Some(content) = response.body().as_bytes().filter(|_| !response.is_error()) else {
            return Ok(response);
        };
        let tag = entity_tag::of_content(content);
        let verdict = self.preconditions.judge(Some(&tag));
        response = response.with_header("etag", tag);
        if !links.is_empty() {
            response = response.with_header("link", links);
        }
        answer(response, verdict)
    }

    /// The pages around this one, by addresses relative to it (RFC 8288).
    fn links(&self, page: Page, count: usize, total: Option<u64>) -> String {
        let size = u64::from(page.size);
        let last = total.map(|total| total.div_ceil(size).max(1));
        let number = u64::from(page.number);
        let has_next = match last {
            Some(last) => number < last,
            None => count == page.limit(),
        };
        let pages = [
            ("first", (number > 1).then_some(1)),
            ("prev", (number > 1).then(|| last.map_or(number - 1, |last| last.min(number - 1)))),
            ("next", has_next.then_some(number + 1)),
            ("last", last),
        ];
        let others = match self.others.as_str() {
            "" => String::new(),
            // What would end the address is escaped.
            others => {
                let escaped = others.replace('<', "%3C").replace('>', "%3E").replace('"', "%22");
                format!("{escaped}&")
            }
        };
        let link = |(relation, number): (&str, Option<u64>)| {
            let number = number?;
            Some(format!("<?{others}page={number}&per_page={size}>; rel=\"{relation}\""))
        };
        pages.into_iter().filter_map(link).collect::<Vec<_>>().join(", ")
    }
}

struct Envelope<'a, T> {
    items: &'a [T],
    page: u32,
    per_page: u32,
    /// Left out if it is not known.
    total: Option<u64>,
}

impl<T: Serialize> Serialize for Envelope<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Envelope { items, page, per_page, total } = self;
        let mut fields =
            serializer.serialize_struct("Envelope", 3 + usize::from(total.is_some()))?;
        fields.serialize_field("items", items)?;
        fields.serialize_field("page", page)?;
        fields.serialize_field("per_page", per_page)?;
        if let Some(total) = total {
            fields.serialize_field("total", total)?;
        }
        fields.end()
    }
}

/// Answers a read whose conditions were judged.
pub(super) fn answer(mut response: Response, verdict: Verdict) -> Result<Response, Error> {
    match verdict {
        Verdict::Proceed => {}
        Verdict::NotModified => response.make_not_modified(),
        Verdict::Failed => return Err(Error::precondition_failed()),
    }
    Ok(response)
}
