//! Markdown with marks, as one HTML file that loads nothing. Pure.

use std::collections::BTreeMap;

use pulldown_cmark::{CowStr, Event, HeadingLevel, Parser, Tag, TagEnd, html};

use super::directive::{Marked, Problem};
use super::make::Made;
use super::text::{MARK, escape, options};

/// What HTML in Markdown may hold: elements that neither load nor run anything.
const ELEMENTS: [&str; 26] = [
    "b", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em", "hr", "i", "ins", "kbd",
    "li", "mark", "ol", "p", "pre", "s", "small", "span", "strong", "sub", "summary", "sup",
];
/// What these may have.
const ATTRIBUTES: [&str; 5] = ["class", "id", "title", "lang", "open"];

/// A page before it is put into a book.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) title: String,
    /// Markdown files that it links to, relative to itself, each with its line.
    pub(super) links: Vec<(usize, String)>,
    body: String,
    footer: bool,
}

/// Renders `marked`; `made` stand for its marks, each with its line.
///
/// # Errors
/// HTML or pictures that would load something; a directive in the middle of a paragraph.
pub(super) fn render(marked: &Marked, made: &[(usize, Made)]) -> Result<Page, Vec<Problem>> {
    let (mut problems, mut headings, mut first) = (Vec::new(), Headings::default(), None);
    let mut events: Vec<Event<'_>> = Vec::new();
    let (mut block, mut links) = (String::new(), Vec::new());
    for (event, range) in Parser::new_ext(&marked.text, options()).into_offset_iter() {
        let mut refuse = |what: &str| problems.push(Problem::new(marked.line(range.start), what));
        match &event {
            // A tag may go on in the block's next line.
            Event::Html(html) => block.push_str(html),
            Event::InlineHtml(html) => {
                forbidden(html).into_iter().for_each(|bad| refuse(&bad_html(&bad)));
            }
            Event::End(TagEnd::HtmlBlock) => {
                forbidden(&block).into_iter().for_each(|bad| refuse(&bad_html(&bad)));
                block.clear();
            }
            Event::Start(Tag::Image { .. }) => {
                refuse("a picture would be loaded; write a @chart, or a link");
            }
            Event::Start(Tag::Link { dest_url, .. }) if has_script(dest_url) => {
                refuse(&format!("the link {dest_url:?} would run something; remove it"));
            }
            _ => {}
        }
        match event {
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                links.extend(page_link(&dest_url).map(|link| (marked.line(range.start), link)));
                let dest_url = CowStr::from(to_html(&dest_url));
                events.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
            }
            Event::End(TagEnd::Heading(level)) => {
                events.push(event);
                let title = headings.name(&mut events, level);
                if level == HeadingLevel::H1 {
                    first.get_or_insert(title);
                }
            }
            event => events.push(event),
        }
    }
    let mut body = String::new();
    html::push_html(&mut body, events.into_iter());
    let body = with_made(body, made, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let meta = made.iter().rev().find_map(|(_, made)| match made {
        Made::Meta { title } => title.clone(),
        _ => None,
    });
    let inline = |title: String| with_values(&title, made);
    Ok(Page {
        title: meta.or(first.map(inline)).unwrap_or_else(|| "Untitled".to_owned()),
        links,
        body,
        footer: made.iter().any(|(_, made)| *made == Made::Footer),
    })
}

/// The body with `made` in place of their marks.
fn with_made(mut body: String, made: &[(usize, Made)], problems: &mut Vec<Problem>) -> String {
    for (index, (line, made)) in made.iter().enumerate() {
        let mark = format!("{}{index}{}", MARK.0, MARK.1);
        let alone = format!("<p>{mark}</p>");
        body = match made {
            Made::Inline(html) => body.replace(&mark, html),
            Made::Block(html) if body.contains(&alone) => body.replace(&alone, html),
            Made::Block(html) if is_between_blocks(&body, &mark) => body.replace(&mark, html),
            Made::Block(_) => {
                problems.push(Problem::new(
                    *line,
                    "the directive stands within a paragraph; put it on a line of its own",
                ));
                body
            }
            Made::Footer | Made::Meta { .. } => body.replace(&alone, "").replace(&mark, ""),
        };
    }
    body
}

/// A list's entry holds blocks without a paragraph around them.
fn is_between_blocks(body: &str, mark: &str) -> bool {
    let Some((before, behind)) = body.split_once(mark) else { return false };
    before.trim_end().ends_with("<li>") && behind.trim_start().starts_with("</li>")
}

/// The title with metrics in place of their marks, as text.
fn with_values(title: &str, made: &[(usize, Made)]) -> String {
    let mut title = title.to_owned();
    for (index, (_, made)) in made.iter().enumerate() {
        let value = if let Made::Inline(html) = made { html.as_str() } else { "" };
        title = title.replace(&format!("{}{index}{}", MARK.0, MARK.1), value);
    }
    title
}

/// Ids of headings: what they say, and a number where that is there already.
#[derive(Default)]
struct Headings(BTreeMap<String, u32>);

