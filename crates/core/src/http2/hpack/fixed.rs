//! HPACK's static table (RFC 7541, Appendix A), and where a name or a field stands in it.

/// The number of entries; the dynamic table's indices begin after it.
pub(super) const COUNT: usize = 61;

/// Names and values, from index 1.
pub(super) static ENTRIES: [(&str, &str); COUNT] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Places of a hash table with linear probing: about four for each of the 52 names.
const PLACES: usize = 256;

/// For each hash: the first index with that name; 0: none.
static INDEX: [u8; PLACES] = index();

/// For each entry that is the first with its name: how many entries with that name have a value.
static WITH_VALUE: [u8; COUNT] = with_value();

const fn with_value() -> [u8; COUNT] {
    let mut counts = [0; COUNT];
    let (mut entry, mut first) = (0, 0);
    while entry < COUNT {
        if !is_equal(ENTRIES[entry].0.as_bytes(), ENTRIES[first].0.as_bytes()) {
            first = entry;
        }
        if !ENTRIES[entry].1.is_empty() {
            counts[first] += 1;
        }
        entry += 1;
    }
    counts
}

/// Lengths and three bytes tell all names apart but a few.
const fn hash(name: &[u8]) -> usize {
    let (len, last) = (name.len(), name[name.len() - 1] as usize);
    (len * 7 + name[0] as usize * 31 + name[len / 2] as usize * 3 + last * 5) % PLACES
}

const fn index() -> [u8; PLACES] {
    let mut places = [0; PLACES];
    let mut entry = 0;
    while entry < COUNT {
        let name = ENTRIES[entry].0.as_bytes();
        let is_first = entry == 0 || !is_equal(name, ENTRIES[entry - 1].0.as_bytes());
        let mut place = hash(name);
        while is_first && places[place] != 0 {
            place = (place + 1) % PLACES;
        }
        if is_first {
            places[place] = entry as u8 + 1;
        }
        entry += 1;
    }
    places
}

const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Where a field stands in the static table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Name and value, by index.
    Field(usize),
    /// The name only.
    Name(usize),
    Nothing,
}

#[inline]
pub(super) fn find(name: &[u8], value: &[u8]) -> Found {
    if name.is_empty() {
        return Found::Nothing;
    }
    let mut place = hash(name);
    while INDEX[place] != 0 {
        let first = usize::from(INDEX[place]);
        if ENTRIES[first - 1].0.as_bytes() == name {
            let with_value = &ENTRIES[first - 1..][..usize::from(WITH_VALUE[first - 1])];
            let same = with_value.iter().position(|entry| entry.1.as_bytes() == value);
            return same.map_or(Found::Name(first), |at| Found::Field(first + at));
        }
        place = (place + 1) % PLACES;
    }
    Found::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: every entry is found where it stands, by name and with its value, and nothing else is.
    #[test]
    fn lookup() {
        for (index, (name, value)) in (1..).zip(ENTRIES) {
            let first = 1 + ENTRIES.iter().position(|entry| entry.0 == name).expect("is in it");
            assert_eq!(find(name.as_bytes(), b"other"), Found::Name(first), "{name}");
            let expected = if value.is_empty() { Found::Name(first) } else { Found::Field(index) };
            assert_eq!(find(name.as_bytes(), value.as_bytes()), expected, "{name}");
        }
        for name in ["", "x", ":statu", "Accept", "content-typ", "x-request-id", "te"] {
            assert_eq!(find(name.as_bytes(), b""), Found::Nothing, "{name}");
        }
    }
}
