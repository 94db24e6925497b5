//! The documentation as one site: which pages it has, and where their links lead.
//!
//! The pages stay where they are, since a forge shows them there, too. [`assemble`] copies them and what they show to a
//! folder that mdBook reads, with the same paths from one to another; a link to anything else of the repository becomes a
//! link to the forge. [`problems`] is what is wrong with them, without a site being built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::source::{self, File, resolve};

/// The list of the site's pages, as mdBook wants it, with links from where it stands.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Where files are that are not part of the site.
const FORGE: &str = "https://github.com/highwater-rs/highwater/blob/main/";
/// mdBook's settings. Nothing is loaded from elsewhere, and no program runs elsewhere.
const SETTINGS: &str = include_str!("site/book.toml");
/// What the pages need beside mdBook's own style.
const STYLE: &str = include_str!("site/site.css");

/// The pages: paths from the root, in order.
fn pages(files: &BTreeMap<&str, &str>) -> Vec<String> {
    let summary = files.get(SUMMARY).copied().unwrap_or_default();
    links(summary).into_iter().map(|(_, link)| resolve(SUMMARY, path_of(link))).collect()
}

/// Makes mdBook's source in `out`/src, and its settings beside it. What was there before is removed.
///
/// # Errors
/// A file cannot be read or written.
pub fn assemble(out: &Path) -> io::Result<()> {
    let root = source::root();
    let files = source::files();
    let texts: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let pages: BTreeSet<String> = pages(&texts).into_iter().collect();
    let source = out.join("src");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    let write = |path: &str, bytes: &[u8]| {
        let path = source.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&source))?;
        fs::write(path, bytes)
    };
    for page in &pages {
        let text = texts.get(page.as_str()).copied().unwrap_or_default();
        let shown = |path: &str| pages.contains(path) || is_picture(path);
        write(page, for_site(page, text, shown).as_bytes())?;
    }
    for path in source::paths().iter().filter(|path| is_picture(path)) {
        write(path, &fs::read(root.join(path))?)?;
    }
    let summary = texts.get(SUMMARY).copied().unwrap_or_default();
    write("SUMMARY.md", summary_at_root(summary).as_bytes())?;
    fs::write(out.join("site.css"), STYLE)?;
    fs::write(out.join("book.toml"), SETTINGS)
}

/// Runs mdBook over what [`assemble`] made; the site is in `out`/html.
///
/// # Errors
/// What it says.
pub fn build(mdbook: &Path, out: &Path) -> Result<(), String> {
    let built = Command::new(mdbook).arg("build").arg(out).output();
    let built = built.map_err(|error| format!("{}: {error}", mdbook.display()))?;
    let stderr = String::from_utf8_lossy(&built.stderr).into_owned();
    if built.status.success() && !stderr.contains("WARN") && !stderr.contains("ERROR") {
        Ok(())
    } else {
        Err(stderr)
    }
}

/// What is wrong with the pages: `FILE:LINE: what`.
pub fn problems(files: &[File]) -> Vec<String> {
    let texts: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let pages = pages(&texts);
    let mut problems = Vec::new();
    for path in texts.keys().filter(|path| is_documentation(path)) {
        if !pages.iter().any(|page| page == path) {
            problems.push(format!("{path}:1: no page links to it; add it to {SUMMARY}"));
        }
    }
    for page in pages.iter().map(String::as_str).chain([SUMMARY]) {
        let Some(text) = texts.get(page) else {
            problems.push(format!("{SUMMARY}:1: {page} is not there"));
            continue;
        };
        for (line, link) in links(text) {
            let target =
                if link.starts_with('#') { page.into() } else { resolve(page, path_of(link)) };
            let Some((_, anchor)) = link.split_once('#').filter(|_| !is_outside(link)) else {
                continue;
            };
            if texts.get(target.as_str()).is_some_and(|text| !anchors(text).contains(anchor)) {
                problems.push(format!("{page}:{line}: {target} has no heading for #{anchor}"));
            }
        }
    }
    problems
}

