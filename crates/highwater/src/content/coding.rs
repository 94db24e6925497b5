//! Which content coding does the client accept? (`Accept-Encoding`, RFC 9110 §12.5.3)

use highwater_core::http::Fields;

use super::weight::thousandths;

/// A content coding that this server can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Coding {
    /// The content as it is.
    Identity,
    Gzip,
    Brotli,
    Zstd,
}

impl Coding {
    /// Those that make other bytes.
    #[cfg(feature = "compression")]
    pub(crate) const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    /// Its name in `Content-Encoding`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Coding::Identity => "identity",
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }

    fn is_named(self, name: &str) -> bool {
        // Section 8.4.1.3: the old name is an alias.
        name.eq_ignore_ascii_case(self.name())
            || self == Coding::Gzip && name.eq_ignore_ascii_case("x-gzip")
    }
}

/// The weights in thousandths that a client gives to codings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    gzip: Option<u16>,
    brotli: Option<u16>,
    zstd: Option<u16>,
    identity: Option<u16>,
    /// Of codings that are not named.
    others: Option<u16>,
}

impl Weights {
    /// The weights in the fields of a request. If there is no such field, only the content as it is.
    pub(crate) fn of(fields: Fields<'_>) -> Self {
        let mut weights = Weights::default();
        for value in fields.get_all("accept-encoding") {
            let text = std::str::from_utf8(value).unwrap_or_default();
            for member in text.split(',') {
                weights.add(member);
            }
        }
        weights
    }

    fn add(&mut self, member: &str) {
        let mut parts = member.split(';').map(str::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let mut weight = 1000;
        for parameter in parts {
            let Some((key, value)) = parameter.split_once('=') else { return };
            if key.trim_ascii().eq_ignore_ascii_case("q") {
                let Some(parsed) = thousandths(value.trim_ascii()) else { return };
                weight = parsed;
            }
        }
        let place = match name {
            "*" => &mut self.others,
            name if Coding::Gzip.is_named(name) => &mut self.gzip,
            name if Coding::Brotli.is_named(name) => &mut self.brotli,
            name if Coding::Zstd.is_named(name) => &mut self.zstd,
            name if Coding::Identity.is_named(name) => &mut self.identity,
            _ => return,
        };
        *place = Some(weight);
    }

    /// The weight of a coding; 0 if it is not accepted.
    pub(crate) fn of_coding(&self, coding: Coding) -> u16 {
        let own = match coding {
            Coding::Gzip => self.gzip,
            Coding::Brotli => self.brotli,
            Coding::Zstd => self.zstd,
            // It is accepted unless it is excluded, and liked less than anything that is named.
            Coding::Identity => return self.identity.unwrap_or(u16::from(self.others != Some(0))),
        };
        own.or(self.others).unwrap_or(0)
    }

    /// The offer that the client likes best; of equal ones the first, of which the content as it is should be the last.
    /// `None` if it accepts none of them.
    #[cfg(any(feature = "compression", test))]
    pub(crate) fn choose(&self, offers: impl IntoIterator<Item = Coding>) -> Option<Coding> {
        let mut best = None;
        for offer in offers {
            let weight = self.of_coding(offer);
            if weight > best.map_or(0, |(_, other)| other) {
                best = Some((offer, weight));
            }
        }
        best.map(|(coding, _)| coding)
    }
}

#[cfg(test)]
mod tests {
    use super::Coding::*;
    use super::*;

    fn choose(field: &str) -> Option<Coding> {
        let mut weights = Weights::default();
        field.split(',').for_each(|member| weights.add(member));
        weights.choose([Brotli, Zstd, Gzip, Identity])
    }

    /// Purpose: the client's weights decide, then the server's order; what is refused is never chosen. Cases of RFC 9110
    /// §12.5.3 and of tower-http's tests of negotiation.
    #[test]
    fn negotiation() {
        for (field, chosen) in [
            ("", Some(Identity)),
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("gzip", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("GZIP", Some(Gzip)),
            ("gzip;q=1, br;q=0.9", Some(Gzip)),
            ("gzip ; Q=0.5 , zstd;q=0.501", Some(Zstd)),
            ("deflate", Some(Identity)),
            ("*", Some(Brotli)),
            ("*, br;q=0", Some(Zstd)),
            ("br;q=0, *;q=0.1", Some(Zstd)),
            ("gzip;q=0.5, identity", Some(Identity)),
            ("identity;q=0.5, gzip;q=0.4", Some(Identity)),
            ("identity;q=0", None),
            ("*;q=0", None),
            ("*;q=0, gzip", Some(Gzip)),
            ("*;q=0, identity;q=0.1", Some(Identity)),
            ("gzip;q=0", Some(Identity)),
            ("gzip;q=2", Some(Identity)),
            ("gzip;q=", Some(Identity)),
            ("gzip;q=0.0001", Some(Identity)),
            ("gzipped, br2, *x", Some(Identity)),
            (",, gzip,", Some(Gzip)),
        ] {
            assert_eq!(choose(field), chosen, "{field}");
        }
    }
}
