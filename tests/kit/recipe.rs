//! What do users copy out of the documentation?

use std::fs;
use std::path::Path;

/// The first block of `page`, which is one of `docs`, behind all of `marks`, one after the other.
pub fn recipe(page: &str, marks: &[&str]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = fs::read_to_string(path).expect("the page is there");
    let behind = marks.iter().fold(&*text, |rest, mark| match rest.split_once(mark) {
        Some((_, behind)) => behind,
        None => panic!("{page} has no {mark:?} there"),
    });
    let block = behind.split("```").nth(1).expect("its block");
    block.split_once('\n').expect("a language, and lines").1.to_owned()
}
