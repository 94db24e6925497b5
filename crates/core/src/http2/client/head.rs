//! Are the fields of an answer, or its trailers, those that RFC 9113 §8 allows?

use super::super::hpack::Field;
use super::Event;

/// What is known from the fields so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub(super) id: u32,
    /// The fields of the final answer, or of its trailers, are reported.
    pub(super) wants_fields: bool,
    pub(super) is_trailers: bool,
    /// 0: none has come.
    pub(super) status: u16,
    /// `content-length`.
    pub(super) length: Option<u64>,
    /// What was wrong first.
    pub(super) wrong: Option<&'static str>,
    /// A field that is not a pseudo-field has come.
    pub(super) is_regular: bool,
}

impl Head {
    #[inline]
    pub(super) fn take(&mut self, field: Field<'_>, on_event: &mut impl FnMut(Event<'_>)) {
        let checked = match field.name.first() {
            Some(b':') => self.pseudo(field),
            _ => self.regular(field),
        };
        if let Err(reason) = checked {
            self.wrong.get_or_insert(reason);
        } else if self.wants_fields && self.is_trailers {
            on_event(Event::Trailer(self.id, field.name, field.value));
        } else if self.wants_fields && self.status >= 200 {
            on_event(match self.is_regular {
                true => Event::Field(self.id, field.name, field.value),
                false => Event::Status(self.id, self.status),
            });
        }
    }

    /// RFC 9113 §8.3: one `:status`, before all other fields, and not in trailers. 101 does not exist (§8.6).
    fn pseudo(&mut self, field: Field<'_>) -> Result<(), &'static str> {
        if self.is_regular || self.is_trailers {
            return Err("a pseudo-field stands behind other fields, or in trailers");
        }
        if field.name != b":status" || self.status != 0 {
            return Err("an answer has pseudo-fields other than one :status");
        }
        match field.value {
            [a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9'] if field.value != b"101" => {
                let digit = |byte: &u8| u16::from(byte - b'0');
                self.status = digit(a) * 100 + digit(b) * 10 + digit(c);
                Ok(())
            }
            _ => Err("the :status of an answer is not 100 to 599, or 101"),
        }
    }

    /// RFC 9113 §8.2: names in lower case, and none that are about the connection.
    fn regular(&mut self, field: Field<'_>) -> Result<(), &'static str> {
        self.is_regular = true;
        let is_allowed = |byte: &u8| matches!(byte, b'!'..=b'@' | b'['..=b'~') && *byte != b':';
        if field.name.is_empty() || !field.name.iter().all(is_allowed) {
            return Err("the name of a field is empty, or not in lower case");
        }
        if field.value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
            return Err("the value of a field has a line end or a zero in it");
        }
        match field.name {
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding"
            | b"upgrade" => Err("an answer has a field that is about the connection"),
            b"content-length" => self.length(field.value),
            _ => Ok(()),
        }
    }

    fn length(&mut self, value: &[u8]) -> Result<(), &'static str> {
        const WRONG: &str = "the content-length of an answer is not one number";
        let digits = value.iter().try_fold(0_u64, |number, byte| match byte {
            b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
            _ => None,
        });
        let length = digits.filter(|_| !value.is_empty()).ok_or(WRONG)?;
        if self.length.is_some_and(|before| before != length) {
            return Err(WRONG);
        }
        self.length = Some(length);
        Ok(())
    }
}
