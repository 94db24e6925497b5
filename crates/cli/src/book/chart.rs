//! A query's rows as a picture: SVG that stands in the page and loads nothing. Pure.
//!
//! Series differ in colour, and in line style and marks too. Text takes the page's colour, so that a chart can be
//! read in light and dark.

use std::fmt::Write;

use super::database::{Table, Value};
use super::text::escape;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 410.0;
/// The plot's edges.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 744.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 296.0;
/// Series of one chart, at most: more cannot be told apart.
const SERIES_MAX: usize = 12;
/// Labels under the plot, at most.
const LABELS_MAX: usize = 12;
/// What stands below the plot, from its edge: the x axis's name, and the first row of the legend. Slanted labels reach as
/// far as the name.
const NAME_BELOW: f64 = 62.0;
const LEGEND_BELOW: f64 = 82.0;
const LEGEND_ROW: f64 = 14.0;
/// Labels longer than this are slanted.
const LABEL_LENGTH_MAX: usize = 8;
/// Readable on white and on black.
const COLOURS: [&str; 6] = ["#2f7fc1", "#d9534f", "#2a9d5c", "#c78100", "#8e5bb5", "#5c7080"];
const DASHES: [&str; 4] = ["", "7 4", "2 3", "9 3 2 3"];
const KINDS: [&str; 4] = ["line", "bar", "scatter", "area"];

/// How a chart is to look.
pub(super) struct Settings<'a> {
    pub(super) title: &'a str,
    pub(super) kind: &'a str,
    /// Columns by name; `None`: the first, the second, the third if there is one.
    pub(super) x: Option<&'a str>,
    pub(super) y: Option<&'a str>,
    pub(super) series: Option<&'a str>,
    /// Its place in the page, which makes the title's id unique.
    pub(super) number: usize,
}

/// Points of one name.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// What the plot shows.
struct Plot {
    series: Vec<Series>,
    /// Names of x values, if they are no numbers; their places are 0, 1, 2…
    labels: Option<Vec<String>>,
    x_name: String,
    y_name: String,
}

/// Draws `table`, which has a row at least.
///
/// # Errors
/// A column is missing, a value is no number, or the kind is unknown.
pub(super) fn draw(settings: &Settings<'_>, table: &Table) -> Result<String, String> {
    if !KINDS.contains(&settings.kind) {
        return Err(format!(
            "@chart: type {:?} is unknown; write one of {}",
            settings.kind,
            KINDS.join(", ")
        ));
    }
    let plot = plot(settings, table)?;
    let xs = || plot.series.iter().flat_map(|series| &series.points).map(|point| point.0);
    let ys = || plot.series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let x_scale = match &plot.labels {
        Some(labels) => Scale { low: -0.5, high: labels.len() as f64 - 0.5, step: 1.0 },
        None => Scale::tight(least(xs()), most(xs())),
    };
    // From zero: the length of a bar, or the height of a line, is what one compares.
    let y_scale = Scale::round(least(ys()).min(0.0), most(ys()).max(0.0));
    let at = |x: f64, y: f64| {
        let right = LEFT + x_scale.share(x) * (RIGHT - LEFT);
        (right, BOTTOM - y_scale.share(y) * (BOTTOM - TOP))
    };
    let id = format!("chart-{}", settings.number);
    let title = escape(settings.title);
    let mut out = format!(
        "<figure class=\"chart\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}\" \
         xmlns=\"http://www.w3.org/2000/svg\"><title id=\"{id}\">{title}</title>\n\
         <text class=\"name\" x=\"{LEFT}\" y=\"18\">{title}</text>\n"
    );
    y_axis(&mut out, &plot.y_name, &y_scale);
    x_axis(&mut out, &plot, &x_scale);
    let count = plot.series.len();
    for (index, series) in plot.series.iter().enumerate() {
        let points: Vec<(f64, f64)> = series.points.iter().map(|(x, y)| at(*x, *y)).collect();
        let zero = at(0.0, 0.0).1;
        match settings.kind {
            "bar" => bars(&mut out, index, count, &points, zero, width_of_bars(&plot, count)),
            kind => line(&mut out, kind, index, &points, zero),
        }
        for ((x, y), value) in points.iter().zip(&series.points) {
            let name = escape(&format!("{}: {}", series.name, number(value.1)));
            let _ = writeln!(
                out,
                "<circle class=\"hint\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"><title>{name}</title></circle>"
            );
        }
    }
    legend(&mut out, settings.kind, &plot.series);
    Ok(out + "</svg></figure>")
}

