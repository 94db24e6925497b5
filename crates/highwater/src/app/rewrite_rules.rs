//! Which path, other than the one that was sent, decides about the route?
//!
//! Rules decide, which are tried in the order in which they were added, once per request and before its route is found. The
//! first rule that applies decides, and its path is not rewritten again, so rules cannot loop.

use std::fmt;

use highwater_core::http::Head;

use super::guard::{Panic, guarded};

/// The longest target that a rewrite may make, in bytes: as long as the longest that a server may take
/// (`--uri-max`).
const TARGET_SIZE_MAX: usize = 64 * 1024;

/// The view of a request that a rule gets: see [`Router::rewrite`](super::Router::rewrite).
#[derive(Clone, Copy, Debug)]
pub struct Rewriting<'a> {
    head: &'a Head<'a>,
}

impl<'a> Rewriting<'a> {
    /// The method, as it was sent.
    pub fn method(&self) -> &'a str {
        self.head.method_token()
    }

    /// The path as it was sent, percent-encoded. It begins with a slash.
    pub fn path(&self) -> &'a str {
        self.head.path()
    }

    /// The query as it was sent, without the `?` and percent-encoded; `None` if there is no `?`.
    pub fn query(&self) -> Option<&'a str> {
        self.head.query()
    }

    /// The host that was requested, as `host` or `host:port`: the value of `Host` or `:authority`. Clients choose it.
    pub fn host(&self) -> Option<&'a str> {
        self.head.authority()
    }

    /// The same without its port: `shop.example`, or `[2001:db8::1]` for an IPv6 address. Its letters are as the client sent
    /// them, in either case.
    pub fn hostname(&self) -> Option<&'a str> {
        self.host().map(without_port)
    }

    /// The first value of the header field `name`, if it is UTF-8. The name's case does not matter.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.head.headers().get(name).and_then(|value| std::str::from_utf8(value).ok())
    }
}

/// A host without its port. The colons of an IPv6 address are in brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

