//! What does the screen look like?
//!
//! Pure: what is known in, cells out. Every size of terminal is drawn, however small. Colours add to
//! words and shapes, and never stand for them.

mod bars;
mod layout;

use highwater_core::time::Instant;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use self::layout::{Plan, Wanted};
use super::figures::Figures;
use super::histogram::Quantiles;
use super::print::{demand, printable, rows};
use super::sample::Need;
use super::state::{Link, Seen, Series, State};
use super::units::{self, UNKNOWN};

/// The styles of what is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Palette {
    label: Style,
    title: Style,
    value: Style,
    history: Style,
    alarm: Style,
}

impl Palette {
    /// The styles; `without_color` if the user asks for none (`NO_COLOR`).
    pub(crate) fn of(without_color: bool) -> Palette {
        let dim = Style::new().add_modifier(Modifier::DIM);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let plain = Palette {
            label: dim,
            title: bold,
            value: bold,
            history: Style::new(),
            alarm: bold.add_modifier(Modifier::REVERSED),
        };
        match without_color {
            true => plain,
            // Of the terminal's own sixteen, which fit its background.
            false => Palette {
                history: Style::new().fg(Color::Cyan),
                alarm: plain.alarm.fg(Color::Red),
                ..plain
            },
        }
    }
}

/// From this width on, rows have room for words and a history.
const WIDE: u16 = 64;

/// Columns of a row's name, and of its value if a history follows.
const NAME: usize = 13;
const VALUE: usize = 42;

/// Draws `state` as it is at `now`.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State, palette: &Palette, now: Instant) {
    let seen = state.shown();
    let figures = seen.figures.as_ref();
    let wanted = Wanted {
        banner: matches!(state.link(), Link::Gone { .. }),
        workers: figures.map_or(0, |figures| figures.sample.workers.len()),
        refusals: figures.map_or(0, |figures| figures.refusals().len()),
    };
    let plan = layout::plan(frame.area(), wanted);
    let screen = &mut Screen { frame, palette, plan, now };
    screen.head(state);
    screen.banner(state.link());
    screen.keys(state);
    match figures {
        Some(figures) => {
            screen.vitals(seen, figures);
            screen.workers(figures);
            screen.refusals(figures);
            screen.endpoints(state);
            screen.server(figures);
        }
        None => screen.text(plan.vitals, "no figures yet", palette.label),
    }
}

struct Screen<'a, 'b> {
    frame: &'a mut Frame<'b>,
    palette: &'a Palette,
    plan: Plan,
    now: Instant,
}

impl Screen<'_, '_> {
    fn line(&mut self, area: Rect, line: Line<'_>) {
        self.frame.render_widget(line, area);
    }

    fn text(&mut self, area: Rect, text: &str, style: Style) {
        self.line(Rect { height: area.height.min(1), ..area }, Line::styled(text, style));
    }

    /// A title, and what is left below it.
    fn titled(&mut self, area: Rect, title: &str, hint: &str) -> Rect {
        if area.is_empty() {
            return area;
        }
        let title = Span::styled(title.to_owned(), self.palette.title);
        let hint = Span::styled(format!("  {hint}"), self.palette.label);
        self.line(Rect { height: 1, ..area }, Line::from(vec![title, hint]));
        Rect { y: area.y + 1, height: area.height - 1, ..area }
    }

    fn head(&mut self, state: &State) {
        let seen = state.shown();
        let status = match (state.link(), state.is_paused()) {
            (_, true) => "paused".to_owned(),
            (Link::Asking, _) => "asking".to_owned(),
            (Link::Gone { .. }, _) => "gone".to_owned(),
            (Link::Up, _) => match seen.restarted {
                Some(at) => format!("restarted {} ago", units::passed(self.now - at)),
                None => "live".to_owned(),
            },
        };
        let version = seen.figures.as_ref().map(|figures| &*figures.sample.version);
        let uptime = seen.figures.as_ref().and_then(|figures| figures.sample.uptime);
        let uptime = uptime.map_or_else(String::new, |seconds| {
            let time = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
            format!("  up {}", units::passed(time))
        });
        let area = self.plan.head;
        let status_width = u16::try_from(status.chars().count()).unwrap_or(u16::MAX);
        let [left, right] = split(area, area.width.saturating_sub(status_width + 1));
        let name = format!("Highwater {}", printable(version.unwrap_or_default()));
        let line = Line::from(vec![
            Span::styled(name.trim_end().to_owned(), self.palette.title),
            Span::raw(format!("  {}", state.url)),
            Span::styled(uptime, self.palette.label),
        ]);
        self.line(left, line);
        self.frame.render_widget(Paragraph::new(status).right_aligned(), right);
    }

