//! How is a document shown to people?
//!
//! One self-contained page: it loads nothing but `openapi.json` beside it, and shows that. It has only its own script and
//! style: [`POLICY`] names both by their hashes. A test compares the hashes with the files, and prints the new ones after a
//! change. Content of the document becomes text, never a part of the page.

use crate::escape::html;

/// The page of a document with this title, as HTML.
pub(super) fn of(title: &str) -> String {
    let title = html(title);
    format!("{HEAD}<title>{title}</title>\n{REST}")
}

const HEAD: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
    "<link rel=\"icon\" href=\"data:,\">\n"
);

const REST: &str = concat!(
    "<style>",
    include_str!("page.css"),
    "</style>\n<main id=\"page\"><p id=\"problem\" role=\"alert\"></p></main>\n",
    "<noscript>This page needs a script to show <a href=\"openapi.json\">openapi.json</a>.</noscript>\n<script>",
    include_str!("page.js"),
    "</script>\n</html>\n"
);

/// What the page may do, as a content security policy: run its own script, have its own style, ask this server.
pub(super) const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; \
     style-src 'sha256-mr6MXUE5EIdzVTuA06U0Q+gJ3fysDzUF28Kxu+8gGfM='; \
     script-src 'sha256-/88+RTXEy/H+noltl1nSi3gjPp1JT7K7c8kMWjoT4kA='; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_checks::{assert_policy_fits, assert_self_contained};

    /// The largest page, in bytes.
    const SIZE_MAX: usize = 24_000;

    /// Purpose: after a change of script or style, the page would be blank in every browser unless the policy names the
    /// new ones.
    #[test]
    fn the_policy_names_the_style_and_the_script() {
        assert_policy_fits(POLICY, &of("Todos"));
    }

    /// Purpose: the page is complete in itself and small, text from a document stays text, and a title
    /// cannot end its own element.
    #[test]
    fn the_page_is_complete_and_careful() {
        let page = of("</title><script>alert(1)</script>");
        assert_self_contained(&page, SIZE_MAX);
        assert_eq!(page.matches("<script>").count(), 1);
    }
}
