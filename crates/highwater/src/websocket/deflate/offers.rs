//! Which extensions has a client offered, while it is not known whether anybody asks?

/// As long as browsers' offers are, they need no memory of their own.
const INLINE_MAX: usize = 62;

/// The values of the fields `Sec-WebSocket-Extensions`, as one list.
pub(in super::super) enum Offers {
    Inline(u8, [u8; INLINE_MAX]),
    Long(Vec<u8>),
}

impl Offers {
    pub(in super::super) fn of<'v>(values: impl Iterator<Item = &'v [u8]>) -> Offers {
        let mut offers = Offers::Inline(0, [0; INLINE_MAX]);
        for value in values {
            if !offers.as_bytes().is_empty() {
                offers.push(b",");
            }
            offers.push(value);
        }
        offers
    }

    pub(in super::super) fn as_bytes(&self) -> &[u8] {
        match self {
            Offers::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Offers::Long(bytes) => bytes,
        }
    }

    fn push(&mut self, more: &[u8]) {
        match self {
            Offers::Inline(len, bytes) => {
                let (begin, end) = (usize::from(*len), usize::from(*len) + more.len());
                match bytes.get_mut(begin..end) {
                    Some(free) => {
                        free.copy_from_slice(more);
                        *len = end as u8;
                    }
                    None => *self = Offers::Long([&bytes[..begin], more].concat()),
                }
            }
            Offers::Long(bytes) => bytes.extend_from_slice(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a handshake of a browser allocates nothing for offers that nobody may ask for; offers of any length and in
    /// any number of fields are kept whole.
    #[test]
    fn offers_are_kept() {
        let of = |values: &[&str]| Offers::of(values.iter().map(|value| value.as_bytes()));
        for value in ["", "permessage-deflate", "permessage-deflate; client_max_window_bits"] {
            let offers = of(&[value]);
            assert!(matches!(offers, Offers::Inline(..)), "{value}");
            assert_eq!(offers.as_bytes(), value.as_bytes());
        }
        for len in [INLINE_MAX - 1, INLINE_MAX, INLINE_MAX + 1, 1000] {
            let value = "x".repeat(len);
            assert_eq!(of(&[&value]).as_bytes(), value.as_bytes());
            assert_eq!(of(&[&value, "b", "c"]).as_bytes(), format!("{value},b,c").as_bytes());
        }
    }
}
