//! The content of the plot: bars, lines, marks, and the legend that names them. Pure.

use std::fmt::Write;

use super::super::text::escape;
use super::Series;
use super::axes::{BOTTOM, Frame};

/// Readable on white and on black.
const COLOURS: [&str; 6] = ["#2f7fc1", "#d9534f", "#2a9d5c", "#c78100", "#8e5bb5", "#5c7080"];
const DASHES: [&str; 4] = ["", "7 4", "2 3", "9 3 2 3"];
/// The first row of the legend, from the plot's lower edge, and the distance of rows.
const LEGEND_BELOW: f64 = 82.0;
const LEGEND_ROW: f64 = 14.0;
/// The part of a place that its bars take, and the part of a bar's width that is seen.
const BARS_SHARE: f64 = 0.8;
const BAR_SHARE: f64 = 0.96;

/// Where bars stand or lie.
#[derive(Clone, Copy)]
pub(super) struct Bars {
    /// The number of series that share a place.
    pub(super) count: usize,
    /// Where they begin.
    pub(super) zero: f64,
    /// What one series may take of a place.
    pub(super) width: f64,
    /// Whether they go to the right and left instead of up and down.
    pub(super) are_lying: bool,
}

/// How one series is drawn.
pub(super) struct Pen {
    index: usize,
    colour: String,
    ground: String,
    dash: String,
    width: f64,
}

impl Pen {
    pub(super) fn new(index: usize, series: &Series) -> Pen {
        let (look, usual) = (&series.look, COLOURS[index % COLOURS.len()]);
        let dash = DASHES[index / COLOURS.len() % DASHES.len()];
        Pen {
            index,
            colour: escape(look.colour().unwrap_or(usual)),
            ground: escape(look.ground().unwrap_or(usual)),
            dash: look.dash().unwrap_or_else(|| dash.to_owned()),
            width: look.width(),
        }
    }

    /// Bars from zero to each of `points`.
    pub(super) fn bars(&self, out: &mut String, points: &[(f64, f64)], bars: Bars) {
        let shift = (self.index as f64 - bars.count as f64 / 2.0) * bars.width;
        let thickness = bars.width.max(1.0) * BAR_SHARE;
        // A lying bar is a standing one whose directions are exchanged.
        let turned = |(x, y): (f64, f64)| if bars.are_lying { (y, x) } else { (x, y) };
        for point in points {
            let (place, value) = turned(*point);
            let (x, y) = turned((place + shift, value.min(bars.zero)));
            let (width, height) = turned((thickness, (value - bars.zero).abs()));
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\"/>",
                self.ground
            );
        }
    }

    pub(super) fn line(&self, out: &mut String, points: &[(f64, f64)]) {
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-dasharray=\"{}\"/>",
            path(points),
            self.colour,
            self.width,
            self.dash
        );
    }

    /// The area between a line and `zero`.
    pub(super) fn area(&self, out: &mut String, points: &[(f64, f64)], zero: f64) {
        let (Some((from, _)), Some((to, _))) = (points.first(), points.last()) else { return };
        let _ = writeln!(
            out,
            "<polygon points=\"{from:.1},{zero:.1} {} {to:.1},{zero:.1}\" fill=\"{}\" fill-opacity=\"0.2\"/>",
            path(points),
            self.ground
        );
    }

    pub(super) fn marks(&self, out: &mut String, points: &[(f64, f64)]) {
        for (x, y) in points {
            let _ = writeln!(out, "{}", self.mark(*x, *y));
        }
    }

    /// A mark of a shape of its own for each series.
    fn mark(&self, x: f64, y: f64) -> String {
        let colour = &self.colour;
        match self.index % 4 {
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
}

fn path(points: &[(f64, f64)]) -> String {
    let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
    points.collect::<Vec<_>>().join(" ")
}

/// What each of `count` series may take of the `extent` of a plot with this many places.
pub(super) fn share_of_bars(extent: f64, places: usize, count: usize) -> f64 {
    extent / places.max(1) as f64 * BARS_SHARE / count as f64
}

/// Each series' name, with its mark.
pub(super) fn legend(out: &mut String, frame: Frame, are_bars: bool, series: &[Series]) {
    let column = (frame.right - frame.left) / 4.0;
    for (index, series) in series.iter().enumerate() {
        let x = frame.left + (index % 4) as f64 * column;
        let y = BOTTOM + LEGEND_BELOW + (index / 4) as f64 * LEGEND_ROW;
        let pen = Pen::new(index, series);
        let sign = match are_bars {
            true => format!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"9\" height=\"9\" fill=\"{}\"/>",
                y - 8.0,
                pen.ground
            ),
            false => pen.mark(x + 4.0, y - 4.0),
        };
        let _ = writeln!(
            out,
            "{sign}<text class=\"legend\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            x + 14.0,
            escape(series.label())
        );
    }
}
