//! `highwater book` as it is called, over a database with the schema of the seed that it follows.

use std::path::PathBuf;
use std::process::{Command, Output};

use rusqlite::Connection;

const SCHEMA: &str = "
    CREATE TABLE commits (hash TEXT PRIMARY KEY, branch_id INTEGER, message TEXT, author TEXT, tag TEXT);
    CREATE TABLE benchmark_runs (id INTEGER PRIMARY KEY, commit_hash TEXT, run_type TEXT, started_at TEXT);
    CREATE TABLE benchmark_results (run_id INTEGER, requests_per_second REAL, p50_latency_us REAL, p99_latency_us REAL,
        avg_latency_us REAL, max_latency_us REAL);
    CREATE TABLE versions (tag TEXT, chapter_number INTEGER, title TEXT, description TEXT, commit_hash TEXT,
        baseline_rps REAL, improvement_percent REAL, technique TEXT);
    CREATE TABLE demo_outputs (demo_number INTEGER, title TEXT, description TEXT, output TEXT);
    CREATE TABLE limits (n INTEGER, rps REAL, word TEXT, kind TEXT);
    INSERT INTO commits VALUES ('h1', 1, 'm', 'a', 'v1'), ('h2', 1, 'm', 'a', 'v2');
    INSERT INTO benchmark_runs VALUES (1, 'h1', 'full', '2026-01-01'), (2, 'h1', 'full', '2026-01-02');
    INSERT INTO benchmark_results VALUES (1, 1, 1, 111, 1, 1), (2, 2, 2, 1234567, 2, 2);
    INSERT INTO versions VALUES ('v1', 1, 'First <b>', 'd', 'h1', 541275, 12.34, 't'), ('v2', 2, 'Second', 'd', 'h2', NULL, 1, 't');
    INSERT INTO demo_outputs VALUES (1, 'Demo', 'shows', '<script>alert(1)</script>');
    INSERT INTO limits VALUES (1, 100, '<img src=x onerror=a>', 'a'), (2, 300, 'b', 'a'), (3, 200, 'c', 'b');
";

