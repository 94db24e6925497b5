//! A query's rows as a picture: SVG that stands in the page and loads nothing. Pure.
//!
//! ```text
//!  rows ─▶ plot (series, places) ─▶ scale ─▶ axes, marks ─▶ SVG
//!             datasets, options ─▶ look ───────┘
//! ```
//! Series differ in colour, and in line style and marks too. Text takes the page's colour, so that a chart can be
//! read in light and dark.

mod axes;
mod look;
mod marks;
mod scale;

use std::fmt::Write;

use super::database::{Table, Value};
use super::text::escape;
use axes::{BOTTOM, Frame, HEIGHT, TOP, WIDTH};
use look::{Axis, Dataset, Options};
use marks::{Bars, Pen};
use scale::{Scale, number};

/// Series of one chart, at most: more cannot be told apart.
const SERIES_MAX: usize = 12;
const KINDS: [&str; 4] = ["line", "bar", "scatter", "area"];
const USUAL_TITLE: &str = "Performance Chart";

/// What a chart directive asks for, besides its rows.
pub(super) struct Settings<'a> {
    pub(super) title: Option<&'a str>,
    pub(super) kind: &'a str,
    /// Columns by name; `None`: the first, the second, the third if there is one.
    pub(super) x: Option<&'a str>,
    pub(super) y: Option<&'a str>,
    pub(super) series: Option<&'a str>,
    /// JSON, as Chart.js has it.
    pub(super) datasets: Option<&'a str>,
    pub(super) options: Option<&'a str>,
    /// Its place in the page, which makes the title's id unique.
    pub(super) number: usize,
}

/// Points of one name.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    look: Dataset,
}

impl Series {
    fn label(&self) -> &str {
        self.look.label.as_deref().unwrap_or(&self.name)
    }
}

/// What the plot shows.
struct Plot {
    series: Vec<Series>,
    /// Names of x values, if they are not numbers; their places are 0, 1, 2…
    labels: Option<Vec<String>>,
    x_name: String,
    y_name: String,
}

/// Draws `table`, which has at least one row.
///
/// # Errors
/// A column is missing, a value is not a number, the kind is unknown, or `datasets` or `options` are wrong.
pub(super) fn draw(settings: &Settings<'_>, table: &Table) -> Result<String, String> {
    if !KINDS.contains(&settings.kind) {
        return Err(format!(
            "@chart: type {:?} is unknown; write one of {}",
            settings.kind,
            KINDS.join(", ")
        ));
    }
    let options = Options::read(settings.options)?;
    if options.is_horizontal() && settings.kind != "bar" {
        return Err("@chart: options: indexAxis \"y\" is for bars; write type=\"bar\"".to_owned());
    }
    let plot = plot(settings, table)?;
    let id = format!("chart-{}", settings.number);
    let title = escape(settings.title.or(options.title()).unwrap_or(USUAL_TITLE));
    let mut out = format!(
        "<figure class=\"chart\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}\" \
         xmlns=\"http://www.w3.org/2000/svg\"><title id=\"{id}\">{title}</title>\n\
         <text class=\"name\" x=\"72\" y=\"18\">{title}</text>\n"
    );
    let frame = match options.is_horizontal() {
        true => lying(&mut out, &plot, &options)?,
        false => standing(&mut out, settings.kind, &plot, &options)?,
    };
    if options.has_legend(plot.series.len()) {
        marks::legend(&mut out, frame, settings.kind == "bar", &plot.series);
    }
    Ok(out + "</svg></figure>")
}

