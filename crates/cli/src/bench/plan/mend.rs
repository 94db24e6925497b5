//! Translates the TOML parser's errors for the author of a plan. Pure: from the error's text and position to the field,
//! its problem, and what to write instead.

/// Maximum distance, in letters, between a misspelt name and the suggested one.
const TYPOS_MAX: usize = 2;

/// The error in the plan's terms. `before` is the text up to its position.
pub(super) fn mend(message: &str, before: &str) -> String {
    let message = message.trim().replace('\n', " ");
    if let Some(rest) = message.strip_prefix("unknown field `") {
        return unknown(rest);
    }
    let remedy = match message.as_str() {
        text if text.contains("missing field `ready`") => {
            "; write ready = \"/path\", which is asked until it answers 2xx"
        }
        text if text.contains("missing field `start`") => {
            "; write start = [\"program\", \"argument\"], which prints last where the service is"
        }
        text if text.contains("missing field `figures`") => {
            "; write [program.figures], and under it requests = { json = [\"key\"] } or { pattern = '(\\d+) requests' }"
        }
        text if text.contains("missing field `command`") => {
            "; write command = [\"program\", \"--listen\", \"127.0.0.1:{port}\"]"
        }
        text if text.contains("missing field") => "; add it",
        _ => "",
    };
    if !remedy.is_empty() {
        return message + remedy;
    }
    let text = in_words(&message);
    match field_before(before) {
        Some(field) => format!("{field}: {text}"),
        None => text,
    }
}

/// Of `NAME`, expected … `A`, `B`: the name, and the one that was meant.
fn unknown(rest: &str) -> String {
    let name = rest.split('`').next().unwrap_or_default();
    // Names are between backquotes; the text between names is not.
    let known: Vec<&str> = rest.split('`').skip(2).step_by(2).collect();
    let nearest = known.iter().map(|known| (distance(name, known), known)).min();
    match nearest.filter(|(typos, _)| *typos <= TYPOS_MAX && *typos < name.len()) {
        Some((_, known)) => format!("unknown field `{name}`; did you mean `{known}`?"),
        None => format!(
            "unknown field `{name}`; remove it: docs/benchmarks.md lists the fields of a plan"
        ),
    }
}

/// `invalid type: string "two", expected u32`, in plain words.
fn in_words(message: &str) -> String {
    let found = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "));
    let Some((found, expected)) = found.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return message.to_owned();
    };
    let expected = match expected {
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "f64" | "f32" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list, such as [\"a\", \"b\"]",
        "a map" => "a table, such as { name = \"value\" }",
        "a string" => "text in quotes",
        "a character" => "one character in quotes",
        other => other,
    };
    format!("{} is not {expected}", found.replace('`', ""))
}

/// The name before the last `=` of the line, if the text ends before a value.
fn field_before(before: &str) -> Option<&str> {
    let line = before.rsplit('\n').next()?;
    let (name, _) = line.rsplit_once('=')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.';
    let name = name.trim_end().trim_end_matches('"');
    name.rsplit(|c: char| !is_name(c)).next().filter(|name| !name.is_empty())
}

/// The number of letters in which two names differ: added, left out, replaced, or swapped with the next.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(x != y);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: letters that were added, left out, replaced and swapped count one each.
    #[test]
    fn distances() {
        for (a, b, expected) in
            [("rate", "rate", 0), ("rat", "rate", 1), ("raet", "rate", 1), ("ready", "rate", 3)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
        assert_eq!(distance("", "abc"), 3);
    }
}