fn plot(settings: &Settings<'_>, table: &Table) -> Result<Plot, String> {
    let column = |asked: Option<&str>, usual: usize, key: &str| match asked {
        Some(name) => table.columns.iter().position(|column| column == name).ok_or_else(|| {
            let known = table.columns.join(", ");
            format!("@chart: {key}={name:?} is no column of the query; it has {known}")
        }),
        None if usual < table.columns.len() => Ok(usual),
        None => {
            Err(format!("@chart: the query has {} column; select {key} too", table.columns.len()))
        }
    };
    let (x, y) = (column(settings.x, 0, "x")?, column(settings.y, 1, "y")?);
    let series = match settings.series {
        None if table.columns.len() <= 2 => None,
        asked => Some(column(asked, 2, "series")?),
    };
    let numeric = settings.kind != "bar" && table.rows.iter().all(|row| is_number(&row[x]));
    let mut labels: Vec<String> = Vec::new();
    let mut found: Vec<Series> = Vec::new();
    for row in &table.rows {
        let height = row[y].number().filter(|_| row[y] != Value::Null).ok_or_else(|| {
            let (column, text) = (&table.columns[y], row[y].text());
            format!("@chart: {column} is {text:?}, which is no number; select numbers for y")
        })?;
        let place = match row[x].number().filter(|_| numeric) {
            Some(number) => number,
            None => {
                let label = row[x].text();
                let known = labels.iter().position(|known| *known == label);
                known.unwrap_or_else(|| {
                    labels.push(label);
                    labels.len() - 1
                }) as f64
            }
        };
        let name = series.map_or_else(|| table.columns[y].clone(), |series| row[series].text());
        match found.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push((place, height)),
            None => found.push(Series { name, points: vec![(place, height)] }),
        }
    }
    if found.len() > SERIES_MAX {
        return Err(format!("@chart: {} series; select {SERIES_MAX} at most", found.len()));
    }
    found.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let (x_name, y_name) = (table.columns[x].clone(), table.columns[y].clone());
    Ok(Plot { series: found, labels: (!numeric).then_some(labels), x_name, y_name })
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Integer(_) | Value::Real(_))
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, f64::max)
}

/// An axis: its ends, and the distance of its lines.
struct Scale {
    low: f64,
    high: f64,
    step: f64,
}

impl Scale {
    /// Ends at round numbers.
    fn round(low: f64, high: f64) -> Scale {
        let step = step(high - low);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Scale { low, high: if high > low { high } else { low + step }, step }
    }

    /// Ends at the values.
    fn tight(low: f64, high: f64) -> Scale {
        let step = step(high - low);
        if high > low {
            Scale { low, high, step }
        } else {
            Scale { low: low - step, high: high + step, step }
        }
    }

    fn share(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    fn lines(&self) -> Vec<f64> {
        let first = (self.low / self.step - 1e-9).ceil() as i64;
        let last = (self.high / self.step + 1e-9).floor() as i64;
        (first..=last).map(|index| index as f64 * self.step).collect()
    }
}

/// A round distance for five or so lines in `span`.
fn step(span: f64) -> f64 {
    if span <= 0.0 || !span.is_finite() {
        return 1.0;
    }
    let magnitude = 10_f64.powf((span / 5.0).log10().floor());
    let rounds = [1.0, 2.0, 2.5, 5.0, 10.0];
    rounds.into_iter().find(|round| round * magnitude * 6.0 >= span).unwrap_or(10.0) * magnitude
}

fn y_axis(out: &mut String, name: &str, scale: &Scale) {
    for value in scale.lines() {
        let y = BOTTOM - scale.share(value) * (BOTTOM - TOP);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            number(value)
        );
    }
    let _ =
        writeln!(out, "<text class=\"axis\" x=\"8\" y=\"{}\">{}</text>", TOP - 10.0, escape(name));
}

