//! A plan that is wrong in several places.

use super::Plan;
use super::tests::WHOLE;

/// Purpose: everything that is wrong with a plan is named at once, on its line; what only follows from something else is not.
#[test]
fn all_that_is_wrong_is_named() {
    let text = r#"name = "many"
rounds = "two"
hurry = 7

[cell_defaults]
connections = "many"

[[server]]
name = "ours"
command = ["x", 3]
workers = "one"
ready = "/"

[[server]]
name = "theirs"
command = ["x"]
workers = 2

[[cell]]
name = "a"
pth = "/"
expect = ""

[[cell]]
name = "b"
path = 5
close = "no"
expect = ""
"#;
    let lines = |text: &str| -> Vec<String> {
        let refused = Plan::parse(text).expect_err("it is wrong");
        refused.into_iter().map(|refused| format!("{}: {}", refused.line, refused.what)).collect()
    };
    let found = lines(text);
    let expected = [
        "2: rounds: string \"two\" is not a whole number",
        "3: unknown field `hurry`",
        "6: connections: string \"many\" is not",
        "10: command: integer 3 is not text in quotes",
        "11: workers: string \"one\" is not",
        "14: missing field `ready`",
        "21: unknown field `pth`; did you mean `path`?",
        "26: path: integer 5 is not text in quotes",
        "27: close: string \"no\" is not true or false",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }

    // A range and a type in different tables; the cell's rate is not missed, because its table has another mistake.
    let ranges = WHOLE.replacen("rounds = 6", "rounds = 0", 1);
    let ranges =
        ranges.replacen("close = false", "close = 3", 1).replacen("any = \"*\"", "any = \"!\"", 1);
    let found = lines(&ranges);
    assert!(found.iter().any(|line| line.starts_with("36: close: ")), "{found:#?}");
    assert!(found.iter().any(|line| line.contains("that stands in expect")), "{found:#?}");
    let alone = found.iter().filter(|line| !line.starts_with("36: ")).count();
    assert_eq!(alone, found.len() - 1, "{found:#?}");

    let syntax = lines("name = test\nrounds = 6\nseed = = 2\n");
    assert_eq!(syntax.len(), 2, "{syntax:#?}");
    assert!(syntax[0].starts_with("1: name: "), "{syntax:#?}");
    assert!(syntax[1].starts_with("3: seed: "), "{syntax:#?}");
}
