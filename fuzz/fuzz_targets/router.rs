//! Does the router answer as the plain model does?
//!
//! The input is text: a line that begins with `=` is a path to find (without the `=`), any other
//! line is a pattern to insert. A pattern that the router accepts must match exactly like the
//! model, which tries every pattern in turn; a pattern that it refuses as a conflict must conflict
//! in the model. Finds and insertions alternate as the input says, so the tree is searched in every
//! state of growth.
//!
//! In patterns `X`, `Y`, `Z` and `R` stand for `{x}`, `{y}`, `{z}` and `{*rest}`: as single bytes, a
//! mutation hits upon them often, while it would nearly always break the braces.
#![no_main]

use highwater_core::route::{InsertErrorKind, Params, Router};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/core/src/route/model.rs"]
mod model;

fuzz_target!(|input: &str| {
    let mut router = Router::new();
    let mut patterns = Vec::new();
    let mut params = Params::new();
    for line in input.split('\n') {
        match line.strip_prefix('=') {
            Some(path) => assert_same_answer(&router, &patterns, path, &mut params),
            None => insert(&mut router, &mut patterns, &spelled_out(line)),
        }
    }
});

fn spelled_out(line: &str) -> String {
    let line = line
        .replace('X', "{x}")
        .replace('Y', "{y}")
        .replace('Z', "{z}");
    line.replace('R', "{*rest}")
}

fn insert(router: &mut Router<usize>, patterns: &mut Vec<model::Pattern>, pattern: &str) {
    match router.insert(pattern, patterns.len()) {
        Ok(id) => {
            assert_eq!(router.pattern(id), pattern);
            let modelled = model::Pattern::new(pattern);
            assert!(!patterns.contains(&modelled), "{pattern} is there already");
            patterns.push(modelled);
        }
        Err(error) => {
            assert!(
                error.to_string().contains(pattern),
                "{error} does not name {pattern}"
            );
            if let InsertErrorKind::Conflict { existing } = error.kind() {
                assert_eq!(
                    model::Pattern::new(existing),
                    model::Pattern::new(pattern),
                    "{error}"
                );
                assert!(router.get_mut(existing).is_some(), "{error}");
            }
        }
    }
}

fn assert_same_answer(
    router: &Router<usize>,
    patterns: &[model::Pattern],
    path: &str,
    params: &mut Params,
) {
    let found = router.find(path, params).map(|(id, &index)| {
        assert_eq!(
            (id.index(), router.param_names(id).len()),
            (index, params.len())
        );
        (index, params.values(path).collect::<Vec<_>>())
    });
    assert_eq!(found, model::find(patterns, path), "for {path:?}");
}
