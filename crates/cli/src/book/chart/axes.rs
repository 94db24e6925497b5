//! The axes of a chart, with their lines, labels and names. Pure.

use std::fmt::Write;

use super::super::text::escape;
use super::scale::{Scale, number};

pub(super) const WIDTH: f64 = 760.0;
pub(super) const HEIGHT: f64 = 410.0;
pub(super) const TOP: f64 = 44.0;
pub(super) const BOTTOM: f64 = 296.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 744.0;
/// The left edge of a plot whose names stand there is as far in as its longest name needs, but not further than this.
const LEFT_MAX: f64 = 300.0;
/// Room for the numbers of a second axis.
const SECOND_AXIS: f64 = 52.0;
/// The width of a letter, about.
const LETTER: f64 = 6.6;
/// Labels under the plot, at most.
const LABELS_MAX: usize = 12;
/// What stands below the plot, from its edge: the x axis's name. Slanted labels reach as far.
const NAME_BELOW: f64 = 62.0;
/// Labels longer than this are slanted.
const LABEL_LENGTH_MAX: usize = 8;

/// The edges of the plot within the picture.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
}

impl Frame {
    pub(super) fn new(has_second_axis: bool) -> Frame {
        Frame { left: LEFT, right: if has_second_axis { RIGHT - SECOND_AXIS } else { RIGHT } }
    }

    /// With room for names at the left.
    pub(super) fn with_names(names: &[String]) -> Frame {
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let left = (longest as f64 * LETTER + 20.0).clamp(LEFT, LEFT_MAX);
        Frame { left, right: RIGHT }
    }

    pub(super) fn across(&self, share: f64) -> f64 {
        self.left + share * (self.right - self.left)
    }

    pub(super) fn up(&self, share: f64) -> f64 {
        BOTTOM - share * (BOTTOM - TOP)
    }
}

/// The axis of values at the left.
pub(super) fn y_axis(out: &mut String, frame: Frame, scale: &Scale, name: &str, has_grid: bool) {
    let left = frame.left;
    for value in scale.lines() {
        let y = frame.up(scale.share(value));
        if has_grid {
            grid(out, frame, y);
        }
        label(out, "y", left - 8.0, y + 4.0, &number(value));
    }
    let _ =
        writeln!(out, "<text class=\"axis\" x=\"8\" y=\"{}\">{}</text>", TOP - 10.0, escape(name));
}

/// The second axis of values, at the right.
pub(super) fn y1_axis(out: &mut String, frame: Frame, scale: &Scale, name: &str, has_grid: bool) {
    let right = frame.right;
    for value in scale.lines() {
        let y = frame.up(scale.share(value));
        if has_grid {
            grid(out, frame, y);
        }
        label(out, "y1", right + 8.0, y + 4.0, &number(value));
    }
    label(out, "axis end", RIGHT, TOP - 10.0, name);
}

/// The axis of places at the bottom: `labels`, or else numbers.
pub(super) fn x_axis(
    out: &mut String,
    frame: Frame,
    scale: &Scale,
    labels: Option<&[String]>,
    name: &str,
) {
    let labels: Vec<(f64, String)> = match labels {
        Some(labels) => {
            labels.iter().enumerate().map(|(at, label)| (at as f64, label.clone())).collect()
        }
        None => scale.lines().into_iter().map(|value| (value, number(value))).collect(),
    };
    let every = labels.len().div_ceil(LABELS_MAX).max(1);
    let slanted = labels.len() > 4
        && labels.iter().any(|(_, label)| label.chars().count() > LABEL_LENGTH_MAX);
    for (value, label) in labels.iter().step_by(every) {
        let x = frame.across(scale.share(*value));
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
        "<line class=\"base\" x1=\"{}\" x2=\"{}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\"/>\
         <text class=\"axis end\" x=\"{}\" y=\"{}\">{}</text>",
        frame.left,
        frame.right,
        frame.right,
        BOTTOM + NAME_BELOW,
        escape(name)
    );
}

/// The axes of bars that lie: names at the left, values at the bottom.
pub(super) fn lying(
    out: &mut String,
    frame: Frame,
    (values, has_grid): (&Scale, bool),
    (places, names): (&Scale, &[String]),
    (x_name, y_name): (&str, &str),
) {
    for value in values.lines() {
        let x = frame.across(values.share(value));
        if has_grid {
            line(out, "grid", x);
        }
        label(out, "x", x, BOTTOM + 18.0, &number(value));
    }
    for (at, name) in names.iter().enumerate() {
        // The first name at the top, as one reads.
        let y = frame.up(1.0 - places.share(at as f64));
        label(out, "y", frame.left - 8.0, y + 4.0, name);
    }
    let zero = frame.across(values.share(0.0));
    line(out, "base", zero);
    label(out, "axis end", frame.right, BOTTOM + 40.0, x_name);
    let name = escape(y_name);
    let _ = writeln!(out, "<text class=\"axis\" x=\"8\" y=\"{}\">{name}</text>", TOP - 10.0);
}

fn label(out: &mut String, class: &str, x: f64, y: f64, text: &str) {
    let text = escape(text);
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}

/// A line of the grid at height `y`; its label follows.
fn grid(out: &mut String, Frame { left, right }: Frame, y: f64) {
    let _ = write!(
        out,
        "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
    );
}

/// An upright line at `x`.
fn line(out: &mut String, class: &str, x: f64) {
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>"
    );
}
