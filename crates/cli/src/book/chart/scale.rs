//! Where does a value stand on an axis? Pure.

use super::look::ScaleOptions;

/// An axis: its ends, and the distance of its lines.
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) step: f64,
}

impl Scale {
    /// An axis of values, from zero if nothing else is asked for: the length of a bar, or the height of a line, is what
    /// one compares.
    pub(super) fn of_values(values: impl Iterator<Item = f64>, options: &ScaleOptions) -> Scale {
        let (least, most) = ends(values);
        let scale = match options.begins_at_zero() {
            true => Scale::round(least.min(0.0), most.max(0.0)),
            false => Scale::round(least, most),
        };
        let (low, high) = (options.min.unwrap_or(scale.low), options.max.unwrap_or(scale.high));
        match (options.min, options.max) {
            (None, None) => scale,
            // One end was given beyond all values.
            _ if high <= low => Scale { low, high: low + scale.step, step: scale.step },
            _ => Scale { low, high, step: step(high - low) },
        }
    }

    /// An axis that ends at its values.
    pub(super) fn tight(values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = ends(values);
        let step = step(high - low);
        if high > low {
            Scale { low, high, step }
        } else {
            Scale { low: low - step, high: high + step, step }
        }
    }

    /// An axis of `count` names, with half a place at each end.
    pub(super) fn of_places(count: usize) -> Scale {
        Scale { low: -0.5, high: count as f64 - 0.5, step: 1.0 }
    }

    /// Ends at round numbers.
    fn round(low: f64, high: f64) -> Scale {
        let step = step(high - low);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Scale { low, high: if high > low { high } else { low + step }, step }
    }

    /// 0 at the lower end, 1 at the upper; values beyond an end stand at it.
    pub(super) fn share(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    pub(super) fn lines(&self) -> Vec<f64> {
        let first = (self.low / self.step - 1e-9).ceil() as i64;
        let last = (self.high / self.step + 1e-9).floor() as i64;
        (first..=last).map(|index| index as f64 * self.step).collect()
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
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

/// Short, exact for whole numbers that are not large.
pub(super) fn number(value: f64) -> String {
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
