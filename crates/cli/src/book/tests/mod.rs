//! Parts of a book that need no database.

use proptest::prelude::*;

use super::chart::{self, Settings};
use super::database::{Table, Value};
use super::directive::{self, Directive, Marked, Problem};
use super::make::{Made, show};
use super::page::{self, Page};
use super::text;

fn extracted(text: &str) -> (String, Vec<Directive>) {
    let marked = directive::extract(text).unwrap_or_else(|problem| panic!("{problem:?}"));
    (marked.text, marked.directives)
}

/// The page of a text without marks, or of one whose marks `made` stand for.
fn render(text: &str, made: &[(usize, Made)]) -> Result<Page, Vec<Problem>> {
    page::render(&Marked { text: text.to_owned(), ..Marked::default() }, made)
}

/// Purpose: pages are written all or not at all: if one cannot be, the others stay as they were, and nothing is left beside
/// them. A page that is a link stays one, and keeps who may read it.
#[test]
fn pages_are_replaced_together() {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let folder = std::env::temp_dir().join(format!("highwater-replace-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder for temporary files is ours");
    let path = |name: &str| folder.join(name);
    fs::write(path("a.md"), "old").expect("written");
    fs::set_permissions(path("a.md"), fs::Permissions::from_mode(0o640)).expect("it is there");
    symlink("a.md", path("link.md")).expect("made");
    let replace = |names: &[&str]| {
        super::replace(names.iter().map(|name| (path(name), "new".to_owned())).collect())
    };
    let problem = replace(&["a.md", "a.md/b.svg"]).expect_err("a file is no folder");
    assert!(problem.contains("a.md/b.svg: "), "{problem}");
    assert_eq!(fs::read_to_string(path("a.md")).expect("it is there"), "old");
    assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 2);
    replace(&["a.md", "link.md", "pictures/b.svg"]).expect("nothing is in the way");
    assert_eq!(fs::read_to_string(path("a.md")).expect("it is there"), "new");
    let mode = fs::metadata(path("a.md")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(fs::read_link(path("link.md")).is_ok(), "it was a link");
    assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 3);
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// Purpose: parameters are read in every way they may be written, with the line they stand on.
#[test]
fn directives() {
    let text = "# T\n\n<!-- @chart: title=\"a \\\"b\\\" -->\" type='line' x=n word\n  query=\"SELECT 1\n  --> 2\" -->\nend\n\
                <!--@metric:tag=v1-->\n<!-- @footer:generated_at -->";
    let (_, found) = extracted(text);
    let names: Vec<(usize, &str)> =
        found.iter().map(|found| (found.line, found.name.as_str())).collect();
    assert_eq!(names, [(3, "chart"), (7, "metric"), (8, "footer")]);
    let given: Vec<(&str, &str)> =
        found[0].parameters.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let expected =
        [("query", "SELECT 1\n  --> 2"), ("title", "a \"b\" -->"), ("type", "line"), ("x", "n")];
    assert_eq!(given, expected);
    assert_eq!(found[1].parameters["tag"], "v1");
    assert!(found[2].parameters.is_empty());
    for open in ["<!-- @chart: query=\"a -->", "x\n<!-- @chart: a=b", "<!-- @chart"] {
        let problem = directive::extract(open).expect_err(open);
        assert!(problem.what.contains("the directive does not end; write -->"), "{problem:?}");
    }
}

/// Purpose: what stands in code is shown, not done; other comments are not shown.
#[test]
fn code_is_kept() {
    for code in [
        "```html\n<!-- @metric:tag=\"v1\" -->\n```",
        "~~~\n<!-- @nonsense -->\n~~~",
        "`<!-- @metric:tag=v1 -->` in a line",
        "    <!-- @metric:tag=v1 -->",
    ] {
        assert_eq!(extracted(code), (code.to_owned(), Vec::new()));
    }
    assert_eq!(extracted("a <!-- note --> b <!-- and").0, "a  b ");
}

/// Purpose: numbers are written as the formats promise, at the borders of their units too.
#[test]
fn formats() {
    for (number, format, expected) in [
        (541_275.0, "short", "541K"),
        (1_234_567.0, "short", "1.2M"),
        (999.0, "short", "999"),
        (999.6, "short", "1K"),
        (999_499.0, "short", "999K"),
        (999_500.0, "short", "1.0M"),
        (1_234_567.4, "comma", "1,234,567"),
        (-1234.0, "comma", "-1,234"),
        (12.0, "comma", "12"),
        (12.345, "decimal", "12.3"),
        (12.5, "integer", "12"),
        (13.6, "integer", "14"),
    ] {
        assert_eq!(show(number, format), expected, "{number} {format}");
    }
}

fn table(columns: &[&str], rows: &[&[Value]]) -> Table {
    Table {
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        rows: rows.iter().map(|row| row.to_vec()).collect(),
    }
}

fn settings(kind: &str) -> Settings<'_> {
    Settings {
        title: Some("T <&>"),
        kind,
        x: None,
        y: None,
        series: None,
        datasets: None,
        options: None,
        number: 3,
    }
}

