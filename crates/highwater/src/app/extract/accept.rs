//! Which representation does the client prefer?

use http::StatusCode;

use super::FromRequest;
use crate::app::error::Error;
use crate::app::request::Request;
use crate::content::weight::thousandths;

/// More ranges than this are not looked at: browsers send fewer than ten.
const RANGES_MAX: usize = 64;

/// The media types that the client accepts (`Accept`, RFC 9110 §12.5.1), to choose the representation of an answer.
///
/// ```
/// use highwater::{Accept, Error, Html, IntoResponse, Response, Router};
///
/// fn todo(accept: Accept) -> Result<Response, Error> {
///     let answer = match accept.choose(&["application/json", "text/html"])? {
///         "text/html" => Html("<h1>learn</h1>").into_response(),
///         _ => Response::from(r#"{"title":"learn"}"#).with_content_type("application/json"),
///     };
///     Ok(answer.with_header("vary", "accept")) // Caches keep one for each.
/// }
///
/// let app = Router::new().get("/todo", todo);
/// # app.build().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept(Ranges);

/// The languages that the client accepts (`Accept-Language`, RFC 9110 §12.5.4), to choose the language of an answer. An
/// offer is a language tag, such as `en` or `pt-BR`; it is accepted if the client names it or a prefix of it.
///
/// ```
/// use highwater::{AcceptLanguage, Response, Router};
///
/// fn greet(languages: AcceptLanguage) -> Response {
///     let mut response = Response::from(match languages.best(&["en", "de", "pt-BR"]) {
///         Some("de") => "Guten Tag",
///         Some("pt-BR") => "Bom dia",
///         _ => "Good day",
///     });
///     response.vary("accept-language"); // Or caches give one language to all.
///     response
/// }
///
/// let app = Router::new().get("/", greet);
/// # app.build().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptLanguage(Ranges);

/// What a field of preferences says: ranges and their weights in thousandths. `None` if there is no such field, which
/// accepts everything.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranges(Option<Vec<(String, u16)>>);

impl Accept {
    /// The offer that the client prefers; the first of equal ones. `None` if it accepts none of them. Offers are
    /// media types such as `text/html`.
    pub fn best<'o>(&self, offers: &[&'o str]) -> Option<&'o str> {
        self.0.best(offers, media_type_fits)
    }

    /// The same.
    ///
    /// # Errors
    /// 406 `not_acceptable`, with the offers, if the client accepts none of them.
    pub fn choose<'o>(&self, offers: &[&'o str]) -> Result<&'o str, Error> {
        self.best(offers).ok_or_else(|| not_acceptable("media types", offers))
    }
}

impl AcceptLanguage {
    /// The offer that the client prefers; the first of equal ones. `None` if it accepts none of them, which is
    /// seldom a reason to refuse the request.
    pub fn best<'o>(&self, offers: &[&'o str]) -> Option<&'o str> {
        self.0.best(offers, language_fits)
    }

    /// The same.
    ///
    /// # Errors
    /// 406 `not_acceptable`, with the offers, if the client accepts none of them.
    pub fn choose<'o>(&self, offers: &[&'o str]) -> Result<&'o str, Error> {
        self.best(offers).ok_or_else(|| not_acceptable("languages", offers))
    }
}

/// Never fails: what is malformed is not a preference.
impl FromRequest for Accept {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(Accept(Ranges::of(request, "accept")))
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.headers().get("accept").is_some()
    }
}

/// Never fails: what is malformed is not a preference.
impl FromRequest for AcceptLanguage {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(AcceptLanguage(Ranges::of(request, "accept-language")))
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.headers().get("accept-language").is_some()
    }
}

fn not_acceptable(of: &str, offers: &[&str]) -> Error {
    let message =
        format!("none of the {of} that you accept is here; there are {}", offers.join(", "));
    Error::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message)
}

impl Ranges {
    fn of(request: &Request<'_>, field: &str) -> Self {
        let mut ranges = Vec::new();
        let mut is_there = false;
        for value in request.headers().get_all(field) {
            is_there = true;
            let text = std::str::from_utf8(value).unwrap_or_default();
            ranges.extend(text.split(',').filter_map(range).take(RANGES_MAX - ranges.len()));
        }
        Ranges(is_there.then_some(ranges))
    }

