//! Throughput over time and latency by percentile, as lines of block characters.

use std::time::Duration;

use highwater_core::histogram::Histogram;

use super::units::time;

/// Columns of the throughput, at most.
const COLUMNS: usize = 60;
/// Rows of the throughput.
const ROWS: usize = 5;
/// Columns of the longest bar of a latency.
const BAR: usize = 40;
/// Eighths of a character, upwards and to the right.
const UP: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const RIGHT: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Draws `counts`, one for each `step`, as requests per second over time.
pub(crate) fn throughput(counts: &[u64], step: Duration) -> String {
    let group = counts.len().div_ceil(COLUMNS).max(1);
    let seconds = step.as_secs_f64() * group as f64;
    // The rest is not a whole group: its rate would be wrong.
    let groups = counts.chunks_exact(group);
    let rates: Vec<f64> = groups.map(|group| group.iter().sum::<u64>() as f64 / seconds).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    if rates.len() < 2 || most <= 0.0 {
        return String::new();
    }
    let column = time(step * group as u32);
    let mut out = format!("\n  2xx per second, {column} per column\n");
    for row in (0..ROWS).rev() {
        let label = if row + 1 == ROWS { format!("{most:.0}") } else { String::new() };
        let columns: String = rates
            .iter()
            .map(|rate| {
                let eighths = (rate / most * (ROWS * 8) as f64).round() as usize;
                UP[eighths.saturating_sub(row * 8).min(8)]
            })
            .collect();
        out += &format!("  {label:>10} │{}\n", columns.trim_end());
    }
    let end = time(Duration::from_secs_f64(seconds * rates.len() as f64));
    out + &format!(
        "  {:>10} └{}\n  {:>10}  0{end:>width$}\n",
        0,
        "─".repeat(rates.len()),
        "",
        width = (rates.len() - 1).max(end.len() + 1)
    )
}

/// Draws latencies at `quantiles` on a logarithmic scale; `shown` writes one.
pub(crate) fn latency(
    histogram: &Histogram,
    quantiles: &[(&str, f64)],
    shown: impl Fn(f64) -> String,
) -> String {
    let (Some(least), Some(most)) = (histogram.min(), histogram.max()) else {
        return String::new();
    };
    let scale = |nanos: u64| ((nanos.max(1)) as f64).log2();
    let (low, high) = (scale(least), scale(most).max(scale(least) + 1.0));
    let mut out = format!(
        "\n  latency by percentile, from {} to {}, logarithmic\n",
        shown(least as f64 / 1e3),
        shown(most as f64 / 1e3)
    );
    for (name, quantile) in quantiles {
        let nanos = histogram.quantile(*quantile).unwrap_or(0);
        let eighths =
            ((scale(nanos) - low) / (high - low) * (BAR * 8) as f64).round().max(1.0) as usize;
        let mut bar = "█".repeat(eighths / 8);
        if !eighths.is_multiple_of(8) {
            bar.push(RIGHT[eighths % 8]);
        }
        out += &format!("  {name:>10} │{bar} {}\n", shown(nanos as f64 / 1e3));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the highest column is full, half of it is half as high, nothing is nothing; a long run is cut into
    /// groups of the same length, with the rates they had.
    #[test]
    fn columns() {
        let drawn = throughput(&[0, 50, 100], Duration::from_millis(500));
        let rows: Vec<&str> = drawn.lines().collect();
        assert_eq!(rows[2], "         200 │  █");
        assert_eq!(rows[4], "             │ ▄█");
        assert_eq!(rows[6], "             │ ██");
        assert_eq!(rows[7], "           0 └───");
        assert!(rows[8].ends_with("1.50 s"), "{drawn}");
        let long = throughput(&[7; 150], Duration::from_secs(1));
        assert!(long.contains("3.00 s per column"), "{long}");
        assert!(long.lines().any(|row| row.contains(&"█".repeat(50))), "{long}");
        assert_eq!(throughput(&[0, 0, 0], Duration::from_secs(1)), "");
        assert_eq!(throughput(&[5], Duration::from_secs(1)), "");
    }

    /// Purpose: bars grow with the latency, the maximum's is the longest, and one value is drawn as well.
    #[test]
    fn bars() {
        let mut histogram = Histogram::new();
        assert_eq!(latency(&histogram, &[("p50", 0.5)], |_| String::new()), "");
        histogram.record_n(1_000, 90);
        histogram.record_n(16_000, 9);
        histogram.record(1_000_000);
        let drawn = latency(&histogram, &[("p50", 0.5), ("p99", 0.99), ("max", 1.0)], |micros| {
            format!("{micros:.0} us")
        });
        let bars: Vec<usize> =
            drawn.lines().skip(2).map(|line| line.matches('█').count()).collect();
        assert_eq!(bars, [0, 16, 40], "{drawn}");
        assert!(drawn.contains("max │") && drawn.contains("1000 us"), "{drawn}");
        let mut one = Histogram::new();
        one.record(5);
        assert_eq!(latency(&one, &[("p50", 0.5)], |_| String::new()).lines().count(), 3);
    }
}
