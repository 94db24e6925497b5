//! Does `Accept-Encoding` choose a coding that the client accepts (RFC 9110 §12.5.3)?
//!
//! The input is the field's value, on several lines for several fields. What is chosen must have a weight, no other offer may have a
//! greater one, and what a field says must not depend on the case of its letters or on white space between its members.
#![no_main]

use highwater_core::http::OwnedHead;
use libfuzzer_sys::fuzz_target;

#[allow(dead_code, unexpected_cfgs, reason = "the server uses all of it")]
#[path = "."] // Else its files are looked for from a folder that is not there.
mod content {
    #[path = "../../crates/highwater/src/content/coding.rs"]
    pub(crate) mod coding;
    #[path = "../../crates/highwater/src/content/weight.rs"]
    pub(crate) mod weight;
}

use content::coding::{Coding, Weights};

const OFFERS: [Coding; 4] = [Coding::Zstd, Coding::Brotli, Coding::Gzip, Coding::Identity];

fuzz_target!(|input: &str| {
    let weights = of(input);
    let best = OFFERS.into_iter().map(|coding| weights.of_coding(coding)).max().unwrap_or(0);
    assert!(best <= 1000);
    for coding in OFFERS {
        // A member of its own decides, whatever the others say: the last one, as it is read.
        let only = of(&format!("{}", coding.name()));
        assert_eq!(only.of_coding(coding), 1000);
        let none = of(&format!("*;q=0, {}", coding.name()));
        assert_eq!(none.of_coding(coding), 1000);
    }
    if input.is_ascii() {
        assert_eq!(weights, of(&input.to_ascii_uppercase()));
        assert_eq!(weights, of(&input.to_ascii_lowercase()));
        assert_eq!(weights, of(&input.replace(',', " ,\t")));
    }
});

fn of(value: &str) -> Weights {
    let mut head = OwnedHead::new("GET", "/", Default::default()).expect("it is one");
    head.set_fields(value.split('\n').map(|line| ("accept-encoding", line.as_bytes())));
    Weights::of(head.head().headers())
}
