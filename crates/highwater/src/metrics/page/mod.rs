//! What does the metrics port show in a browser?
//!
//! One self-contained page: it loads nothing but `/metrics` beside it, once per second while it is
//! seen, and draws from that. So a page that nobody opens costs nothing, and one that is open costs as
//! much as one scrape per second. `highwater top` shows the same figures in a terminal.
//!
//! It has only its own script and style: [`POLICY`] names both by their hashes. A test compares the hashes with the files,
//! and prints the new ones after a change.

/// The page, as HTML.
pub(crate) const PAGE: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
    "<title>Highwater</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>",
    include_str!("page.css"),
    "</style>\n",
    include_str!("body.html"),
    "<script>",
    include_str!("page.js"),
    "</script>\n</html>\n"
);

/// What the page may do, as a content security policy: run its own script, have its own style, ask this port.
pub(crate) const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; \
     style-src 'sha256-q537Tu7I9G9GRI/LguMja3Xl8Vf8bU9CS23TRrsWVYQ='; \
     script-src 'sha256-rFqVkRoxHl5k22Y9JTId1LbR6wGuD2Fj+2qR+5SnX0Q='; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_checks::{assert_policy_fits, assert_self_contained};

    /// The largest page, in bytes.
    const SIZE_MAX: usize = 40_000;

    /// Purpose: after a change of script or style, the page would be blank in every browser unless the
    /// policy names the new ones.
    #[test]
    fn the_policy_names_the_style_and_the_script() {
        assert_policy_fits(POLICY, PAGE);
    }

    /// Purpose: the page is complete in itself and small, and text from a server stays text.
    #[test]
    fn the_page_is_complete_and_careful() {
        assert_self_contained(PAGE, SIZE_MAX);
    }
}
