//! Numbers as bars of characters.
//!
//! Pure: numbers and a size in, rows of text out, from above to below.

/// Eighths of a cell, from below.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Eighths of a cell, from the left.
const WIDTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// The newest `width` values, each a column up to `rows` high, scaled to the greatest of them. Where
/// nothing is known, nothing stands; a value above zero is never invisible.
pub(crate) fn columns<'a>(
    values: impl DoubleEndedIterator<Item = &'a Option<f64>>,
    width: usize,
    rows: usize,
) -> Vec<String> {
    let mut newest: Vec<Option<f64>> = values.rev().take(width).copied().collect();
    newest.reverse();
    let greatest = newest.iter().flatten().copied().fold(0.0, f64::max);
    let eighths = |value: &Option<f64>| {
        let value = value.filter(|value| *value > 0.0 && greatest > 0.0)?;
        Some(((value / greatest * (rows * 8) as f64).round() as usize).max(1))
    };
    let heights: Vec<usize> = newest.iter().map(|value| eighths(value).unwrap_or(0)).collect();
    let blank = " ".repeat(width - newest.len());
    let row = |row: usize| -> String {
        let below = (rows - 1 - row) * 8;
        heights.iter().map(|height| HEIGHTS[height.saturating_sub(below).min(8)]).collect()
    };
    (0..rows).map(|at| blank.clone() + &row(at)).collect()
}

/// A share, 0 to 1, as a bar of `width` cells.
pub(crate) fn share(share: f64, width: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    (0..width).map(|cell| WIDTHS[eighths.saturating_sub(cell * 8).min(8)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: history is drawn to scale, the newest at the right, with gaps where nobody answered.
    #[test]
    fn histories_are_drawn() {
        let values = [Some(9.0), Some(0.0), Some(1.0), None, Some(4.0), Some(8.0)];
        assert_eq!(columns(values.iter(), 5, 1), [" ▁ ▄█"]);
        assert_eq!(columns(values.iter(), 5, 2), ["    █", " ▂ ██"]);
        assert_eq!(columns(values.iter(), 8, 1), ["  █ ▁ ▄▇"]);
        assert_eq!(columns([].iter(), 3, 1), ["   "]);
        assert_eq!(columns([Some(0.001), Some(1e9)].iter(), 2, 1), ["▁█"]);
        assert_eq!(columns(values.iter(), 0, 1), [""]);
    }

    /// Purpose: a share fills its part of the bar, and never more than the bar.
    #[test]
    fn shares_are_drawn() {
        for (value, bar) in
            [(0.0, "    "), (0.5, "██  "), (0.53, "██▏ "), (1.0, "████"), (7.0, "████")]
        {
            assert_eq!(share(value, 4), bar);
        }
        assert_eq!(share(f64::NAN, 2), "  ");
    }
}