/// Purpose: a chart puts its values where they belong: the greatest at the top line, zero at the bottom, in order
/// of x, and each series apart.
#[test]
fn charts_place_their_values() {
    let (int, text) = (Value::Integer, |text: &str| Value::Text(text.to_owned()));
    let rows: &[&[Value]] = &[&[int(2), int(100)], &[int(0), int(0)], &[int(1), int(50)]];
    let svg = chart::draw(&settings("line"), &table(&["x", "y"], rows)).expect("it can be drawn");
    assert!(svg.contains("points=\"72.0,296.0 408.0,170.0 744.0,44.0\""), "{svg}");
    assert!(svg.contains("<title id=\"chart-3\">T &lt;&amp;&gt;</title>"), "{svg}");
    let rows: &[&[Value]] = &[
        &[text("a"), int(1), text("one")],
        &[text("b"), int(2), text("one")],
        &[text("a"), int(3), text("<two>")],
    ];
    for kind in ["line", "bar", "scatter", "area"] {
        let svg =
            chart::draw(&settings(kind), &table(&["x", "y", "s"], rows)).expect("it can be drawn");
        assert!(
            svg.contains(">&lt;two&gt;</text>") && svg.contains("<title>one: 2</title>"),
            "{svg}"
        );
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
    // One point, equal values, negative values: there is a scale for each.
    for values in [&[5][..], &[5, 5], &[-5, -5], &[-5, 5], &[0]] {
        let rows: Vec<Vec<Value>> =
            values.iter().zip(0..).map(|(y, x)| vec![int(x), int(*y)]).collect();
        let table = Table { columns: vec!["x".into(), "y".into()], rows };
        let svg = chart::draw(&settings("line"), &table).expect("it can be drawn");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

/// Purpose: two quantities of different size have an axis each, with the labels and colours that the page asks for; bars
/// lie if they are to. Both examples are those of the first seed's own book.
#[test]
fn charts_look_as_they_are_told() {
    let (int, text) = (Value::Integer, |text: &str| Value::Text(text.to_owned()));
    let rows: &[&[Value]] = &[
        &[int(0), int(100_000), text("throughput")],
        &[int(0), int(800), text("limit")],
        &[int(5), int(50_000), text("throughput")],
        &[int(5), int(400), text("limit")],
    ];
    let rows = table(&["s", "value", "series"], rows);
    let mut settings = settings("line");
    settings.datasets = Some(
        r##"{"throughput": {"label": "Requests/sec", "borderColor": "#3498db", "borderWidth": 3, "fill": false, "yAxisID": "y"},
            "limit": {"label": "Connection <Limit>", "borderColor": "#9b59b6", "yAxisID": "y1", "fill": true}}"##,
    );
    settings.options = Some(
        r#"{"scales": {"y": {"type": "linear", "position": "left", "title": {"display": true, "text": "Requests per Second"}},
            "y1": {"type": "linear", "position": "right", "title": {"display": true, "text": "Limit"}, "grid": {"drawOnChartArea": false}},
            "x": {"title": {"display": true, "text": "Elapsed (seconds)"}}}}"#,
    );
    let svg = chart::draw(&settings, &rows).expect("it can be drawn");
    // Each series at the top of its own axis first, and at half of it then.
    assert_eq!(svg.matches("points=\"72.0,44.0 692.0,170.0\"").count(), 2, "{svg}");
    for part in [
        ">Requests/sec</text>",
        ">Connection &lt;Limit&gt;</text>",
        "stroke=\"#3498db\" stroke-width=\"3\"",
        "stroke=\"#9b59b6\"",
        ">Requests per Second</text>",
        ">Limit</text>",
        ">Elapsed (seconds)</text>",
        ">100K</text>",
        "class=\"y1\"",
        ">800</text>",
        "<polygon ",
    ] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
    assert!(!svg.contains(">throughput<") && !svg.contains(">value<"), "{svg}");

    let rows: &[&[Value]] = &[&[text("gin"), int(50)], &[text("netty"), int(100)]];
    let mut settings = self::settings("bar");
    settings.options = Some(r#"{"indexAxis": "y", "plugins": {"legend": {"display": false}}}"#);
    let svg = chart::draw(&settings, &table(&["technique", "rps"], rows)).expect("it can be drawn");
    assert!(svg.contains("x=\"72.0\" y=\"56.6\" width=\"336.0\""), "gin, half as long: {svg}");
    assert!(svg.contains("x=\"72.0\" y=\"182.6\" width=\"672.0\""), "netty: {svg}");
    assert!(svg.contains(">netty</text>") && svg.contains(">rps</text>"), "{svg}");
}

/// Purpose: a name that has no effect is an error: a chart that looks different from what its page asks for is worse than none.
#[test]
fn what_a_chart_cannot_do_is_refused() {
    let int = Value::Integer;
    let rows = table(&["n", "rps"], &[&[int(1), int(2)]]);
    for (datasets, options, expected) in [
        (
            r#"{"rps": {"colour": "red"}}"#,
            "{}",
            "datasets: unknown field `colour`, expected one of `label`",
        ),
        (
            r#"{"rsp": {"label": "x"}}"#,
            "{}",
            "datasets: \"rsp\" is not a series; the query has rps",
        ),
        (r#"[{}, {"label": "x"}]"#, "{}", "there are more than series"),
        (r#"{"rps": {"borderColor": "url(//e.x)"}}"#, "{}", "\"url(//e.x)\" is not a colour"),
        (r#"{"rps": {"yAxisID": "y2"}}"#, "{}", "unknown variant `y2`"),
        (r#"{"rps": {"yAxisID": "y1"}}"#, "{}", "leave one of them at \"y\""),
        ("{", "{}", "datasets: EOF"),
        ("{}", r#"{"scale": {}}"#, "options: unknown field `scale`, expected one of `indexAxis`"),
        ("{}", r#"{"scales": {"y": {"type": "logarithmic"}}}"#, "unknown variant `logarithmic`"),
        ("{}", r#"{"scales": {"y": {"position": "right"}}}"#, "y at the left"),
        ("{}", r#"{"scales": {"y": {"min": 5, "max": 5}}}"#, "not below its max"),
        ("{}", r#"{"indexAxis": "y"}"#, "write type=\"bar\""),
    ] {
        let mut settings = settings("line");
        (settings.datasets, settings.options) = (Some(datasets), Some(options));
        let error = chart::draw(&settings, &rows).expect_err(datasets);
        assert!(error.starts_with("@chart: ") && error.contains(expected), "{error}");
    }
    // In the order of the series, as Chart.js has it; and what a picture has anyway.
    let mut settings = settings("line");
    settings.datasets =
        Some(r#"[{"label": "Requests", "borderColor": "rgb(1, 2, 3)", "borderDash": [5, 5]}]"#);
    settings.options = Some(
        r#"{"responsive": true, "plugins": {"legend": {"display": true}}, "scales": {"y": {"max": 10}}}"#,
    );
    let svg = chart::draw(&settings, &rows).expect("it can be drawn");
    for part in
        [">Requests</text>", "stroke=\"rgb(1, 2, 3)\"", "stroke-dasharray=\"5 5\"", ">10</text>"]
    {
        assert!(svg.contains(part), "{part}: {svg}");
    }
}

/// Purpose: HTML that would load or run something is refused, however it is written; what only marks text is kept.
#[test]
fn html() {
    for bad in [
        "<script>a()</script>",
        "a <img src=x> b",
        "<SCRIPT\nsrc=x>",
        "<div onclick=\"a()\">x</div>",
        "<span style=\"background:url(x)\">x</span>",
        "<link rel=stylesheet href=x>",
        "<div\nonclick=\"a()\">x</div>",
        "<p title=\"\n>\" onload=a>",
        "<div class=\n\nonclick=a>",
        "<p title=\">\" onload=a>",
        "<svg><use href=x /></svg>",
        "![a](http://example.org/a.png)",
        "![a](a.png)",
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](data:text/html,x)",
    ] {
        let found = render(bad, &[]);
        assert!(found.as_ref().is_err_and(|problems| problems[0].line == 1), "{bad}: {found:?}");
    }
    for fine in [
        "a <br> b",
        "<details open><summary>a</summary>\n\nb\n\n</details>",
        "H<sub>2</sub>O",
        "1 < 2",
        "<iframe/src=x> is text to Markdown",
        "[a](b.md#c)",
    ] {
        let found = render(fine, &[]);
        assert!(found.is_ok(), "{fine}: {found:?}");
    }
}

/// Purpose: a page is called by its metadata, else by its first heading; headings have ids that differ.
#[test]
fn titles_and_headings() {
    let meta = [(1, Made::Meta { title: Some("From meta".to_owned()) })];
    assert_eq!(render("\u{e000}0\u{e001}\n\n# Heading", &meta).expect("fine").title, "From meta");
    let inline = [(1, Made::Inline("541K".to_owned()))];
    let page = render("# Up to \u{e000}0\u{e001}\n\n## A, b!\n\n## a b", &inline).expect("fine");
    assert_eq!(page.title, "Up to 541K");
    let html = page.html(&page::Place { pages: &[], index: 0 });
    assert!(html.contains("<h2 id=\"a-b\">") && html.contains("<h2 id=\"a-b-2\">"), "{html}");
}

proptest! {
    /// Purpose: whatever stands in a page, it is read or refused with a line that is in it, and never panics; and
    /// what is rendered of it has no element that is not allowed.
    #[test]
    fn any_page_is_read_or_refused(text in "([ -~µ\n]|<!-- @[a-z]*:|-->|\"|`|```\n|\n\n|<b|=|\\\\){0,60}") {
        let lines = text.lines().count() + 1;
        match directive::extract(&text) {
            Err(problem) => prop_assert!(problem.line >= 1 && problem.line <= lines),
            Ok(marked) => {
                let made: Vec<(usize, Made)> = marked.directives.iter().map(|found| (found.line, Made::Footer)).collect();
                match page::render(&marked, &made) {
                    Ok(page) => {
                        let html = page.html(&page::Place { pages: &[], index: 0 });
                        prop_assert!(!html.contains(text::MARK.0), "{}", html);
                    }
                    Err(problems) => {
                        for problem in problems {
                            prop_assert!(problem.line >= 1 && problem.line <= lines + 1, "{:?}", problem);
                        }
                    }
                }
            }
        }
    }
}