fn x_axis(out: &mut String, plot: &Plot, scale: &Scale) {
    let labels: Vec<(f64, String)> = match &plot.labels {
        Some(labels) => {
            labels.iter().enumerate().map(|(at, label)| (at as f64, label.clone())).collect()
        }
        None => scale.lines().into_iter().map(|value| (value, number(value))).collect(),
    };
    let every = labels.len().div_ceil(LABELS_MAX).max(1);
    let slanted = labels.len() > 4
        && labels.iter().any(|(_, label)| label.chars().count() > LABEL_LENGTH_MAX);
    for (value, label) in labels.iter().step_by(every) {
        let x = LEFT + scale.share(*value) * (RIGHT - LEFT);
        let y = BOTTOM + 18.0;
        let turn = if slanted {
            format!(" transform=\"rotate(-20 {x:.1} {y:.1})\"")
        } else {
            String::new()
        };
        let class = if slanted { "slanted" } else { "x" };
        let _ = writeln!(
            out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{turn}>{}</text>",
            escape(label)
        );
    }
    let _ = writeln!(
        out,
        "<line class=\"base\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\"/>\
         <text class=\"axis end\" x=\"{RIGHT}\" y=\"{}\">{}</text>",
        BOTTOM + NAME_BELOW,
        escape(&plot.x_name)
    );
}

/// Where the values differ by place only, bars of one place share it.
fn width_of_bars(plot: &Plot, count: usize) -> f64 {
    let places = plot.labels.as_ref().map_or(1, Vec::len).max(1);
    (RIGHT - LEFT) / places as f64 * 0.8 / count as f64
}

fn bars(
    out: &mut String,
    index: usize,
    count: usize,
    points: &[(f64, f64)],
    zero: f64,
    width: f64,
) {
    let colour = COLOURS[index % COLOURS.len()];
    let shift = (index as f64 - count as f64 / 2.0) * width;
    for (x, y) in points {
        let (left, top, height) = (x + shift, y.min(zero), (y - zero).abs());
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>",
            width.max(1.0) * 0.96
        );
    }
}

fn line(out: &mut String, kind: &str, index: usize, points: &[(f64, f64)], zero: f64) {
    let (colour, dash) =
        (COLOURS[index % COLOURS.len()], DASHES[index / COLOURS.len() % DASHES.len()]);
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let path = path.join(" ");
    if let ("area", Some(first), Some(last)) = (kind, points.first(), points.last()) {
        let (from, to) = (first.0, last.0);
        let _ = writeln!(
            out,
            "<polygon points=\"{from:.1},{zero:.1} {path} {to:.1},{zero:.1}\" fill=\"{colour}\" fill-opacity=\"0.2\"/>"
        );
    }
    if kind != "scatter" {
        let _ = writeln!(
            out,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>"
        );
    }
    for (x, y) in points {
        let _ = writeln!(out, "{}", mark(index, colour, *x, *y));
    }
}

/// A mark of a shape of its own for each series.
fn mark(index: usize, colour: &str, x: f64, y: f64) -> String {
    match index % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"),
        1 => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" fill=\"{colour}\"/>",
            x - 3.5,
            y - 3.5
        ),
        2 => format!("<path d=\"M{x:.1} {:.1}l4.5 8h-9z\" fill=\"{colour}\"/>", y - 5.0),
        _ => format!("<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\" fill=\"{colour}\"/>", y - 5.0),
    }
}

fn legend(out: &mut String, kind: &str, series: &[Series]) {
    if series.len() == 1 {
        return;
    }
    let column = (RIGHT - LEFT) / 4.0;
    for (index, series) in series.iter().enumerate() {
        let x = LEFT + (index % 4) as f64 * column;
        let y = BOTTOM + LEGEND_BELOW + (index / 4) as f64 * LEGEND_ROW;
        let colour = COLOURS[index % COLOURS.len()];
        let sign = match kind {
            "bar" => format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"9\" height=\"9\" fill=\"{colour}\"/>",
                x,
                y - 8.0
            ),
            _ => mark(index, colour, x + 4.0, y - 4.0),
        };
        let _ = writeln!(
            out,
            "{sign}<text class=\"legend\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            x + 14.0,
            escape(&series.name)
        );
    }
}

/// Short, exact for whole numbers that are not large.
fn number(value: f64) -> String {
    let size = value.abs();
    let (scaled, unit) = match size {
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "K"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if text == "-0" { "0" } else { text })
}
