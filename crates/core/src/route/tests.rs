//! Tests of the router: tables, conflicts, and a comparison with the plain model in `model.rs`.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec;

fn router(patterns: &[&str]) -> Router<usize> {
    let mut router = Router::new();
    for (index, pattern) in patterns.iter().enumerate() {
        let id = router.insert(pattern, index).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(id.index(), index);
    }
    router
}

/// The pattern found for `path`, and the parameters as `name=value`.
fn found(router: &Router<usize>, path: &str) -> Option<(String, Vec<String>)> {
    let mut params = Params::new();
    let (id, _) = router.find(path, &mut params)?;
    let names = router.param_names(id);
    assert_eq!(names.len(), params.len());
    let pairs = names.iter().zip(params.values(path)).map(|(n, v)| std::format!("{n}={v}"));
    Some((router.pattern(id).to_string(), pairs.collect()))
}

fn refused(known: &[&str], pattern: &str) -> InsertError {
    let mut router = router(known);
    let error = router.insert(pattern, 99).expect_err("the pattern must be refused");
    assert_eq!(router.iter().len(), known.len());
    error
}

/// Purpose: what each kind of pattern matches, and what just misses it.
#[test]
fn matches() {
    let router = router(&[
        "/",
        "/users",
        "/users/me",
        "/users/{id}",
        "/users/{user}/posts/{post}",
        "/static/{*rest}",
        "/{{x}}",
        "/a//b",
        "/end/",
    ]);
    type Expected = Option<(&'static str, &'static [&'static str])>;
    let table: &[(&str, Expected)] = &[
        ("/", Some(("/", &[]))),
        ("/users", Some(("/users", &[]))),
        ("/users/", None),
        ("/users/me", Some(("/users/me", &[]))),
        ("/users/m", Some(("/users/{id}", &["id=m"]))),
        ("/users/me2", Some(("/users/{id}", &["id=me2"]))),
        ("/users/%2F", Some(("/users/{id}", &["id=%2F"]))),
        ("/users/é", Some(("/users/{id}", &["id=é"]))),
        ("/users/me/", None),
        ("/users/me/posts/7", Some(("/users/{user}/posts/{post}", &["user=me", "post=7"]))),
        ("/users//posts/7", None),
        ("/users/7/posts/", None),
        ("/static", None),
        ("/static/", None),
        ("/static/a", Some(("/static/{*rest}", &["rest=a"]))),
        ("/static//", Some(("/static/{*rest}", &["rest=/"]))),
        ("/static/a/b/", Some(("/static/{*rest}", &["rest=a/b/"]))),
        ("/{x}", Some(("/{{x}}", &[]))),
        ("/a//b", Some(("/a//b", &[]))),
        ("/a/b", None),
        ("/end/", Some(("/end/", &[]))),
        ("/end", None),
        ("//", None),
        ("", None),
        ("*", None),
        ("users", None),
        ("example.com:443", None),
        ("/USERS", None),
    ];
    for (path, expected) in table {
        let expected = expected.map(|(pattern, params)| {
            (pattern.to_string(), params.iter().map(ToString::to_string).collect::<Vec<_>>())
        });
        assert_eq!(found(&router, path), expected, "{path}");
    }
}

/// Purpose: literal before parameter before rest, in every segment from the left, and the search
/// backtracks over several segments.
#[test]
fn precedence_and_going_back() {
    let router = router(&[
        "/{*all}",
        "/{x}/c",
        "/a/b",
        "/a/{y}/d",
        "/a/b/{*tail}",
        "/abc/{z}/e/f",
        "/{p}/{q}/e/{r}",
    ]);
    let table = [
        ("/a/b", "/a/b", vec![]),
        ("/a/c", "/{x}/c", vec!["x=a"]),
        ("/a/b/d", "/a/b/{*tail}", vec!["tail=d"]),
        ("/a/c/d", "/a/{y}/d", vec!["y=c"]),
        ("/a/b/", "/{*all}", vec!["all=a/b/"]),
        ("/a/c/e/x", "/{p}/{q}/e/{r}", vec!["p=a", "q=c", "r=x"]),
        ("/abc/1/e/f", "/abc/{z}/e/f", vec!["z=1"]),
        ("/abc/1/e/g", "/{p}/{q}/e/{r}", vec!["p=abc", "q=1", "r=g"]),
        ("/abc/1/e/g/h", "/{*all}", vec!["all=abc/1/e/g/h"]),
        ("/ab/c", "/{x}/c", vec!["x=ab"]),
        ("/ab/d", "/{*all}", vec!["all=ab/d"]),
    ];
    for (path, pattern, params) in table {
        let params = params.iter().map(ToString::to_string).collect();
        assert_eq!(found(&router, path), Some((pattern.to_string(), params)), "{path}");
    }
    assert_eq!(found(&router, "/"), None);
}

/// Purpose: text before and behind a parameter is part of the pattern and not of the value, which is never empty; the
/// more of it, the earlier the route is tried, in whatever order the routes were added.
#[test]
fn text_beside_parameters() {
    let patterns = [
        "/{x}",
        "/{name}.json",
        "/{name}.min.json",
        "/v{n}",
        "/v{n}.json",
        "/v1",
        "/{id}:archive",
        "/v{n}/x",
        "/{{{id}}}",
        "/{*rest}",
    ];
    let mut reversed = patterns;
    reversed.reverse();
    for router in [router(&patterns), router(&reversed)] {
        let table = [
            ("/a", "/{x}", "x=a"),
            ("/a.json", "/{name}.json", "name=a"),
            ("/.json", "/{x}", "x=.json"),
            ("/a.min.json", "/{name}.min.json", "name=a"),
            ("/.min.json", "/{name}.json", "name=.min"),
            ("/v", "/{x}", "x=v"),
            ("/v2", "/v{n}", "n=2"),
            ("/v1x", "/v{n}", "n=1x"),
            ("/v2.json", "/v{n}.json", "n=2"),
            ("/v.json", "/v{n}", "n=.json"),
            ("/7:archive", "/{id}:archive", "id=7"),
            ("/v7/x", "/v{n}/x", "n=7"),
            ("/v/x", "/{*rest}", "rest=v/x"),
            ("/{7}", "/{{{id}}}", "id=7"),
            ("/a.json/b", "/{*rest}", "rest=a.json/b"),
        ];
        for (path, pattern, param) in table {
            let expected = Some((pattern.to_string(), vec![param.to_string()]));
            assert_eq!(found(&router, path), expected, "{path}");
        }
        assert_eq!(found(&router, "/v1"), Some(("/v1".to_string(), vec![])));
    }
    for (existing, pattern) in [("/{a}.json", "/{b}.json"), ("/v{a}", "/v{b}")] {
        let kind = InsertErrorKind::Conflict { existing: existing.into() };
        assert_eq!(refused(&[existing], pattern).kind(), &kind);
    }
}

/// Purpose: routes of different shape may name a parameter differently, and keep their own names.
#[test]
fn names_belong_to_the_route() {
    let router = router(&["/{id}", "/{user}/posts"]);
    assert_eq!(found(&router, "/7"), Some(("/{id}".to_string(), vec!["id=7".to_string()])));
    assert_eq!(
        found(&router, "/7/posts"),
        Some(("/{user}/posts".to_string(), vec!["user=7".to_string()])),
    );
}

/// Purpose: routes that match the same paths conflict, and the message names both.
#[test]
fn conflicts() {
    let pairs = [
        ("/a", "/a"),
        ("/{id}", "/{name}"),
        ("/x/{*rest}", "/x/{*path}"),
        ("/u/{id}/p", "/u/{name}/p"),
    ];
    for (existing, pattern) in pairs {
        let error = refused(&[existing], pattern);
        let kind = InsertErrorKind::Conflict { existing: existing.into() };
        assert_eq!(error.kind(), &kind);
        let message = error.to_string();
        assert!(message.contains(pattern) && message.contains(existing), "{message}");
    }
}

/// Purpose: a malformed pattern is refused for the right reason, with words that help.
#[test]
fn refusals() {
    let table = [
        ("", "route ``: it must begin with a slash; write `/`"),
        ("a/b", "write `/a/b`"),
        ("/a?b=c", "leave out everything from the `?`"),
        ("/a b", "write `%20`"),
        ("/é", "write `%C3%A9`"),
        ("/{id", "`{id` has a brace without its counterpart"),
        ("/id}", "`id}` has a brace without its counterpart"),
        ("/{{id}", "`{{id}` has a brace without its counterpart"),
        ("/{a/b}", "`{a` has a brace without its counterpart"),
        ("/{a}{b}", "in `{a}{b}` it is not clear where a parameter ends"),
        ("/{a}-{b}", "not clear where a parameter ends"),
        ("/x{*rest}", "in `x{*rest}` it is not clear"),
        ("/{*rest}.json", "`{*rest}` alone"),
        ("/v{n", "`v{n` has a brace without its counterpart"),
        ("/{n}}", "`{n}}` has a brace without its counterpart"),
        ("/:id", "write `{id}`"),
        ("/*path", "write `{*path}`"),
        ("/*", "write `{*name}`"),
        ("/{}", "`` is not a parameter name"),
        ("/{*}", "`` is not a parameter name"),
        ("/{id:[0-9]+}", "`id:[0-9]+` is not a parameter name"),
        ("/{a}/{a}", "two parameters are called `a`"),
        ("/{a}/{*a}", "two parameters are called `a`"),
        ("/{*a}/b", "must come last; write `{a}`"),
        ("/{*a}/", "must come last"),
    ];
    for (pattern, words) in table {
        let message = refused(&[], pattern).to_string();
        assert!(message.contains(words), "{message}");
        assert!(message.starts_with(&std::format!("route `{pattern}`: ")), "{message}");
    }
}

/// Purpose: the limit on parameters, at the limit and one beyond.
#[test]
fn params_max() {
    let pattern = |count| (0..count).map(|i| std::format!("/{{p{i}}}")).collect::<String>();
    let at_limit = pattern(PARAMS_MAX);
    let router = router(&[&at_limit]);
    let (_, params) = found(&router, &"/v".repeat(PARAMS_MAX)).expect("sixteen segments match");
    assert_eq!((params.len(), params[15].as_str()), (16, "p15=v"));
    let rest_is_one_too = at_limit.clone() + "/{*rest}";
    for pattern in [pattern(PARAMS_MAX + 1), rest_is_one_too] {
        assert_eq!(refused(&[], &pattern).kind(), &InsertErrorKind::TooManyParams);
    }
}

/// Purpose: set-up can find a route by its pattern, and see all of them in order.
#[test]
fn access_by_pattern() {
    let mut router = router(&["/b", "/a/{id}"]);
    *router.get_mut("/a/{id}").expect("it was inserted") += 10;
    assert_eq!(router.get_mut("/a/{name}"), None);
    assert_eq!(router.iter().collect::<Vec<_>>(), [("/b", &0), ("/a/{id}", &11)]);
}

/// Purpose: values of a path are not sliced out of another path by accident, and never panic.
#[test]
fn values_of_a_foreign_path() {
    let router = router(&["/{a}/{b}"]);
    let mut params = Params::new();
    assert!(router.find("/12/34", &mut params).is_some());
    assert_eq!(params.value(1, "/12/34"), Some("34"));
    assert_eq!(params.value(2, "/12/34"), None);
    assert_eq!(params.value(1, "/12"), None);
    assert_eq!(params.value(0, "é"), None);
}

fn assert_each_node_entered_once(router: &Router<usize>, path: &str) -> usize {
    let mut entered = BTreeSet::new();
    let mut params = Params::new();
    search::search(&router.nodes, path.as_bytes(), &mut params, |node| {
        assert!(entered.insert(node), "node {node} was entered twice for {path:?}");
    });
    entered.len()
}

/// Purpose: the tree with the most backtracking (each of 12 segments may be literal or parameter:
/// 4096 routes) costs at most one visit to each node, however the path is chosen.
#[test]
fn going_back_is_bounded_by_the_tree() {
    let mut router = Router::new();
    for bits in 0..1_usize << 12 {
        let segment = |i: u32| {
            if bits & (1_usize << i) == 0 { "/a".into() } else { std::format!("/{{p{i}}}") }
        };
        let pattern = (0..12).map(segment).collect::<String>() + "/z";
        router.insert(&pattern, bits).expect("shapes differ");
    }
    let path = "/a".repeat(12) + "/y";
    let entered = assert_each_node_entered_once(&router, &path);
    assert!(entered > 1 << 12, "the path must lead into every branch, not {entered}");
    assert!(entered < router.nodes.len());
}

/// Purpose: 8 KiB of slashes, or of segments, cost no more than the tree has nodes.
#[test]
fn long_paths_are_bounded_by_the_tree() {
    let router =
        router(&["/{a}/{b}/{c}", "/{*rest}", "/a/{*rest}", "//{x}/", "/a/a/a", "/{a}/a/{c}/a"]);
    for path in ["/".repeat(8192), "/a".repeat(4096), "/a/".repeat(2730), "a".repeat(8192)] {
        assert!(assert_each_node_entered_once(&router, &path) < router.nodes.len());
        assert!(assert_each_node_entered_once(&router, &(path + "\u{0}")) < router.nodes.len());
    }
}

/// Few different segments, so that patterns share prefixes and paths meet them.
fn patterns() -> impl Strategy<Value = Vec<String>> {
    let segment = prop_oneof![
        4 => "[ab]{0,3}",
        1 => Just("{{a}}".to_string()),
        4 => "[xyz]".prop_map(|name| std::format!("{{{name}}}")),
        3 => ("[ab]{0,2}", "[xyz]", "[ab]{0,2}")
            .prop_map(|(before, name, after)| std::format!("{before}{{{name}}}{after}")),
    ];
    let rest = prop_oneof![3 => Just(""), 1 => Just("/{*rest}"), 1 => Just("/{*other}")];
    let pattern = (prop::collection::vec(segment, 0..5), rest).prop_map(|(segments, rest)| {
        let path: String = segments.iter().map(|segment| std::format!("/{segment}")).collect();
        if path.is_empty() && rest.is_empty() { "/".to_string() } else { path + rest }
    });
    prop::collection::vec(pattern, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Purpose: any set of routes answers any path as the plain model does: the same route, the
    /// same parameters; and every refused conflict is a conflict in the model too.
    #[test]
    fn agrees_with_the_model(
        patterns in patterns(),
        paths in prop::collection::vec("(/(a|b|ab|ba|aab|\\{a\\})?){1,5}|/?", 1..25),
    ) {
        let mut router = Router::new();
        let mut known = Vec::new();
        for pattern in &patterns {
            let modelled = model::Pattern::new(pattern);
            match router.insert(pattern, known.len()) {
                Ok(_) => {
                    prop_assert!(!known.contains(&modelled), "{pattern} is there already");
                    known.push(modelled);
                }
                Err(error) if matches!(error.kind(), InsertErrorKind::Conflict { .. }) => {
                    prop_assert!(known.contains(&modelled), "{error}");
                }
                Err(error) => {
                    let duplicate = matches!(error.kind(), InsertErrorKind::DuplicateName { .. });
                    prop_assert!(duplicate, "{error}");
                }
            }
        }
        let mut params = Params::new();
        for path in &paths {
            let found = router.find(path, &mut params);
            let found = found.map(|(_, &index)| (index, params.values(path).collect::<Vec<_>>()));
            prop_assert_eq!(found, model::find(&known, path), "{:?} in {:?}", path, patterns);
            assert_each_node_entered_once(&router, path);
        }
    }

    /// Purpose: no text makes insertion panic, and an accepted pattern without parameters matches
    /// itself, doubled braces made one.
    #[test]
    fn any_pattern(pattern in "/?([{}*:/a?é-]|\\{a\\}|\\{\\*b\\}){0,12}") {
        let mut router = Router::new();
        match router.insert(&pattern, 0) {
            Err(error) => prop_assert!(error.to_string().contains(pattern.as_str())),
            Ok(id) if router.param_names(id).is_empty() => {
                let path = pattern.replace("{{", "{").replace("}}", "}");
                prop_assert!(router.find(&path, &mut Params::new()).is_some());
            }
            Ok(_) => {}
        }
    }
}