/// A folder with a database and a page, removed at the end.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Scene {
        let folder =
            std::env::temp_dir().join(format!("highwater-book-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("src")).expect("the temporary folder is ours");
        let scene = Scene(folder);
        scene.database().execute_batch(SCHEMA).expect("the schema is SQL");
        scene
    }

    fn database(&self) -> Connection {
        Connection::open(self.0.join("db.sqlite")).expect("the folder is ours")
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join("src").join(name), text).expect("the folder is ours");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join("src").join(name)).expect("it was written")
    }

    fn fill(&self, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.args(["book", "fill"]).arg(self.0.join("src")).args(more);
        command.arg("--db").arg(self.0.join("db.sqlite"));
        command.output().expect("the binary under test was built")
    }

    fn book(&self, verb: &str) -> Output {
        let out = [PathBuf::from("--out"), self.0.join("out")];
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command
            .args(["book", verb])
            .arg(self.0.join("src"))
            .arg("--db")
            .arg(self.0.join("db.sqlite"));
        command.args(if verb == "build" { &out[..] } else { &[] });
        command.output().expect("the binary under test was built")
    }

    /// The page, which must be fine.
    fn page(&self, name: &str) -> String {
        let built = self.book("build");
        assert_eq!(built.status.code(), Some(0), "{}", printed(&built));
        std::fs::read_to_string(self.0.join("out").join(name)).expect("it was written")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Purpose: every directive makes what it promises, in place, from the record that belongs to it.
#[test]
fn directives() {
    let scene = Scene::new("directives");
    scene.write(
        "index.md",
        r#"<!-- @meta: title="Journey" author="x" -->
# Start

From <!-- @metric:tag="v1" --> to <!-- @metric:tag="v1" format="short" -->, <!-- @metric:tag='v1' format=comma -->,
<!-- @metric:tag="v1" field="improvement_percent" format="decimal" --> %, p99 <!-- @metric:tag="v1" field="p99_latency_us" format="short" -->,
and <!-- @metric: query="SELECT word FROM limits WHERE n = 2" -->.

| a | b |
|---|---|
| <!-- @metric: query="SELECT 'x' || 'y'" --> | 2 |

<!-- @chart: query="SELECT n, rps, kind FROM limits" title="Limits & more" -->
<!-- @table: query="SELECT n, word FROM limits" title="Words" -->
<!-- @git: show="branches" -->
<!-- @demo: num="1" -->
<!-- @mermaid: title="Flow" diagram="graph TD
    A --> B" -->
<!-- @c4: level="1" diagram="Person(a, 'b')" -->

```html
<!-- @metric:tag="gone" -->
```

See [the next](next.md#there).

<!-- @footer:generated_at -->
"#,
    );
    scene.write("next.md", "# Next\n");
    let page = scene.page("index.html");
    assert!(page.contains("<title>Journey</title>"), "{page}");
    assert!(page.contains("From 541275 to 541K, 541,275,\n12.3 %, p99 1.2M,\nand b."), "{page}");
    assert!(
        page.contains("<td>xy</td>"),
        "a pipe within a query is no border of the table: {page}"
    );
    assert!(page.contains("<svg ") && page.contains(">Limits &amp; more</title>"), "{page}");
    assert!(
        page.contains("<td class=\"number\">1</td><td>&lt;img src=x onerror=a&gt;</td>"),
        "{page}"
    );
    assert!(
        page.contains("<li><code>v1</code> First &lt;b&gt; <b>541,275 requests/s</b></li>"),
        "{page}"
    );
    assert!(page.contains("<li class=\"final\"><code>v2</code> Second</li>"), "{page}");
    assert!(page.contains("<pre>&lt;script&gt;alert(1)&lt;/script&gt;</pre>"), "{page}");
    assert!(page.contains("graph TD\n    A --&gt; B</pre><figcaption>Flow</figcaption>"), "{page}");
    assert!(page.contains("Person(a, &#39;b&#39;)"), "{page}");
    assert!(page.contains("&lt;!-- @metric:tag=\"gone\" --&gt;"), "code stays text: {page}");
    assert!(page.contains("<a href=\"next.html#there\">"), "{page}");
    assert!(
        page.contains("<a href=\"next.html\">Next</a>") && page.contains("</footer>"),
        "{page}"
    );
}

/// Purpose: a page loads nothing and runs nothing, whatever the database holds, and is made for light and dark.
#[test]
fn pages_load_nothing() {
    let scene = Scene::new("loads");
    let hostile =
        "INSERT INTO limits VALUES (4, 5, '</td><script src=//e.x>', '\"><img src=//e.x>')";
    scene.database().execute_batch(hostile).expect("the schema has it");
    let text = "# T\n\n<!-- @table: query=\"SELECT * FROM limits\" -->\n\n\
                <!-- @chart: query=\"SELECT word, rps, kind FROM limits\" title=\"</title><script>\" type=bar -->\n";
    scene.write("index.md", text);
    let page = scene.page("index.html");
    for element in [
        "<script",
        "<link",
        "<img",
        "<iframe",
        "<object",
        "<embed",
        "@import",
        "url(",
        " src=\"",
        "onerror=\"",
    ] {
        assert!(!page.contains(element), "{element}: {page}");
    }
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"), "{page}");
    assert!(page.contains("prefers-color-scheme: dark"), "{page}");
}

/// Pages with one mistake each: the text, the line of the mistake, and what is said about it.
const MISTAKES: &[(&str, u32, &str)] = &[
    (
        "a\n\n<!-- @metrik:tag=\"v1\" -->",
        3,
        "@metrik is not a directive; write one of meta, metric",
    ),
    ("<!-- @chart: title=\"x\" -->", 1, "@chart needs query; write query="),
    ("<!-- @metric: format=short -->", 1, "@metric needs tag or query; write tag="),
    ("<!-- @table: title=\"x\" -->", 1, "@table needs query"),
    ("<!-- @demo: -->", 1, "@demo needs num"),
    ("<!-- @mermaid: title=x -->", 1, "@mermaid needs diagram"),
    ("<!-- @git: -->", 1, "@git needs show"),
    ("<!-- @git: show=leaves -->", 1, "write show=\"branches\""),
    ("\n<!-- @table: query=\"SELEC 1\" -->", 2, "begins with \"SELEC\"; write SELECT"),
    (
        "<!-- @table: query=\"SELECT nope FROM limits\" -->",
        1,
        "no such column: nope, at \"nope FROM limits\"; limits has n, rps, word, kind",
    ),
    (
        "<!-- @table: query=\"SELECT 1 FROM nope\" -->",
        1,
        "no such table: nope; the database has benchmark_results, ",
    ),
    ("<!-- @table: query=\"DELETE FROM limits\" -->", 1, "would write"),
    ("<!-- @table: query=\"WITH a AS (SELECT 1) DELETE FROM limits\" -->", 1, "would write"),
    ("<!-- @table: query=\"SELECT 1; DROP TABLE limits\" -->", 1, "followed by another"),
    ("<!-- @metric: query=\"UPDATE limits SET n = 1 RETURNING n\" -->", 1, "would write"),
    ("<!-- @table: query=\"SELECT * FROM limits WHERE n > 99\" -->", 1, "has no rows"),
    ("<!-- @chart: query=\"SELECT n, rps FROM limits WHERE n > 99\" -->", 1, "has no rows"),
    (
        "<!-- @chart: query=\"SELECT n, rps FROM limits\" y=latency -->",
        1,
        "y=\"latency\" is not a column of the query; it has n, rps",
    ),
    ("<!-- @chart: query=\"SELECT n FROM limits\" -->", 1, "has 1 column; select y too"),
    ("<!-- @chart: query=\"SELECT n, word FROM limits\" -->", 1, "which is not a number"),
    ("<!-- @chart: query=\"SELECT n, NULL FROM limits\" -->", 1, "which is not a number"),
    (
        "<!-- @chart: query=\"SELECT n, rps FROM limits\" type=cake -->",
        1,
        "type \"cake\" is unknown; write one of line",
    ),
    (
        "<!-- @metric: query=\"SELECT n FROM limits\" -->",
        1,
        "the query has 3 rows of 1 columns; select one value",
    ),
    (
        "<!-- @metric: query=\"SELECT n, rps FROM limits WHERE n = 1\" -->",
        1,
        "the query has 1 rows of 2 columns; select one value",
    ),
    ("<!-- @metric:tag=\"v9\" -->", 1, "there is no record of baseline_rps of \"v9\"; measure it"),
    ("<!-- @metric:tag=\"v2\" -->", 1, "there is no record of baseline_rps of \"v2\""),
    ("<!-- @metric:tag=\"v2\" field=p99_latency_us -->", 1, "there is no record of p99_latency_us"),
    (
        "<!-- @metric:tag=\"v1\" field=\"rps\" -->",
        1,
        "there is no column \"rps\"; write one of tag, chapter_number",
    ),
    ("<!-- @metric:tag=\"v1\" field=\"tag\" format=short -->", 1, "is not a number"),
    (
        "<!-- @metric:tag=\"v1\" format=\"long\" -->",
        1,
        "format \"long\" is unknown; write one of short",
    ),
    (
        "<!-- @metric: query=\"SELECT n FROM limits WHERE n > 99\" -->",
        1,
        "there is no record of the query",
    ),
    ("<!-- @demo: num=7 -->", 1, "there is no demo 7"),
    ("a\n<!-- @table: query=\"SELECT 1\"", 2, "the directive does not end; write -->"),
    ("a <!-- @table: query=\"SELECT 1\" --> b", 1, "stands within a paragraph"),
    ("<!-- @footer: -->\n\nx\n\n<script>x</script>", 5, "<script> may load or run something"),
    ("![x](http://example.org/x.png)", 1, "a picture would be loaded"),
    ("a\n\n[b](nowhere.md#c)", 3, "nowhere.md, which does not exist; correct the link"),
    (
        "<!-- @table: query=\"SELECT 1\" tilte=x -->",
        1,
        "@table has no parameter tilte; write one of query, sql, title",
    ),
    (
        "<!-- @table: query=\"SELECT 1 AS a\" columns='{\"b\": {}}' -->",
        1,
        "@table: columns: \"b\" is not a column of the query; it has a",
    ),
    (
        "<!-- @table: query=\"SELECT 1 AS a\" columns='{\"a\": {\"klass\": \"x\"}}' -->",
        1,
        "unknown field `klass`, expected `class` or `label`",
    ),
    (
        "<!-- @chart: query=\"SELECT n, rps FROM limits\" datasets='{\"rps\": {\"x\": 1}}' -->",
        1,
        "@chart: datasets: unknown field `x`",
    ),
];

/// Purpose: everything that can be wrong is said with file, line and remedy, by `build` and by `check`, with exit
/// status 1, and then nothing is written.
#[test]
fn problems() {
    let scene = Scene::new("problems");
    for &(text, line, expected) in MISTAKES {
        scene.write("page.md", text);
        for verb in ["build", "check"] {
            let output = scene.book(verb);
            assert_eq!(output.status.code(), Some(1), "{text}: {}", printed(&output));
            let place = format!("page.md:{line}: ");
            assert!(
                printed(&output).contains(&place) && printed(&output).contains(expected),
                "{text}: {}",
                printed(&output)
            );
        }
        assert!(!scene.0.join("out").exists(), "{text}");
    }
    // Everything that is wrong is said at once, in order, for all pages.
    scene.write("page.md", "<!-- @a: -->\n\n<!-- @b: -->\n");
    scene.write("other.md", "<!-- @c: -->");
    let output = printed(&scene.book("check"));
    let places: Vec<&str> =
        output.lines().filter_map(|line| line.rsplit('/').next()?.split(": @").next()).collect();
    assert_eq!(places, ["other.md:1", "page.md:1", "page.md:3"], "{output}");
}

/// Purpose: classes and heads go to the columns that were asked, and no other column has one.
#[test]
fn columns_get_their_classes() {
    let scene = Scene::new("columns");
    let table = r#"<!-- @table: query="SELECT n, rps AS RPS, word AS Word FROM limits WHERE n > 1"
                   columns='{"RPS": {"class": "rps", "label": "Requests <1>"}, "Word": {"class": "word small"}}' -->"#;
    scene.write("index.md", table);
    let page = scene.page("index.html");
    let head = "<th data-number>n</th><th class=\"rps\" data-number>Requests &lt;1&gt;</th><th class=\"word small\">Word</th>";
    assert!(page.contains(head), "{page}");
    let row = "<td data-number>2</td><td class=\"rps\" data-number>300</td><td class=\"word small\">b</td>";
    assert!(page.contains(row), "{page}");
}

/// Purpose: a figure is the record's to the last digit, beyond what a floating-point number holds.
#[test]
fn whole_numbers_are_exact() {
    let scene = Scene::new("exact");
    let figure =
        |sql: &str, format: &str| format!("<!-- @metric: query=\"SELECT {sql}\"{format} -->");
    let lines: Vec<String> = [
        ("9007199254740993", " format=comma"),
        ("-9007199254740993", " format=comma"),
        ("'18446744073709551615'", " format=comma"),
        ("9007199254740993", " format=integer"),
        ("9007199254740993", ""),
        ("1234567.6", " format=comma"),
    ]
    .iter()
    .map(|(sql, format)| figure(sql, format))
    .collect();
    scene.write("index.md", &format!("# T\n\n{}.\n", lines.join("; ")));
    let page = scene.page("index.html");
    let expected = "9,007,199,254,740,993; -9,007,199,254,740,993; 18,446,744,073,709,551,615; \
                    9007199254740993; 9007199254740993; 1,234,568.";
    assert!(page.contains(expected), "{page}");
}

/// Purpose: pages without figures need no database, a figure without one is an error with its line, and whoever builds
/// learns where the result is.
#[test]
fn a_database_is_for_figures() {
    let scene = Scene::new("plain");
    let build = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.args(["book", "build"]).arg(scene.0.join("src"));
        command.arg("--out").arg(scene.0.join("out")).output().expect("it was built")
    };
    scene.write("index.md", "# One\n\n[two](two.md#anywhere), [away](https://example.org/x.md)\n");
    scene.write("two.md", "# Two\n");
    let built = build();
    assert_eq!(built.status.code(), Some(0), "{}", printed(&built));
    let expected = format!("2 pages written; open {}/out/index.html\n", scene.0.display());
    assert_eq!(String::from_utf8_lossy(&built.stdout), expected);
    scene.write("two.md", "# Two\n\n<!-- @metric:tag=\"v1\" -->\n");
    let built = build();
    assert_eq!(built.status.code(), Some(1), "{}", printed(&built));
    assert!(
        printed(&built).contains("two.md:3: @metric: this needs records; give --db"),
        "{}",
        printed(&built)
    );
}

/// Purpose: a book whose record is taken away fails, and says which line needs it; checking writes nothing, to the
/// database neither.
#[test]
fn a_missing_record_is_found() {
    let scene = Scene::new("missing");
    scene.write("index.md", "# T\n\nIt reached <!-- @metric:tag=\"v1\" -->.\n");
    let before = std::fs::read(scene.0.join("db.sqlite")).expect("it is there");
    let fine = scene.book("check");
    assert_eq!((fine.status.code(), printed(&fine)), (Some(0), String::new()));
    assert_eq!(std::fs::read(scene.0.join("db.sqlite")).expect("it is there"), before);
    assert_eq!(
        std::fs::read_dir(&scene.0).expect("it is there").count(),
        2,
        "the database and the source"
    );
    scene.database().execute("DELETE FROM versions WHERE tag = 'v1'", []).expect("it is there");
    let failed = scene.book("check");
    assert_eq!(failed.status.code(), Some(1));
    assert!(
        printed(&failed).contains("index.md:3: @metric: there is no record of"),
        "{}",
        printed(&failed)
    );
}

/// Purpose: a page that is read as Markdown gets figures and tables from the records between a directive and its @end;
/// nothing else in it changes, and filling it again changes nothing.
#[test]
fn pages_are_filled() {
    let scene = Scene::new("fill");
    let page = "# T\n\nIt reached <!-- @metric:tag=\"v1\" format=comma --><!-- @end --> a second, not 7.\n\n\
                <!-- @table: query=\"SELECT n, word AS 'a | b', rps FROM limits\" -->\nold\n<!-- @end: -->\n\n\
                ```\n<!-- @metric:tag=\"v1\" --><!-- @end -->\n```\n![x](x.png)\n";
    scene.write("page.md", page);
    let stale = scene.fill(&["--check"]);
    assert_eq!(stale.status.code(), Some(1));
    for place in
        ["page.md:3: this text differs from the records; run highwater book fill ", "page.md:5: "]
    {
        assert!(printed(&stale).contains(place), "{}", printed(&stale));
    }
    assert_eq!(scene.read("page.md"), page, "--check writes nothing");
    let filled = scene.fill(&[]);
    assert_eq!((filled.status.code(), printed(&filled)), (Some(0), String::new()));
    let expected = "# T\n\nIt reached <!-- @metric:tag=\"v1\" format=comma -->541,275<!-- @end --> a second, not 7.\n\n\
                    <!-- @table: query=\"SELECT n, word AS 'a | b', rps FROM limits\" -->\n\n\
                    | n | a \\| b | rps |\n| --: | --- | --: |\n| 1 | \\<img src=x onerror=a\\> | 100 |\n\
                    | 2 | b | 300 |\n| 3 | c | 200 |\n\n<!-- @end: -->\n\n\
                    ```\n<!-- @metric:tag=\"v1\" --><!-- @end -->\n```\n![x](x.png)\n";
    assert_eq!(scene.read("page.md"), expected);
    assert_eq!(scene.fill(&["--check"]).status.code(), Some(0));
    // A record that is gone, and one that has changed.
    scene.database().execute("DELETE FROM versions WHERE tag = 'v1'", []).expect("it is there");
    let failed = scene.fill(&[]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(
        printed(&failed).contains("page.md:3: @metric: there is no record"),
        "{}",
        printed(&failed)
    );
    assert_eq!(scene.read("page.md"), expected, "a page with a mistake stays as it was");
}

/// Purpose: a filled page can be built too: readers get what the directive makes, once, and a page whose text is not
/// what its records say is not built.
#[test]
fn filled_pages_are_built() {
    let scene = Scene::new("filled");
    let directive = "<!-- @metric:tag=\"v1\" -->";
    scene
        .write("page.md", &format!("# T\n\nIt reached {directive}541275<!-- @end --> a second.\n"));
    assert!(scene.page("page.html").contains("<p>It reached 541275 a second.</p>"));
    scene
        .write("page.md", &format!("# T\n\nIt reached {directive}541276<!-- @end --> a second.\n"));
    for verb in ["build", "check"] {
        let output = scene.book(verb);
        assert_eq!(output.status.code(), Some(1));
        assert!(printed(&output).contains("page.md:3: this text differs"), "{}", printed(&output));
    }
    for (text, expected) in [
        ("a <!-- @end -->", "page.md:1: @end has no directive before it"),
        (
            "<!-- @chart: query=\"SELECT 1, 2\" -->\n<!-- @end -->",
            "page.md:1: @chart needs file; write file=",
        ),
        ("<!-- @footer -->\n<!-- @end -->", "page.md:1: @footer makes nothing that Markdown has"),
        (
            "<!-- @chart: query=\"SELECT 1, 2\" file=\"/x.svg\" -->\n<!-- @end -->",
            "page.md:1: @chart: file \"/x.svg\" is not a path to an .svg",
        ),
        ("\n<!-- @metrik: --><!-- @end -->", "page.md:2: @metrik is not a directive"),
    ] {
        scene.write("page.md", text);
        let output = scene.fill(&[]);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(printed(&output).contains(expected), "{text}: {}", printed(&output));
    }
}

/// Purpose: a chart of a page that is read as Markdown is a picture beside it, which loads nothing and is right in light
/// and dark; a query may stand in a file; and a picture or a query that has changed makes the page stale.
#[test]
fn charts_are_pictures_and_queries_are_files() {
    let scene = Scene::new("pictures");
    std::fs::create_dir(scene.0.join("src/sql")).expect("the folder is ours");
    scene.write("sql/words.sql", "SELECT word, rps FROM limits\n");
    let directive =
        "<!-- @chart: sql/words.sql type=\"bar\" title=\"Words\" file=\"charts/words.svg\" -->";
    scene.write("page.md", &format!("# T\n\n{directive}\n<!-- @end -->\n"));
    assert_eq!(scene.fill(&["--check"]).status.code(), Some(1));
    assert!(!scene.0.join("src/charts").exists(), "--check writes nothing");
    let filled = scene.fill(&[]);
    assert_eq!((filled.status.code(), printed(&filled)), (Some(0), String::new()));
    let page = format!("# T\n\n{directive}\n\n![Words](charts/words.svg)\n\n<!-- @end -->\n");
    assert_eq!(scene.read("page.md"), page);
    let picture = scene.read("charts/words.svg");
    assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"), "{picture}");
    assert!(picture.contains("prefers-color-scheme: dark") && !picture.contains("href"));
    assert!(picture.contains("&lt;img src=x onerror=a&gt;"), "what the database says is text");
    assert_eq!(scene.fill(&["--check"]).status.code(), Some(0));
    assert_eq!(scene.book("check").status.code(), Some(0));
    // The picture is another, or gone; the query is another, gone, or said twice.
    for (file, content, expected) in [
        ("charts/words.svg", "<svg/>", "page.md:3: this text differs from the records"),
        ("sql/words.sql", "SELECT word, 2 * rps FROM limits", "page.md:3: this text differs"),
        ("page.md", "<!-- @table: gone.sql -->", "page.md:1: @table: gone.sql: No such file"),
        ("page.md", "<!-- @table: a.sql query=b -->", "page.md:1: @table: both query and a.sql"),
    ] {
        scene.write(file, content);
        for output in [scene.fill(&["--check"]), scene.book("check")] {
            assert_eq!(output.status.code(), Some(1), "{file}");
            assert!(printed(&output).contains(expected), "{file}: {}", printed(&output));
        }
        scene.write("page.md", &page);
        assert_eq!(scene.fill(&[]).status.code(), Some(0));
    }
}

/// Purpose: a book is read in the order that its index gives, not in that of file names; what it does not name is last.
#[test]
fn pages_are_in_order() {
    let scene = Scene::new("order");
    scene.write("index.md", "# I\n\n[d](d.md), then [b](b.md#x)\n");
    for name in ["a", "b", "c", "d"] {
        scene.write(&format!("{name}.md"), "# T\n");
    }
    let page = scene.page("index.html");
    let nav = page.split("</nav>").next().expect("there is one");
    let places = ["index", "d", "b", "a", "c"].map(|name| nav.find(&format!("\"{name}.html\"")));
    assert!(places.is_sorted() && places[0].is_some(), "{places:?} {nav}");
}

/// Purpose: what cannot be read at all is a wrong flag: exit status 2, with the path.
#[test]
fn wrong_flags() {
    let scene = Scene::new("flags");
    scene.write("index.md", "# T");
    let run = |src: &str, db: &str| {
        let (src, db) = (scene.0.join(src), scene.0.join(db));
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        let output = command.args(["book", "check"]).arg(src).arg("--db").arg(db).output();
        let output = output.expect("the binary under test was built");
        (output.status.code(), printed(&output))
    };
    std::fs::create_dir(scene.0.join("empty")).expect("the folder is ours");
    for (src, db, expected) in [
        ("src", "gone.sqlite", "gone.sqlite"),
        ("src", "src/index.md", "give a SQLite database"),
        ("gone", "db.sqlite", "gone"),
        ("empty", "db.sqlite", "has no file that ends in .md"),
    ] {
        let (code, problem) = run(src, db);
        assert_eq!(code, Some(2), "{problem}");
        assert!(problem.contains(expected), "{problem}");
    }
    assert_eq!(run("src/index.md", "db.sqlite").0, Some(0), "one file is a book too");
}

/// Purpose: this repository's own book has a record for every figure, and README and documentation say what their
/// records say; and a record that is taken away is missed, with the line that needs it. `make readme` mends the latter.
#[test]
fn our_own_pages() {
    let scene = Scene::new("own");
    let top = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let folder = std::fs::read_dir(top.join("bench/evidence")).expect("it is there").flatten();
    let mut records: Vec<PathBuf> = folder.map(|file| file.path()).collect();
    records.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    let run = |command: &[&str], more: &[PathBuf]| {
        let mut highwater = Command::new(env!("CARGO_BIN_EXE_highwater"));
        highwater.args(command).args(more).arg("--db").arg(scene.0.join("records.sqlite"));
        highwater.output().expect("the binary under test was built")
    };
    let export = |records: &[PathBuf]| {
        let tables = top.join("book/tables.sql");
        let tables = tables.to_str().expect("the path of this repository is text");
        let exported = run(&["bench", "export", "--sql", tables], records);
        assert_eq!(exported.status.code(), Some(0), "{}", printed(&exported));
    };
    let check_book = || run(&["book", "check"], &[top.join("book")]);
    let check_pages =
        || run(&["book", "fill", "--check"], &[top.join("README.md"), top.join("docs")]);
    export(&records);
    for checked in [check_book(), check_pages()] {
        assert_eq!(
            checked.status.code(),
            Some(0),
            "make readme rewrites figures\n{}",
            printed(&checked)
        );
    }
    let needed = [
        ("2026-11-22-axum.json", "book", "axum.md:6: @chart: the query has no rows"),
        ("2026-11-22-framework.json", "pages", "README.md:"),
        ("2026-11-22-stress.json", "pages", "overload.md:"),
    ];
    let is_kept = |path: &&PathBuf| !needed.iter().any(|(record, ..)| path.ends_with(record));
    let without: Vec<PathBuf> = records.iter().filter(is_kept).cloned().collect();
    assert_eq!(without.len() + needed.len(), records.len(), "they are there");
    export(&without);
    for (record, page, expected) in needed {
        let checked = if page == "book" { check_book() } else { check_pages() };
        assert_eq!(checked.status.code(), Some(1), "{record}");
        assert!(printed(&checked).contains(expected), "{record}: {}", printed(&checked));
    }
}

/// Purpose: a file that is not a record is refused by name, and the existing database stays.
#[test]
fn exports_are_whole_or_not_at_all() {
    let scene = Scene::new("export");
    scene.write("bad.json", "{\"plan\": 3}");
    scene.write("package.json", "{\"name\": \"x\", \"scripts\": {}}");
    scene.write("a.json", "{\"rows\": []}");
    scene.write("a.old", "{\"rows\": []}");
    let before = std::fs::read(scene.0.join("db.sqlite")).expect("it is there");
    for (records, expected) in [
        (&["bad.json"][..], "bad.json"),
        (&["package.json"], "package.json: this is not a record: it has no plan"),
        (&["a.json", "a.old"], "a.json has the same name, a, by which"),
    ] {
        let mut highwater = Command::new(env!("CARGO_BIN_EXE_highwater"));
        highwater.args(["bench", "export"]);
        highwater.args(records.iter().map(|record| scene.0.join("src").join(record)));
        highwater.arg("--db").arg(scene.0.join("db.sqlite"));
        let refused = highwater.output().expect("the binary under test was built");
        assert_eq!(refused.status.code(), Some(2));
        assert!(printed(&refused).contains(expected), "{}", printed(&refused));
        assert_eq!(std::fs::read(scene.0.join("db.sqlite")).expect("it is there"), before);
        assert!(!scene.0.join("db.sqlite.new").exists());
    }
}
