//! Do templates of `highwater load` stand for what they say?
//!
//! The input is text. Whatever it is, the parser either refuses it with a message that says what to write, or makes a
//! template that can be rendered; one seed renders the same again. With every `${` escaped, text stands for itself.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/cli/src/load/template.rs"]
#[allow(dead_code, reason = "the load generator uses all of it")]
mod template;

use template::{Template, Values};

fuzz_target!(|input: &str| {
    match Template::parse(input) {
        Ok(template) => {
            let first = rendered(&template);
            assert_eq!(first, rendered(&template));
            assert!(template.constant().is_none_or(|constant| constant == first));
        }
        Err(message) => assert!(message.contains("write ${random:1-1000}"), "{message}"),
    }
    let escaped = Template::parse(&input.replace("${", "$${")).expect("nothing is a parameter");
    assert_eq!(escaped.constant(), Some(input.as_bytes()));
});

fn rendered(template: &Template) -> Vec<u8> {
    let mut out = Vec::new();
    let mut values = Values::new(1, 1, 1);
    values.next_request();
    template.render(&mut values, &mut out);
    out
}
