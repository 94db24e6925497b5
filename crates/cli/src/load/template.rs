//! Text with parameters, whose values differ in each request.
//!
//! ```text
//! ${random:1-1000}   a whole number from 1 to 1000, each equally likely
//! ${uuid}            a random UUID, version 4
//! ${seq}             the number of the request: 1, 2, 3, …; the same wherever it stands in one request
//! ${pick:a,b,c}      one of these, each equally likely
//! $${                the characters ${; any other $ is itself
//! ```
//!
//! The syntax is that of shells and of JavaScript's templates, which k6 uses: nothing in JSON, which is
//! full of braces, needs escaping. A template is parsed once; the seed decides all values. Pure, and on the core only:
//! a fuzz target includes this file.

use std::io::Write;

use highwater_core::prng::Prng;

/// The largest number that `${random:…}` gives.
const RANDOM_MAX: u64 = i64::MAX as u64;
const REMEDY: &str =
    "write ${random:1-1000}, ${uuid}, ${seq} or ${pick:a,b,c}; and $${ for the characters ${";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    /// The lowest number, and how many there are.
    Random(u64, u64),
    Uuid,
    Seq,
    /// At least one.
    Pick(Vec<String>),
}

/// Text, parts of which change each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

/// Where values come from.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    random: Prng,
    seq: u64,
    step: u64,
}

impl Values {
    /// Values that `seed` decides; requests are numbered `first`, `first + step`, and so on.
    pub(crate) fn new(seed: u64, first: u64, step: u64) -> Values {
        Values { random: Prng::from_seed(seed), seq: first.wrapping_sub(step), step }
    }

    /// The next request begins.
    pub(crate) fn next_request(&mut self) {
        self.seq = self.seq.wrapping_add(self.step);
    }
}

impl Template {
    /// Text without parameters, whatever is in it.
    pub(crate) fn literal(text: impl Into<Vec<u8>>) -> Template {
        let mut template = Template::default();
        template.text(&text.into());
        template
    }

    /// # Errors
    /// A parameter is none, or is not closed; the message names it, and says what to write.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let mut template = Template::default();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                template.text(&rest.as_bytes()[..at - 1]);
                template.text(b"${");
                rest = &rest[at + 2..];
                continue;
            }
            template.text(&rest.as_bytes()[..at]);
            let behind = &rest[at + 2..];
            let end = behind.find('}').ok_or_else(|| {
                let shown: String = rest[at..].chars().take(40).collect();
                format!("{shown:?}: the parameter has no end; {REMEDY}")
            })?;
            template.parts.push(parameter(&behind[..end])?);
            rest = &behind[end + 1..];
        }
        template.text(rest.as_bytes());
        Ok(template)
    }

    /// Adds text to the end.
    pub(crate) fn text(&mut self, text: &[u8]) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Text(last)) => last.extend_from_slice(text),
            _ => self.parts.push(Part::Text(text.to_vec())),
        }
    }

    /// Adds another template to the end.
    pub(crate) fn append(&mut self, other: &Template) {
        for part in &other.parts {
            match part {
                Part::Text(text) => self.text(text),
                part => self.parts.push(part.clone()),
            }
        }
    }

    /// Its text, if it has no parameters.
    pub(crate) fn constant(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [] => Some(&[]),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Everything that was written by the user and may get into the result.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().flat_map(|part| match part {
            Part::Text(text) => vec![text.as_slice()],
            Part::Pick(options) => options.iter().map(String::as_bytes).collect(),
            Part::Random(..) | Part::Uuid | Part::Seq => Vec::new(),
        })
    }

    /// Adds the text to `out`, with the next values.
    pub(crate) fn render(&self, values: &mut Values, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Random(low, count) => number(low + values.random.below(*count), out),
                Part::Uuid => uuid(&mut values.random, out),
                Part::Seq => number(values.seq, out),
                Part::Pick(options) => {
                    let index = values.random.below(options.len() as u64) as usize;
                    out.extend_from_slice(options[index].as_bytes());
                }
            }
        }
    }
}

/// Reads what stands between `${` and `}`.
fn parameter(text: &str) -> Result<Part, String> {
    let refuse = |what: &str| Err(format!("${{{text}}}: {what}; {REMEDY}"));
    match text.split_once(':') {
        None if text == "uuid" => Ok(Part::Uuid),
        None if text == "seq" => Ok(Part::Seq),
        Some(("random", range)) => {
            let Some((low, high)) = range.split_once('-') else {
                return refuse("a range is two numbers with - between them");
            };
            match (low.parse::<u64>(), high.parse::<u64>()) {
                (Ok(low), Ok(high)) if high > RANDOM_MAX || low > RANDOM_MAX => {
                    refuse("a number is 9223372036854775807 at most")
                }
                (Ok(low), Ok(high)) if low > high => refuse("the lower number stands first"),
                (Ok(low), Ok(high)) => Ok(Part::Random(low, high - low + 1)),
                _ => refuse("a range is two whole numbers, 0 or more"),
            }
        }
        Some(("pick", options)) => {
            let options: Vec<String> = options.split(',').map(str::to_owned).collect();
            match options.iter().any(String::is_empty) {
                true => refuse("an option is empty"),
                false => Ok(Part::Pick(options)),
            }
        }
        _ => refuse("is not a parameter"),
    }
}