fn is_documentation(path: &str) -> bool {
    let within = ["docs/", "book/"].iter().any(|folder| path.starts_with(folder));
    within && path.ends_with(".md") && path != SUMMARY
}

fn is_picture(path: &str) -> bool {
    is_documentation(&format!("{path}.md")) && (path.ends_with(".svg") || path.ends_with(".png"))
}

fn is_outside(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

fn path_of(link: &str) -> &str {
    link.split('#').next().unwrap_or(link)
}

/// The links of a Markdown text outside of code, with their lines from 1.
fn links(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut in_block) = (Vec::new(), false);
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        for (at, _) in text.match_indices("](") {
            let link = text[at + 2..].split([')', ' ']).next().unwrap_or_default();
            if !in_block && text[..at].matches('`').count() % 2 == 0 {
                found.push((line, link));
            }
        }
    }
    found
}

/// `text` of `page` with links to the forge where what they lead to is not shown.
fn for_site(page: &str, text: &str, is_shown: impl Fn(&str) -> bool) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (line, link) in links(text) {
        let target = resolve(page, path_of(link));
        if !is_outside(link) && !link.starts_with('#') && !is_shown(&target) {
            let anchor = link.find('#').map_or("", |at| &link[at..]);
            let line = &mut lines[line - 1];
            *line = line.replace(&format!("]({link})"), &format!("]({FORGE}{target}{anchor})"));
        }
    }
    lines.join("\n") + "\n"
}

/// The list of pages with links from the root, where mdBook has it.
fn summary_at_root(summary: &str) -> String {
    let mut text = summary.to_owned();
    for (_, link) in links(summary) {
        let target = resolve(SUMMARY, link);
        text = text.replace(&format!("]({link})"), &format!("]({target})"));
    }
    text
}

/// What a forge and mdBook call the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut found, mut in_block) = (BTreeSet::new(), false);
    for line in text.lines() {
        in_block ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if in_block || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let is_kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
        let slug: String = heading.trim().to_lowercase().chars().filter(is_kept).collect();
        let slug = slug.replace(' ', "-");
        let again = (1..).map(|count| format!("{slug}-{count}"));
        let name = std::iter::once(slug.clone()).chain(again).find(|name| !found.contains(name));
        found.extend(name);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a reader finds every page, and every link within the documentation leads to a heading that is there.
    #[test]
    fn every_page_can_be_found() {
        let problems = problems(&source::files());
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    /// Purpose: pages that nobody can find, and links that lead nowhere, are named with their place.
    #[test]
    fn wrong_pages_are_named() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(SUMMARY, "- [A](a.md)\n- [Book](../book/index.md)\n- [Gone](gone.md)\n"),
            file("docs/a.md", "# A `b`, c\n\n[x](#a-b-c) [y](../book/index.md#no)\n`[z](#z)`\n"),
            file("book/index.md", "# Book\n"),
            file("docs/lost.md", "# Lost\n"),
        ];
        let expected = [
            "docs/lost.md:1: no page links to it; add it to docs/SUMMARY.md",
            "docs/a.md:3: book/index.md has no heading for #no",
            "docs/SUMMARY.md:1: docs/gone.md is not there",
        ];
        assert_eq!(problems(&files), expected);
    }

    /// Purpose: a link to a page or a picture stays, one to a program leads to the forge.
    #[test]
    fn links_lead_somewhere() {
        let text = "[a](a.md#b) ![c](c.svg) [d](../deploy) [e](https://e.org) [f](#f)";
        let site = for_site("docs/x.md", text, |path| path == "docs/a.md" || path == "docs/c.svg");
        let expected =
            format!("[a](a.md#b) ![c](c.svg) [d]({FORGE}deploy) [e](https://e.org) [f](#f)\n");
        assert_eq!(site, expected);
        assert_eq!(
            summary_at_root("- [a](a.md)\n[r](../README.md)\n"),
            "- [a](docs/a.md)\n[r](README.md)\n"
        );
    }
}
