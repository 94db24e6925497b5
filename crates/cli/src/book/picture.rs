//! A chart as a file of its own, for pages that are read as Markdown. Pure.
//!
//! A page shows the file as a picture, so nothing of the page's style reaches it: it has its own colours, light and
//! dark, on its own ground, and reads well whatever is around it.

/// What the page's style gives to a chart that stands in the page.
const STYLE: &str = "<style>\
:root { --ink: #1c2430; --soft: #5a6675; --paper: #ffffff; --line: #d5dbe2 }\n\
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #9daab8; --paper: #14181d; --line: #343d47 } }\n\
.paper { fill: var(--paper); stroke: var(--line) }\n\
text { fill: var(--soft); font: 12px system-ui, sans-serif }\n\
text.name { fill: var(--ink); font-size: 15px; font-weight: 600 }\n\
text.legend { fill: var(--ink) }\n\
text.x { text-anchor: middle }\n\
text.y, text.end, text.slanted { text-anchor: end }\n\
.grid { stroke: var(--line) }\n\
.base { stroke: var(--soft) }\n\
</style>\n<rect class=\"paper\" x=\"-8\" y=\"-4\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n";

/// The file for a chart that was drawn for a page, as `<figure …><svg …>…</svg></figure>`.
pub(super) fn file(figure: &str) -> Option<String> {
    let svg = &figure[figure.find("<svg ")?..figure.rfind("</figure>")?];
    let title = svg.find("<title")?;
    let (open, drawn) = svg.split_at(title);
    let (width, height) = size(open)?;
    let open = open.replacen(
        &format!("viewBox=\"0 0 {width} {height}\""),
        // A margin, since a picture has no page around it.
        &format!(
            "width=\"{}\" height=\"{}\" viewBox=\"-8 -4 {} {}\"",
            width + 16,
            height + 8,
            width + 16,
            height + 8
        ),
        1,
    );
    let behind = drawn.find("</title>")? + "</title>".len();
    let (title, drawn) = drawn.split_at(behind);
    // What a pointer shows; a picture has none.
    let drawn: Vec<&str> =
        drawn.lines().filter(|line| !line.starts_with("<circle class=\"hint\"")).collect();
    Some(format!("{open}{title}\n{STYLE}{}\n", drawn.join("\n").trim()))
}

/// Width and height of `viewBox="0 0 W H"`.
fn size(open: &str) -> Option<(u32, u32)> {
    let (_, rest) = open.split_once("viewBox=\"0 0 ")?;
    let (width, height) = rest[..rest.find('"')?].split_once(' ')?;
    Some((width.parse().ok()?, height.parse().ok()?))
}
