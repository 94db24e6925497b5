//! How do a chart's series and axes look, according to its `datasets` and `options`? Pure.
//!
//! Both are JSON with the names of Chart.js, as far as a picture without a script has them: labels, colours, a second
//! axis, names of axes, bars that lie. A name that is not known is an error: it would be ignored without a word.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How one series looks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Dataset {
    pub(super) label: Option<String>,
    border_color: Option<String>,
    background_color: Option<String>,
    border_width: Option<f64>,
    border_dash: Option<Vec<f64>>,
    /// Whether the area below a line is filled.
    pub(super) fill: Option<bool>,
    #[serde(rename = "yAxisID")]
    pub(super) axis: Axis,
}

/// The axis that a series belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum Axis {
    #[default]
    #[serde(rename = "y")]
    First,
    #[serde(rename = "y1")]
    Second,
}

/// How the chart as a whole looks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Options {
    index_axis: IndexAxis,
    plugins: Plugins,
    pub(super) scales: Scales,
    /// A picture always has the width of its page, at its own ratio.
    #[serde(rename = "responsive")]
    _responsive: Option<bool>,
    #[serde(rename = "maintainAspectRatio")]
    _maintain_aspect_ratio: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum IndexAxis {
    #[default]
    X,
    Y,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Plugins {
    legend: Shown,
    title: Title,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Shown {
    display: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Title {
    display: Option<bool>,
    text: Option<String>,
}

impl Title {
    fn shown(&self) -> Option<&str> {
        self.text.as_deref().filter(|_| self.display != Some(false))
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Scales {
    pub(super) x: ScaleOptions,
    pub(super) y: ScaleOptions,
    pub(super) y1: ScaleOptions,
}

/// How one axis looks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct ScaleOptions {
    #[serde(rename = "type")]
    kind: Option<ScaleKind>,
    position: Option<Position>,
    title: Title,
    grid: Grid,
    begin_at_zero: Option<bool>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScaleKind {
    Linear,
    Category,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Position {
    Left,
    Right,
    Bottom,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Grid {
    display: Option<bool>,
    draw_on_chart_area: Option<bool>,
}

impl Dataset {
    /// The colour of its line, or of its bars.
    pub(super) fn colour(&self) -> Option<&str> {
        self.border_color.as_deref().or(self.background_color.as_deref())
    }

    /// The colour of the area below its line, or within its bars.
    pub(super) fn ground(&self) -> Option<&str> {
        self.background_color.as_deref().or(self.border_color.as_deref())
    }

    pub(super) fn width(&self) -> f64 {
        self.border_width.unwrap_or(2.0)
    }

    pub(super) fn dash(&self) -> Option<String> {
        let lengths = self.border_dash.as_ref()?;
        Some(lengths.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))
    }

    fn check(&self) -> Result<(), String> {
        for colour in [&self.border_color, &self.background_color].into_iter().flatten() {
            check_colour(colour)?;
        }
        let lengths = self.border_dash.iter().flatten().chain(&self.border_width);
        if lengths.copied().any(|length| !(0.0..=100.0).contains(&length)) {
            return Err("borderWidth and borderDash are 0 to 100".to_owned());
        }
        Ok(())
    }
}

/// Colours that a browser knows without loading anything: `#27ae60`, `rgb(39, 174, 96)`, `green`.
fn check_colour(colour: &str) -> Result<(), String> {
    let is_hex = |digits: &str| {
        matches!(digits.len(), 3 | 4 | 6 | 8) && digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let is_function = |text: &str| {
        let inside = ["rgb(", "rgba(", "hsl(", "hsla("].iter().find_map(|f| text.strip_prefix(f));
        let is_plain = |c: char| c.is_ascii_digit() || ".,% /".contains(c);
        inside
            .and_then(|rest| rest.strip_suffix(')'))
            .is_some_and(|rest| rest.chars().all(is_plain))
    };
    let is_name = !colour.is_empty() && colour.bytes().all(|byte| byte.is_ascii_alphabetic());
    match colour.strip_prefix('#').map_or(is_name || is_function(colour), is_hex) {
        true => Ok(()),
        false => Err(format!("{colour:?} is not a colour; write one such as \"#27ae60\"")),
    }
}

/// What `datasets` says of each series of `names`: an object by the series' names, or a list in their order.
///
/// # Errors
/// It is not JSON, has a name that is not known, or names a series that the query does not have.
pub(super) fn datasets(text: Option<&str>, names: &[&str]) -> Result<Vec<Dataset>, String> {
    let mut all = vec![Dataset::default(); names.len()];
    let Some(text) = text else { return Ok(all) };
    let wrong = |what: String| format!("@chart: datasets: {what}");
    let has = || format!("the query has {}", names.join(", "));
    let given: Vec<(usize, Dataset)> = match read::<Value>(text).map_err(wrong)? {
        Value::Array(_) => {
            read::<Vec<Dataset>>(text).map_err(wrong)?.into_iter().enumerate().collect()
        }
        _ => {
            let by_name: BTreeMap<String, Dataset> = read(text).map_err(wrong)?;
            let place = |(name, dataset): (String, Dataset)| {
                let at = names.iter().position(|known| *known == name);
                let at = at.ok_or_else(|| wrong(format!("{name:?} is not a series; {}", has())));
                at.map(|at| (at, dataset))
            };
            by_name.into_iter().map(place).collect::<Result<_, _>>()?
        }
    };
    for (at, dataset) in given {
        dataset.check().map_err(wrong)?;
        let slot = all.get_mut(at);
        *slot.ok_or_else(|| wrong(format!("there are more than series; {}", has())))? = dataset;
    }
    Ok(all)
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl Options {
    /// # Errors
    /// It is not JSON, has a name that is not known, or asks for what no chart can be.
    pub(super) fn read(text: Option<&str>) -> Result<Options, String> {
        let Some(text) = text else { return Ok(Options::default()) };
        let wrong = |what: String| format!("@chart: options: {what}");
        let options: Options = read(text).map_err(wrong)?;
        let Scales { x, y, y1 } = &options.scales;
        let stands = |scale: &ScaleOptions, may: &[Position]| {
            scale.position.is_none_or(|position| may.contains(&position))
        };
        if !(stands(x, &[Position::Bottom])
            && stands(y, &[Position::Left])
            && stands(y1, &[Position::Right]))
        {
            return Err(wrong("x stands at the bottom, y at the left, y1 at the right".to_owned()));
        }
        for scale in [x, y, y1] {
            if scale.min.zip(scale.max).is_some_and(|(min, max)| min >= max) {
                return Err(wrong("an axis has a min that is not below its max".to_owned()));
            }
        }
        let values = if options.is_horizontal() { x } else { y };
        if values.kind == Some(ScaleKind::Category) || y1.kind == Some(ScaleKind::Category) {
            return Err(wrong("values have type \"linear\"; remove \"category\"".to_owned()));
        }
        Ok(options)
    }

    /// Whether bars lie.
    pub(super) fn is_horizontal(&self) -> bool {
        self.index_axis == IndexAxis::Y
    }

    /// Whether there is a legend, with this many series.
    pub(super) fn has_legend(&self, series: usize) -> bool {
        self.plugins.legend.display.unwrap_or(series > 1)
    }

    pub(super) fn title(&self) -> Option<&str> {
        self.plugins.title.shown()
    }
}

impl ScaleOptions {
    pub(super) fn name(&self) -> Option<&str> {
        self.title.shown()
    }

    /// Whether its lines go through the plot.
    pub(super) fn has_grid(&self, usual: bool) -> bool {
        self.grid.display != Some(false) && self.grid.draw_on_chart_area.unwrap_or(usual)
    }

    pub(super) fn begins_at_zero(&self) -> bool {
        self.begin_at_zero.unwrap_or(true)
    }
}