impl Headings {
    /// Gives the heading that has just ended an id. Its text.
    fn name(&mut self, events: &mut [Event<'_>], level: HeadingLevel) -> String {
        let is_start = |event: &Event<'_>| matches!(event, Event::Start(Tag::Heading { level: l, .. }) if *l == level);
        let Some(start) = events.iter().rposition(is_start) else { return String::new() };
        let text: String = events[start..]
            .iter()
            .filter_map(|event| match event {
                Event::Text(text) | Event::Code(text) => Some(text.to_string()),
                _ => None,
            })
            .collect();
        let is_kept = |c: char| c.is_alphanumeric();
        let words: Vec<String> = text
            .split(|c| !is_kept(c))
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let slug = words.join("-");
        let slug = if slug.is_empty() { "section".to_owned() } else { slug };
        let count = self.0.entry(slug.clone()).or_insert(0);
        *count += 1;
        let unique = if *count == 1 { slug } else { format!("{slug}-{count}") };
        if let Event::Start(Tag::Heading { id, .. }) = &mut events[start] {
            *id = Some(unique.into());
        }
        text
    }
}

/// Pages of the book link each other by their Markdown; readers have HTML.
fn to_html(link: &str) -> String {
    let (path, anchor) = link.split_at(link.find('#').unwrap_or(link.len()));
    match path.strip_suffix(".md").filter(|_| !is_elsewhere(path)) {
        Some(stem) => format!("{stem}.html{anchor}"),
        None => link.to_owned(),
    }
}

fn is_elsewhere(path: &str) -> bool {
    path.contains("://") || path.starts_with("//")
}

/// The Markdown file that a link leads to, if it leads to one beside the page.
fn page_link(link: &str) -> Option<String> {
    let path = &link[..link.find('#').unwrap_or(link.len())];
    (path.ends_with(".md") && !is_elsewhere(path)).then(|| path.replace("%20", " "))
}

fn has_script(link: &str) -> bool {
    let scheme: String = link.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
    let scheme = scheme.to_ascii_lowercase();
    ["javascript:", "data:", "vbscript:"].iter().any(|bad| scheme.starts_with(bad))
}

fn bad_html(bad: &str) -> String {
    format!("{bad} may load or run something; write Markdown instead")
}

/// The first part of `html` that is not known to be harmless.
fn forbidden(html: &str) -> Option<String> {
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let tag = rest.strip_prefix('/').unwrap_or(rest);
        let end = tag.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(tag.len());
        let name = tag[..end].to_ascii_lowercase();
        if name.is_empty() && !rest.starts_with(['!', '?', '/']) {
            continue;
        }
        if !ELEMENTS.contains(&name.as_str()) {
            return Some(format!("<{}>", if name.is_empty() { "!" } else { &name }));
        }
        let close = end_of(tag);
        if close == tag.len() {
            return Some(format!("<{name} without its end"));
        }
        let attributes = tag[end..close].trim_end_matches('/');
        if let Some(bad) =
            attributes_of(attributes).find(|name| !ATTRIBUTES.contains(&name.as_str()))
        {
            return Some(format!("<{name} {bad}=…>"));
        }
        rest = &tag[close..];
    }
    None
}

/// Where a tag ends: at the first `>` that no quotes hold.
fn end_of(tag: &str) -> usize {
    let mut quote = None;
    for (at, c) in tag.char_indices() {
        match (quote, c) {
            (None, '>') => return at,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    tag.len()
}

/// The names in front of values, and words that have none.
fn attributes_of(text: &str) -> impl Iterator<Item = String> {
    let (mut names, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        names.push(rest[..end].to_ascii_lowercase());
        rest = rest[end..].trim_start();
        if let Some(value) = rest.strip_prefix('=') {
            let value = value.trim_start();
            let end = match value.chars().next() {
                Some(quote @ ('"' | '\'')) => {
                    value[1..].find(quote).map_or(value.len(), |end| end + 2)
                }
                _ => value.find(char::is_whitespace).unwrap_or(value.len()),
            };
            rest = value[end..].trim_start();
        }
    }
    names.into_iter()
}

/// A page's place in its book.
pub(super) struct Place<'a> {
    /// Link and title of every page, in order.
    pub(super) pages: &'a [(String, String)],
    /// Which of them it is.
    pub(super) index: usize,
}

impl Page {
    /// The whole file.
    pub(super) fn html(&self, place: &Place<'_>) -> String {
        let title = escape(&self.title);
        let mut contents = String::new();
        if place.pages.len() > 1 {
            let entries: String = place
                .pages
                .iter()
                .enumerate()
                .map(|(index, (link, title))| {
                    let here = if index == place.index { " aria-current=\"page\"" } else { "" };
                    format!("<li><a href=\"{}\"{here}>{}</a></li>\n", escape(link), escape(title))
                })
                .collect();
            contents = format!("<nav aria-label=\"Contents\"><ul>\n{entries}</ul></nav>\n");
        }
        let footer = if self.footer {
            "<footer>Every figure on this page comes from a record.</footer>\n"
        } else {
            ""
        };
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style>\n</head>\n<body>\n{contents}<main>\n{}</main>\n{footer}</body>\n</html>\n",
            self.body
        )
    }
}

const STYLE: &str = include_str!("style.css");
