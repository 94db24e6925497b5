//! Which name was probably meant by one that is unknown?

/// The candidate that `name` was probably meant to be: one or two typos away, one in a short word.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let slips_max = if name.len() <= 5 { 1 } else { 2 };
    let distance = |candidate| (strsim::levenshtein(name, candidate), candidate);
    let near = candidates.map(distance).min()?;
    (near.0 <= slips_max).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: typos are recognised, other words are not.
    #[test]
    fn the_nearest_name_is_found() {
        let names = || ["listen", "header-max", "pin", "log", "workers"].into_iter();
        assert_eq!(nearest("lisen", names()), Some("listen"));
        assert_eq!(nearest("header-mx", names()), Some("header-max"));
        assert_eq!(nearest("pim", names()), Some("pin"));
        assert_eq!(nearest("port", names()), None);
        assert_eq!(nearest("service-host", names()), None);
        assert_eq!(nearest("", names()), None);
    }
}