    /// The best offer. `fits` says how exactly a range names an offer, if it does at all; the most exact range
    /// decides its weight.
    fn best<'o>(
        &self,
        offers: &[&'o str],
        fits: impl Fn(&str, &str) -> Option<usize>,
    ) -> Option<&'o str> {
        let Some(ranges) = &self.0 else { return offers.first().copied() };
        let weight = |offer: &str| {
            let fitting = ranges.iter().filter_map(|(range, weight)| {
                fits(range, offer).map(|exactness| (exactness, *weight))
            });
            fitting.max_by_key(|(exactness, _)| *exactness).map_or(0, |(_, weight)| weight)
        };
        let mut best = None;
        for &offer in offers {
            let weight = weight(offer);
            if weight > best.map_or(0, |(_, other)| other) {
                best = Some((offer, weight));
            }
        }
        best.map(|(offer, _)| offer)
    }
}

/// A range and its weight: `text/html;q=0.5`. Other parameters are part of the range.
fn range(text: &str) -> Option<(String, u16)> {
    let mut parts = text.split(';').map(str::trim_ascii);
    let mut range = parts.next().filter(|range| !range.is_empty())?.to_ascii_lowercase();
    let mut weight = 1000;
    for parameter in parts {
        match parameter.split_once('=') {
            Some((name, value)) if name.trim_ascii().eq_ignore_ascii_case("q") => {
                weight = thousandths(value.trim_ascii())?;
                break; // What follows the weight is no part of the range (RFC 7231 §5.3.2).
            }
            _ => {
                range.push(';');
                range.push_str(&parameter.to_ascii_lowercase());
            }
        }
    }
    Some((range, weight))
}

/// `*/*`, `text/*`, `text/html`, and the last with parameters, from vague to exact.
fn media_type_fits(range: &str, offer: &str) -> Option<usize> {
    let offer = offer.to_ascii_lowercase();
    let essence = offer.split(';').next().unwrap_or_default().trim_ascii();
    let kind = essence.split('/').next().unwrap_or_default();
    match range {
        "*/*" => Some(0),
        range if range.strip_suffix("/*") == Some(kind) => Some(1),
        range if range == essence => Some(2),
        range if range == offer.replace("; ", ";") => Some(3),
        _ => None,
    }
}

/// `*`, `pt`, `pt-br`, from vague to exact (RFC 4647 §3.3.1).
fn language_fits(range: &str, offer: &str) -> Option<usize> {
    if range == "*" {
        return Some(0);
    }
    let begins = offer.get(..range.len())?.eq_ignore_ascii_case(range);
    let ends = offer.len() == range.len() || offer.as_bytes()[range.len()] == b'-';
    (begins && ends).then_some(range.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> Ranges {
        Ranges(Some(text.split(',').filter_map(range).collect()))
    }

    /// Purpose: the weights of RFC 9110 §12.5.1's own example, and the preferences of browsers.
    #[test]
    fn media_types() {
        let weights = "text/*;q=0.3, text/plain;q=0.7, text/plain;format=flowed, \
                       text/plain;format=fixed;q=0.4, */*;q=0.5";
        for (offers, best) in [
            (&["text/plain;format=flowed", "text/plain"][..], "text/plain;format=flowed"),
            (&["text/html", "image/jpeg"], "image/jpeg"),
            (&["text/html", "text/plain; format=fixed"], "text/plain; format=fixed"),
            (&["text/html", "text/plain"], "text/plain"),
        ] {
            assert_eq!(ranges(weights).best(offers, media_type_fits), Some(best));
        }
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        let best = |text: &str, offers| ranges(text).best(offers, media_type_fits);
        assert_eq!(best(browser, &["application/json", "text/html"]), Some("text/html"));
        assert_eq!(best("*/*", &["a/b", "text/html"]), Some("a/b"), "the server's order");
        assert_eq!(best("text/html;q=0, */*", &["text/html", "a/b"]), Some("a/b"));
        assert_eq!(best("TEXT/HTML", &["text/html"]), Some("text/html"));
        for none in ["image/png", "text/html;q=0", "text/html;q=2", "text/html;q=.5", "", ";q=1"] {
            assert_eq!(best(none, &["text/html"]), None, "{none}");
        }
        assert_eq!(Ranges(None).best(&["x/y"], media_type_fits), Some("x/y"), "no field");
    }

    /// Purpose: a language is accepted by its tag or what that begins with, and not by what looks like it.
    #[test]
    fn languages() {
        let best = |text: &str, offers| ranges(text).best(offers, language_fits);
        let offers = &["en", "de", "pt-BR"];
        assert_eq!(best("de-AT, de;q=0.9, en;q=0.8", offers), Some("de"));
        assert_eq!(best("pt, en;q=0.5", offers), Some("pt-BR"));
        assert_eq!(best("en;q=0.1, *;q=0.5", offers), Some("de"));
        assert_eq!(best("e, d, p", offers), None);
        assert_eq!(best("fr", offers), None);
        assert_eq!(best("é", &["é"]), Some("é"));
    }
}
