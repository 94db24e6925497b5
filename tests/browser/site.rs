//! Can the documentation's site be read, searched and followed in a browser?

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use highwater::{Error, Response, Router, Running, Server, ServerConfig, blocking};
use highwater_skip::skip;
use highwater_tests::{site, source};

use super::browser::Browser;

/// mdBook, which `make site` installs.
fn mdbook() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let mdbook = target.unwrap_or_else(|| source::root().join("target")).join("tools/bin/mdbook");
    if !mdbook.exists() {
        skip("mdbook", "`make site` installs it");
        return None;
    }
    Some(mdbook)
}

/// The files of a folder over HTTP.
fn serve(folder: PathBuf) -> Running {
    let find = move |highwater::Path(path): highwater::Path<String>| file(&folder, &path);
    let config = ServerConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        metrics: None,
        workers: NonZeroUsize::new(1),
        ..ServerConfig::default()
    };
    let router = Router::new().get("/{*path}", blocking(find));
    Server::new(router).config(config).start().expect("loopback has free ports")
}

fn file(folder: &Path, path: &str) -> Result<Response, Error> {
    let bytes = fs::read(folder.join(path)).map_err(|_| Error::not_found(path.to_owned()))?;
    let kind = match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    Ok(Response::from(bytes).with_content_type(kind))
}

/// Everything that a page shows or leads to on this server: `[problem…]`. A fragment must be an id of its page.
const FOLLOW: &str = "(async () => {
  const problems = [], pages = new Map(), parser = new DOMParser();
  const load = async url => {
    if (!pages.has(url)) {
      const response = await fetch(url);
      const text = response.ok ? await response.text() : '';
      pages.set(url, response.ok ? parser.parseFromString(text, 'text/html') : null);
    }
    return pages.get(url);
  };
  const queue = [location.href.split('#')[0]], seen = new Set(queue);
  while (queue.length) {
    const from = queue.pop(), page = await load(from);
    if (!page) { problems.push(from); continue; }
    for (const element of page.querySelectorAll('main a[href], main img[src], nav a[href]')) {
      const link = element.getAttribute('href') ?? element.getAttribute('src');
      const url = new URL(link, from);
      if (url.origin !== location.origin) {
        if (element.tagName === 'IMG') problems.push(`${from} loads ${url}`);
        continue;
      }
      const [path, id] = url.href.split('#');
      const target = await load(path);
      if (!target) problems.push(`${from} -> ${link}`);
      else if (id && path.endsWith('.html') && !target.getElementById(decodeURIComponent(id))) problems.push(`${from} -> ${link}`);
      if (target && path.endsWith('.html') && !seen.has(path)) { seen.add(path); queue.push(path); }
    }
  }
  return { problems: [...new Set(problems)], pages: seen.size };
})()";

/// What sticks out of the page to the right, and pictures that did not load.
const LAID_OUT: &str = "[
  ...(document.documentElement.scrollWidth > innerWidth ? [`${location.pathname} is ${document.documentElement.scrollWidth} wide`] : []),
  ...[...document.images].filter(image => image.complete && !image.naturalWidth).map(image => image.src)
]";

/// Purpose: readers find their way on a desk and on a phone, in light and in dark: nothing sticks out, nothing is loaded
/// from elsewhere, every link leads to a heading that is there, search finds a setting, and the console stays clean.
#[test]
fn the_site_is_for_everybody() {
    let Some(mdbook) = mdbook() else { return };
    let Some(mut browser) = Browser::start() else { return };
    let folder = std::env::temp_dir().join(format!("highwater-site-{}", std::process::id()));
    site::assemble(&folder).expect("the temporary folder is ours");
    site::build(&mdbook, &folder).expect("the pages are fine");
    let server = serve(folder.join("html"));
    let at = |page: &str| format!("http://{}/{page}", server.address());

    browser.open(&at("index.html"));
    browser.until("document.readyState === 'complete'");
    let followed = browser.value(FOLLOW);
    assert_eq!(followed["problems"], serde_json::json!([]));
    assert!(followed["pages"].as_u64() >= Some(30), "{followed}");

    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for width in [1280, 400] {
            browser.resize(width, 800);
            for page in ["index", "docs/guide", "docs/overload", "book/engine", "CHANGELOG"] {
                browser.open(&at(&format!("{page}.html")));
                browser.until("document.readyState === 'complete'");
                assert_eq!(browser.value(LAID_OUT), serde_json::json!([]), "{scheme}, {width}");
            }
        }
        grounds.push(browser.value("getComputedStyle(document.documentElement).backgroundColor"));
    }
    assert_ne!(grounds[0], grounds[1]);

    browser.open(&at("index.html?search=drain-timeout"));
    browser.until("[...document.querySelectorAll('#mdbook-searchresults a')].some(a => a.href.includes('docs/configuration.html'))");
    assert_eq!(browser.complaints(), []);
    drop(server);
    let _ = fs::remove_dir_all(folder);
}
