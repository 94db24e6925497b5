//! What does `Idempotency-Key` hold?

/// How long a key may be, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 255;

/// Why a key cannot be read, for its sender.
pub(super) const FORM: &str = "Idempotency-Key is one string of 1 to 255 visible ASCII characters, such as \"8e03978e-40d5-43e8-bc93-6894a57f9324\"";

/// Reads the values of all fields of that name: `None` without any.
///
/// A key is a string of RFC 9651 §3.3.3, with its quotes; parameters behind it have no meaning and are skipped. Without quotes, as
/// many clients send it, the same characters are the same key.
pub(super) fn read<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<Option<String>, ()> {
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(());
    }
    let value = value.trim_ascii();
    let key = match value.strip_prefix(b"\"") {
        Some(rest) => quoted(rest),
        None => plain(value),
    };
    key.filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len())).map(Some).ok_or(())
}

/// A string behind its first quote.
fn quoted(bytes: &[u8]) -> Option<String> {
    let mut key = String::new();
    let mut rest = bytes.iter();
    loop {
        match rest.next()? {
            b'"' => break,
            b'\\' => match rest.next()? {
                escaped @ (b'"' | b'\\') => key.push(char::from(*escaped)),
                _ => return None,
            },
            byte @ b' '..=b'~' => key.push(char::from(*byte)),
            _ => return None,
        }
    }
    let rest = rest.as_slice().trim_ascii_start();
    (rest.is_empty() || rest.starts_with(b";")).then_some(key)
}

/// A key without quotes.
fn plain(bytes: &[u8]) -> Option<String> {
    let is_plain =
        |byte: &u8| matches!(byte, b'!'..=b'~') && !matches!(byte, b'"' | b'\\' | b',' | b';');
    let text = bytes.iter().all(is_plain).then_some(bytes)?;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: keys are read as RFC 9651 writes strings, and as clients write them that have not read it.
    #[test]
    fn keys() {
        let longest = "k".repeat(KEY_BYTES_MAX);
        let longer = "k".repeat(KEY_BYTES_MAX + 1);
        type Case<'a> = (&'a [&'a str], Result<Option<&'a str>, ()>);
        let cases: [Case<'_>; 17] = [
            (&[], Ok(None)),
            (&["\"8e03-9f\""], Ok(Some("8e03-9f"))),
            (&["8e03-9f"], Ok(Some("8e03-9f"))),
            (&["  \"a b\"  "], Ok(Some("a b"))),
            (&["\"a\\\"b\\\\\""], Ok(Some("a\"b\\"))),
            (&["\"a\";b=c"], Ok(Some("a"))),
            (&[&longest], Ok(Some(&longest))),
            (&[&longer], Err(())),
            (&[""], Err(())),
            (&["\"\""], Err(())),
            (&["\"a"], Err(())),
            (&["\"a\" b"], Err(())),
            (&["\"a\\b\""], Err(())),
            (&["\"ä\""], Err(())),
            (&["a b"], Err(())),
            (&["a, b"], Err(())),
            (&["a", "b"], Err(())),
        ];
        for (values, expected) in cases {
            let found = read(values.iter().map(|value| value.as_bytes()));
            assert_eq!(
                found.as_ref().map(Option::as_deref),
                expected.as_ref().map(|key| *key),
                "{values:?}"
            );
        }
    }
}