    fn banner(&mut self, link: &Link) {
        if let Link::Gone { since, why } = link {
            let passed = units::passed(self.now.saturating_since(*since));
            let text = format!(" GONE for {passed}: {} ", printable(why));
            self.text(self.plan.banner, &text, self.palette.alarm);
        }
    }

    fn keys(&mut self, state: &State) {
        let pause = if state.is_paused() { "p resume" } else { "p pause" };
        let text = format!("q quit  {pause}  Tab {}  ↑↓ scroll", state.order.name());
        self.text(self.plan.keys, &text, self.palette.label);
    }

    fn vitals(&mut self, seen: &Seen, figures: &Figures) {
        let area = self.plan.vitals;
        let is_wide = area.width >= WIDE;
        let rows = usize::from(self.plan.vital_rows);
        let all = vitals(seen, figures, is_wide);
        for (at, (name, value, series, is_alarm)) in all.into_iter().enumerate() {
            let y = area.y + u16::try_from(at * rows).unwrap_or(u16::MAX);
            if y >= area.bottom() {
                return;
            }
            let style = if is_alarm { self.palette.alarm } else { self.palette.value };
            let line = Line::from(vec![
                Span::styled(format!("{name:<NAME$}"), self.palette.label),
                Span::styled(value, style),
            ]);
            let row = Rect { y, height: 1, ..area };
            let before = NAME + VALUE;
            let columns = usize::from(area.width).saturating_sub(before);
            let [left, _] = split(row, if is_wide { before as u16 } else { area.width });
            self.line(left, line);
            if is_wide {
                for (below, bar) in bars::columns(series.iter(), columns, rows).iter().enumerate() {
                    let y = y + below as u16;
                    let place =
                        Rect { x: area.x + before as u16, y, width: columns as u16, height: 1 };
                    self.text(place.intersection(area), bar, self.palette.history);
                }
            }
        }
    }

    fn workers(&mut self, figures: &Figures) {
        let area = self.titled(self.plan.workers, "Workers", "busy share of the last second");
        let workers = &figures.sample.workers;
        let width = usize::from(area.width).saturating_sub(16).min(40);
        for (at, (name, ratio)) in workers.iter().enumerate() {
            let y = area.y + u16::try_from(at).unwrap_or(u16::MAX);
            if y >= area.bottom() {
                return;
            }
            let is_last = y + 1 == area.bottom() && at + 1 < workers.len();
            if is_last {
                let rest = &workers[at..];
                let mean = rest.iter().map(|(_, ratio)| ratio).sum::<f64>() / rest.len() as f64;
                let text = format!("{} more, {} on average", rest.len(), units::percent(mean));
                return self.text(Rect { y, height: 1, ..area }, &text, self.palette.label);
            }
            let line = Line::from(vec![
                Span::styled(format!("worker {:<3}", printable(name)), self.palette.label),
                Span::styled(bars::share(*ratio, width), self.palette.history),
                Span::styled(format!("{:>6}", units::percent(*ratio)), self.palette.value),
            ]);
            self.line(Rect { y, height: 1, ..area }, line);
        }
    }

    fn refusals(&mut self, figures: &Figures) {
        let shares = figures.shares().unwrap_or_else(|| "by layer and reason".to_owned());
        let area = self.titled(self.plan.refusals, "Refused", &shares);
        let refusals = figures.refusals();
        if refusals.is_empty() {
            return self.text(area, "nothing", self.palette.label);
        }
        for ((layer, reason, rate, total), y) in refusals.into_iter().zip(area.y..area.bottom()) {
            let what = format!("{layer}: {reason}");
            let [left, right] = split(Rect { y, height: 1, ..area }, area.width.saturating_sub(22));
            self.text(left, &printable(&what), self.palette.label);
            let text = format!("{:>9} /s {:>9}", units::rate(rate), units::count(total));
            self.text(right, &text, self.palette.value);
        }
    }