/// A chart whose values go up.
fn standing(out: &mut String, kind: &str, plot: &Plot, options: &Options) -> Result<Frame, String> {
    let values = |axis: Axis| {
        let series = plot.series.iter().filter(move |series| series.look.axis == axis);
        series.flat_map(|series| &series.points).map(|point| point.1)
    };
    let has_second = values(Axis::Second).next().is_some();
    if has_second && values(Axis::First).next().is_none() {
        let what = "all series have yAxisID \"y1\"; leave one of them at \"y\"";
        return Err(format!("@chart: datasets: {what}"));
    }
    let (frame, scales) = (Frame::new(has_second), &options.scales);
    let y = Scale::of_values(values(Axis::First), &scales.y);
    axes::y_axis(out, frame, &y, scales.y.name().unwrap_or(&plot.y_name), scales.y.has_grid(true));
    let y1 = has_second.then(|| Scale::of_values(values(Axis::Second), &scales.y1));
    if let Some(y1) = &y1 {
        let mut names = plot.series.iter().filter(|series| series.look.axis == Axis::Second);
        let name = scales.y1.name().or(names.next().map(Series::label)).unwrap_or_default();
        axes::y1_axis(out, frame, y1, name, scales.y1.has_grid(false));
    }
    let x = match &plot.labels {
        Some(labels) => Scale::of_places(labels.len()),
        None => Scale::tight(plot.series.iter().flat_map(|s| &s.points).map(|point| point.0)),
    };
    let x_name = scales.x.name().unwrap_or(&plot.x_name);
    axes::x_axis(out, frame, &x, plot.labels.as_deref(), x_name);
    let (count, places) = (plot.series.len(), plot.labels.as_ref().map_or(1, Vec::len));
    let width = marks::share_of_bars(frame.right - frame.left, places, count);
    for (index, series) in plot.series.iter().enumerate() {
        let scale = y1.as_ref().filter(|_| series.look.axis == Axis::Second).unwrap_or(&y);
        let place =
            |point: &(f64, f64)| (frame.across(x.share(point.0)), frame.up(scale.share(point.1)));
        let points: Vec<(f64, f64)> = series.points.iter().map(place).collect();
        let (pen, zero) = (Pen::new(index, series), frame.up(scale.share(0.0)));
        match kind {
            "bar" => pen.bars(out, &points, Bars { count, zero, width, are_lying: false }),
            _ => {
                if series.look.fill.unwrap_or(kind == "area") {
                    pen.area(out, &points, zero);
                }
                if kind != "scatter" {
                    pen.line(out, &points);
                }
                pen.marks(out, &points);
            }
        }
        hints(out, series, &points);
    }
    Ok(frame)
}

/// A chart whose bars lie, the first at the top.
fn lying(out: &mut String, plot: &Plot, options: &Options) -> Result<Frame, String> {
    if plot.series.iter().any(|series| series.look.axis == Axis::Second) {
        return Err("@chart: datasets: bars that lie have one axis; remove yAxisID".to_owned());
    }
    let names = plot.labels.as_deref().unwrap_or_default();
    let (frame, scales) = (Frame::with_names(names), &options.scales);
    let all = plot.series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let (values, places) = (Scale::of_values(all, &scales.x), Scale::of_places(names.len()));
    let x_name = scales.x.name().unwrap_or(&plot.y_name);
    let y_name = scales.y.name().unwrap_or(&plot.x_name);
    let has_grid = scales.x.has_grid(true);
    axes::lying(out, frame, (&values, has_grid), (&places, names), (x_name, y_name));
    let count = plot.series.len();
    let width = marks::share_of_bars(BOTTOM - TOP, names.len(), count);
    for (index, series) in plot.series.iter().enumerate() {
        let place = |point: &(f64, f64)| {
            (frame.across(values.share(point.1)), frame.up(1.0 - places.share(point.0)))
        };
        let points: Vec<(f64, f64)> = series.points.iter().map(place).collect();
        let zero = frame.across(values.share(0.0));
        let bars = Bars { count, zero, width, are_lying: true };
        Pen::new(index, series).bars(out, &points, bars);
        hints(out, series, &points);
    }
    Ok(frame)
}

/// What a pointer over a value shows.
fn hints(out: &mut String, series: &Series, points: &[(f64, f64)]) {
    for ((x, y), value) in points.iter().zip(&series.points) {
        let name = escape(&format!("{}: {}", series.label(), number(value.1)));
        let _ = writeln!(
            out,
            "<circle class=\"hint\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"><title>{name}</title></circle>"
        );
    }
}

fn plot(settings: &Settings<'_>, table: &Table) -> Result<Plot, String> {
    let column = |asked: Option<&str>, usual: usize, key: &str| match asked {
        Some(name) => table.columns.iter().position(|column| column == name).ok_or_else(|| {
            let known = table.columns.join(", ");
            format!("@chart: {key}={name:?} is not a column of the query; it has {known}")
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
            format!("@chart: {column} is {text:?}, which is not a number; select numbers for y")
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
            None => {
                let points = vec![(place, height)];
                found.push(Series { name, points, look: Dataset::default() });
            }
        }
    }
    if found.len() > SERIES_MAX {
        return Err(format!("@chart: {} series; select {SERIES_MAX} at most", found.len()));
    }
    let names: Vec<&str> = found.iter().map(|series| series.name.as_str()).collect();
    let looks = look::datasets(settings.datasets, &names)?;
    for (series, look) in found.iter_mut().zip(looks) {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        series.look = look;
    }
    let (x_name, y_name) = (table.columns[x].clone(), table.columns[y].clone());
    Ok(Plot { series: found, labels: (!numeric).then_some(labels), x_name, y_name })
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Integer(_) | Value::Real(_))
}