fn number(number: u64, out: &mut Vec<u8>) {
    write!(out, "{number}").expect("memory takes everything");
}

/// RFC 9562, section 5.4.
fn uuid(random: &mut Prng, out: &mut Vec<u8>) {
    let (high, low) = (random.next_u64(), random.next_u64());
    let high = high & !0xf000 | 0x4000;
    let low = low >> 2 | 1 << 63;
    let text = write!(
        out,
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    );
    text.expect("memory takes everything");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rendered(text: &str, values: &mut Values) -> String {
        let template = Template::parse(text).expect(text);
        let mut out = Vec::new();
        template.render(values, &mut out);
        String::from_utf8(out).expect("text made of text")
    }

    /// Purpose: each parameter gives what the guide says, everywhere in its range and nowhere else; one seed always
    /// gives the same.
    #[test]
    fn parameters() {
        let mut values = Values::new(7, 2, 3);
        let mut seen = [0_u32; 4];
        for _ in 0..400 {
            let text = rendered("${random:2-4}", &mut values);
            seen[text.parse::<usize>().expect("a number") - 1] += 1;
        }
        assert!(seen[0] == 0 && seen[1..].iter().all(|count| *count > 80), "{seen:?}");
        let picked: Vec<String> = (0..50).map(|_| rendered("${pick:a,b c}", &mut values)).collect();
        assert!(picked.iter().all(|text| text == "a" || text == "b c"), "{picked:?}");
        assert!(picked.contains(&"a".to_owned()) && picked.contains(&"b c".to_owned()));
        for expected in ["2-2", "5-5", "8-8"] {
            values.next_request();
            assert_eq!(rendered("${seq}-${seq}", &mut values), expected);
        }
        let text = "${uuid}|${random:0-9223372036854775807}";
        let again = |seed| rendered(text, &mut Values::new(seed, 1, 1));
        assert_eq!(again(3), again(3));
        assert_ne!(again(3), again(4));
    }

    /// Purpose: a UUID has the form, the version and the variant of RFC 9562, and does not come twice.
    #[test]
    fn uuids() {
        let mut values = Values::new(1, 1, 1);
        let made: std::collections::HashSet<String> =
            (0..1000).map(|_| rendered("${uuid}", &mut values)).collect();
        assert_eq!(made.len(), 1000);
        for uuid in made {
            let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
            assert_eq!(&uuid[14..15], "4", "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        }
    }

    /// Purpose: text stays as it is, dollars and braces too, and `$${` is how `${` is written.
    #[test]
    fn text() {
        for (text, expected) in [
            ("", ""),
            ("{\"a\": {\"$b\": \"5 $\"}}", "{\"a\": {\"$b\": \"5 $\"}}"),
            ("$${uuid}", "${uuid}"),
            ("$$${", "$${"),
            ("$$", "$$"),
            ("é$${é", "é${é"),
        ] {
            let template = Template::parse(text).expect(text);
            assert_eq!(template.constant(), Some(expected.as_bytes()), "{text}");
        }
        assert_eq!(Template::parse("a${seq}").expect("valid").constant(), None);
    }

    /// Purpose: an invalid parameter is refused with the parameter, the reason and what to write.
    #[test]
    fn refused() {
        for (text, message) in [
            ("${", "has no end"),
            ("a ${random:1-2", "has no end"),
            ("${}", "${}: is not a parameter"),
            ("${UUID}", "${UUID}: is not a parameter"),
            ("${seq:1}", "is not a parameter"),
            ("${random:5}", "two numbers with -"),
            ("${random:a-b}", "two whole numbers"),
            ("${random:-1-5}", "two whole numbers"),
            ("${random:9-1}", "the lower number stands first"),
            ("${random:0-9223372036854775808}", "9223372036854775807 at most"),
            ("${pick:}", "an option is empty"),
            ("${pick:a,,b}", "an option is empty"),
        ] {
            let error = Template::parse(text).expect_err(text);
            assert!(error.contains(message) && error.contains("write ${random:1-1000}"), "{error}");
        }
    }

    proptest! {
        /// Purpose: no text makes the parser fail in another way than by its message, and escaped, every text stands
        /// for itself.
        #[test]
        fn any_text(text in "([$]|[{}]|random:|pick:|uuid|seq|[0-9]|-|,|.){0,12}", seed in any::<u64>()) {
            if let Ok(template) = Template::parse(&text) {
                let mut out = Vec::new();
                template.render(&mut Values::new(seed, 1, 1), &mut out);
                prop_assert_eq!(template.constant().is_none_or(|constant| constant == out), true);
                let mut twice = template.clone();
                twice.append(&template);
                prop_assert_eq!(twice.texts().map(<[u8]>::len).sum::<usize>(),
                    2 * template.texts().map(<[u8]>::len).sum::<usize>());
            }
            let escaped = text.replace("${", "$${");
            let template = Template::parse(&escaped).expect("everything is escaped");
            prop_assert_eq!(template.constant(), Some(text.as_bytes()));
        }
    }
}