/// A function of the application's.
type Function = dyn Fn(&Rewriting<'_>) -> Option<String> + Send + Sync;

/// A rule.
pub(super) enum Rewrite {
    /// A path that is this prefix, or goes on with a slash behind it, has the other instead. Neither ends with a slash.
    Prefix(Box<str>, Box<str>),
    Function(Box<Function>),
}

impl Rewrite {
    /// The path to look for instead, perhaps with a query; `None` if the rule does not apply.
    fn apply(&self, asked: &Rewriting<'_>) -> Option<String> {
        match self {
            Rewrite::Prefix(from, to) => {
                let rest = below(asked.path(), from)?;
                let path = format!("{to}{rest}");
                Some(if path.is_empty() { String::from("/") } else { path })
            }
            Rewrite::Function(function) => function(asked),
        }
    }
}

/// What follows the prefix in a path that has it: nothing, or a slash and more.
fn below<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// Why a request has no new target, though a rule applies.
pub(super) enum Failed {
    /// What the rule has made is not a target.
    Invalid,
    Panicked(Panic),
}

/// The target that `rules` make of the one of `head`; `None` if no rule applies, or the head has no path.
pub(super) fn rewritten(rules: &[Rewrite], head: &Head<'_>) -> Option<Result<String, Failed>> {
    if !head.path_bytes().starts_with(b"/") {
        return None; // `OPTIONS *`, `CONNECT`.
    }
    let asked = Rewriting { head };
    let apply = || rules.iter().find_map(|rule| rule.apply(&asked));
    let mut path = match guarded(apply) {
        Ok(path) => path?,
        Err(panic) => return Some(Err(Failed::Panicked(panic))),
    };
    if let Some(query) = head.query().filter(|_| !path.contains('?')) {
        path.push('?');
        path.push_str(query);
    }
    let is_one = path.len() <= TARGET_SIZE_MAX && head.with_target(&path).is_some();
    Some(if is_one { Ok(path) } else { Err(Failed::Invalid) })
}

/// The rules as they are used, and what is wrong with those that were given.
pub(super) fn checked(rules: Vec<Rewrite>) -> (Vec<Rewrite>, Vec<String>) {
    let mut problems = Vec::new();
    let mut done: Vec<Rewrite> = Vec::with_capacity(rules.len());
    for rule in rules {
        let Rewrite::Prefix(from, to) = rule else {
            done.push(rule);
            continue;
        };
        let place = format!("rewrite_prefix({from:?}, {to:?})");
        for given in [&from, &to] {
            problems.extend(problem(given).map(|problem| format!("{place}: {problem}")));
        }
        let bare = |prefix: &str| Box::from(prefix.strip_suffix('/').unwrap_or(prefix));
        let (from, to): (Box<str>, Box<str>) = (bare(&from), bare(&to));
        let earlier = done.iter().find_map(|earlier| match earlier {
            Rewrite::Prefix(earlier, _) => below(&from, earlier).map(|_| earlier),
            Rewrite::Function(_) => None,
        });
        if let Some(earlier) = earlier {
            problems.push(format!(
                "{place}: the rule for \"{}\" before it already applies to these paths, so it would never be used; \
                 give the longer prefix first",
                if earlier.is_empty() { "/" } else { earlier }
            ));
        }
        done.push(Rewrite::Prefix(from, to));
    }
    (done, problems)
}

/// What is wrong with a prefix.
fn problem(prefix: &str) -> Option<String> {
    let inner = prefix.trim_matches('/');
    if !prefix.starts_with('/') || prefix.ends_with('/') && prefix != "/" {
        return Some(format!(
            "a prefix begins with a slash and does not end with one; write `/{inner}`"
        ));
    }
    let is_text = |byte: u8| byte.is_ascii_graphic() && !b"?#\\{}".contains(&byte);
    (!prefix.bytes().all(is_text)).then(|| {
        format!(
            "`{prefix}` is not the beginning of a path; write it percent-encoded, without parameters and query, or use \
             `rewrite` with a function"
        )
    })
}

impl fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rewrite::Prefix(from, to) => write!(f, "{from:?} → {to:?}"),
            Rewrite::Function(_) => f.write_str("a function"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(rules: &[(&str, &str)]) -> (Vec<Rewrite>, Vec<String>) {
        checked(
            rules.iter().map(|(from, to)| Rewrite::Prefix((*from).into(), (*to).into())).collect(),
        )
    }

    /// Purpose: a host without its port is the same whether a client writes the port, and an address stays whole.
    #[test]
    fn hosts_without_ports() {
        for (host, expected) in [
            ("shop.example", "shop.example"),
            ("shop.example:8080", "shop.example"),
            ("shop.example:", "shop.example"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("[2001:db8::1]:8080", "[2001:db8::1]"),
            ("[::1]:", "[::1]"),
        ] {
            assert_eq!(without_port(host), expected);
        }
    }

    /// Purpose: which path a list of prefixes makes of another; each rule at most once, and whole segments only.
    #[test]
    fn prefixes_are_replaced() {
        let rules =
            [("/a", "/b"), ("/b", "/a"), ("/deep/down", "/"), ("/same", "/same"), ("/", "/x")];
        let (rules, problems) = prefixes(&rules);
        assert_eq!(problems, [""; 0]);
        let made = |path: &str| {
            let fields = Default::default();
            let head = highwater_core::http::OwnedHead::new("GET", path, fields).expect("a head");
            match rewritten(&rules, &head.head()) {
                None => String::from("(none)"),
                Some(Ok(target)) => target,
                Some(Err(_)) => String::from("(failed)"),
            }
        };
        for (path, expected) in [
            ("/a", "/b"),
            ("/b/", "/a/"),
            ("/a/b?c=/a", "/b/b?c=/a"),
            ("/ab", "/x/ab"),
            ("/%61", "/x/%61"),
            ("/deep/down", "/"),
            ("/deep/down/", "/"),
            ("/deep/down/a", "/a"),
            ("/deep/downer", "/x/deep/downer"),
            ("/same/a?", "/same/a?"),
            ("/", "/x/"),
        ] {
            assert_eq!(made(path), expected, "{path}");
        }
    }

    /// Purpose: wrong prefixes, and rules that would never be used, are named with what to write.
    #[test]
    fn wrong_prefixes() {
        for (rules, expected) in [
            (&[("a", "/b")][..], "write `/a`"),
            (&[("/a/", "/b")], "write `/a`"),
            (&[("/a", "")], "write `/`"),
            (&[("/a", "/b c")], "percent-encoded"),
            (&[("/{id}", "/b")], "without parameters"),
            (&[("/a", "/b?c")], "without parameters and query"),
            (&[("/a", "/b"), ("/a/c", "/d")], "the rule for \"/a\" before it"),
            (&[("/", "/b"), ("/a", "/d")], "the rule for \"/\" before it"),
            (&[("/a", "/b"), ("/a", "/d")], "give the longer prefix first"),
        ] {
            let (_, problems) = prefixes(rules);
            assert!(problems.concat().contains(expected), "{rules:?}: {problems:?}");
        }
        assert_eq!(prefixes(&[("/a/c", "/d"), ("/a", "/b"), ("/ab", "/")]).1, [""; 0]);
    }
}