    fn endpoints(&mut self, state: &State) {
        let order = format!("{}, latency of the last interval", state.order.name());
        let area = self.titled(self.plan.endpoints, "Endpoints", &order);
        if area.is_empty() {
            return;
        }
        let endpoints = state.endpoints();
        if endpoints.is_empty() {
            return self.text(area, "no request yet", self.palette.label);
        }
        let is_wide = area.width >= WIDE;
        let row = |endpoint: &&super::figures::Endpoint| {
            let [p50, p99] = [endpoint.latency.p50, endpoint.latency.p99].map(units::quantile);
            let rate = format!("{} /s", units::rate(endpoint.rate));
            let total = units::count(endpoint.total);
            let numbers = if is_wide { vec![rate, p50, p99, total] } else { vec![rate, p99] };
            let numbers = numbers.into_iter().map(right);
            Row::new([Cell::from(printable(&endpoint.name))].into_iter().chain(numbers))
        };
        let heads =
            if is_wide { vec!["requests", "p50", "p99", "total"] } else { vec!["requests", "p99"] };
        let numbers = heads.len();
        let heads = [Cell::from("")].into_iter().chain(heads.into_iter().map(right));
        let widths = [Constraint::Min(8)].into_iter().chain(vec![Constraint::Length(11); numbers]);
        let rows = endpoints.iter().skip(state.above).map(row);
        let table = Table::new(rows, widths).header(Row::new(heads).style(self.palette.label));
        self.frame.render_widget(table, area);
    }

    fn server(&mut self, figures: &Figures) {
        let area = self.titled(self.plan.server, "Server", "");
        let mut lines: Vec<(&str, String)> = rows(figures)
            .into_iter()
            .filter(|(name, _)| ["gate", "transport"].contains(name))
            .collect();
        if let Some((_, gate)) = lines.iter_mut().find(|(name, _)| *name == "gate") {
            let limiter = figures.sample.limiter.as_deref().unwrap_or(UNKNOWN);
            *gate = format!("{gate}; limiter {}", printable(limiter));
        }
        lines.push(("process", process(figures)));
        for ((name, value), y) in lines.into_iter().zip(area.y..area.bottom()) {
            let line = Line::from(vec![
                Span::styled(format!("{name:<NAME$}"), self.palette.label),
                Span::raw(value),
            ]);
            self.line(Rect { y, height: 1, ..area }, line);
        }
    }
}

/// Each figure: its name, its value, its history, and whether it is alarming.
fn vitals<'a>(
    seen: &'a Seen,
    figures: &Figures,
    is_wide: bool,
) -> [(&'static str, String, &'a Series, bool); layout::VITALS as usize] {
    let connections = figures.sample.connections;
    let limit = connections
        .limit
        .map_or("no limit".to_owned(), |limit| format!("limit {}", units::count(limit)));
    let (in_flight, open) = (units::rate(connections.in_flight), units::count(connections.open));
    let per_second = |rate| format!("{} /s", units::rate(rate));
    let needs = figures.sample.need() == Some(Need::Now);
    let demand = match (is_wide, figures.sample.demand_ratio) {
        (true, _) => demand(figures),
        (false, ratio) => {
            let ratio = ratio.map_or_else(|| UNKNOWN.to_owned(), |ratio| format!("{ratio:.2}"));
            format!("{ratio}{}", if needs { ", scale out" } else { "" })
        }
    };
    [
        ("Requests", per_second(figures.requests), &seen.requests, false),
        ("Goodput", per_second(figures.good), &seen.good, false),
        ("Latency", latency(figures.latency, is_wide), &seen.p99, false),
        ("Queue delay", latency(figures.queue_delay, is_wide), &seen.queue_p99, false),
        ("In flight", format!("{in_flight}, {limit}, {open} open"), &seen.in_flight, false),
        ("Refused", per_second(figures.refused), &seen.refused, false),
        ("Demand", demand, &seen.demand, needs),
    ]
}

fn latency(of: Quantiles, is_wide: bool) -> String {
    let [p50, p90, p99] = [of.p50, of.p90, of.p99].map(units::quantile);
    match is_wide {
        true => format!("p50 {p50:<8} p90 {p90:<8} p99 {p99}"),
        // In the same order; the middle one is the first to be missed.
        false => format!("p50 {p50} p99 {p99}"),
    }
}

fn process(figures: &Figures) -> String {
    let process = figures.sample.process;
    let memory = process.memory_bytes.map_or_else(|| UNKNOWN.to_owned(), units::bytes);
    let cpu = figures.cpu.map_or_else(|| UNKNOWN.to_owned(), |cores| format!("{cores:.2}"));
    let [open, most] = [process.descriptors, process.descriptors_max].map(units::rate);
    format!("{memory} of memory, {cpu} cores, {open} of {most} descriptors")
}

fn right(text: impl Into<String>) -> Cell<'static> {
    Cell::from(Line::from(text.into()).right_aligned())
}

/// The first `width` columns of `area`, and the rest.
fn split(area: Rect, width: u16) -> [Rect; 2] {
    let width = width.min(area.width);
    [Rect { width, ..area }, Rect { x: area.x + width, width: area.width - width, ..area }]
}

#[cfg(test)]
mod tests;
