//! The screen, drawn into a buffer of characters.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::figures::tests::{page, sample};
use super::super::sample::Sample;
use super::super::state::Command;
use super::super::state::tests::at;
use super::*;

/// What a terminal of this size shows at second `now`, a line a row.
fn shown(state: &State, width: u16, height: u16, now: u64) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it cannot fail");
    let palette = Palette::of(false);
    terminal.draw(|frame| draw(frame, state, &palette, at(now))).expect("it cannot fail");
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

/// A server that has been seen three times.
fn busy() -> State {
    let mut state = State::new("http://127.0.0.1:9090/metrics".to_owned());
    for (second, requests) in [(1, 1000.0), (2, 8500.0), (3, 23_500.0)] {
        state
            .answered(at(second), Ok(sample(100.0, second as f64, requests, 10.0 * second as f64)));
    }
    state
}

/// Purpose: an ordinary terminal shows all of it, with units, to the letter.
#[test]
fn an_ordinary_terminal() {
    let expected = "\
Highwater 1.2.3  http://127.0.0.1:9090/metrics  up 3 s                      live
Requests     15 k /s                                                          ▄█
Goodput      13.5 k /s                                                        ▄█
Latency      p50 778 µs   p90 1 ms     p99 9.1 ms                             ██
Queue delay  p50 750 µs   p90 950 µs   p99 995 µs                             ██
In flight    3, limit 12, 7 open                                             ███
Refused      10 /s                                                            ██
Demand       1.50 of capacity, needs another instance                        ███
Workers  busy share of the last second  Refused  by layer and reason
worker 0  █████▌                  25 %  kernel: reset            10 /s        30
worker 1  ██████████████████████ 100 %
Endpoints  busiest first, latency of the last interval
                                    requests         p50         p99       total
/a                                   15 k /s      778 µs      9.1 ms      23.5 k





Server
gate         ebpf: ebpf works here; limiter gradient
transport    uring: io_uring works here
process      13.7 MiB of memory, 1.00 cores, 12 of 1024 descriptors
q quit  p pause  Tab busiest first  ↑↓ scroll";
    assert_eq!(shown(&busy(), 80, 24, 3).join("\n"), expected);
}

/// Purpose: on a small terminal the figures come first.
#[test]
fn a_small_terminal() {
    let expected = "\
Highwater 1.2.3  http://127.0.0.1:9 live
Requests     15 k /s
Goodput      13.5 k /s
Latency      p50 778 µs p99 9.1 ms
Queue delay  p50 750 µs p99 995 µs
In flight    3, limit 12, 7 open
Refused      10 /s
Demand       1.50, scale out

q quit  p pause  Tab busiest first  ↑↓ s";
    assert_eq!(shown(&busy(), 40, 10, 3).join("\n"), expected);
}

/// Purpose: no size of a terminal panics, whatever is known.
#[test]
fn every_size_is_drawn() {
    let mut gone = busy();
    gone.answered(at(4), Err("refused".to_owned()));
    let mut scrolled = busy();
    scrolled.command(Command::Down);
    let mut silent = State::new("u".to_owned());
    silent.answered(at(1), Err("refused".to_owned()));
    for state in [busy(), gone, scrolled, silent, State::new(String::new())] {
        for width in (0..=100).step_by(9).chain([39, 40, 80, 200]) {
            for height in (0..=26).chain([39, 40, 80]) {
                shown(&state, width, height, 5);
            }
        }
    }
}

/// Purpose: a server that is gone is said to be, since when and why, over the last figures; one that
/// came back is said to have restarted.
#[test]
fn a_server_that_is_gone() {
    let mut state = busy();
    state.answered(at(10), Err("u: connection refused".to_owned()));
    let rows = shown(&state, 80, 24, 75);
    assert!(rows[0].ends_with(" gone"), "{}", rows[0]);
    assert_eq!(rows[1], " GONE for 1 min 5 s: u: connection refused");
    assert!(rows[2].starts_with("Requests     15 k /s"), "{}", rows[2]);
    state.answered(at(80), Ok(sample(179.0, 1.0, 5.0, 0.0)));
    let rows = shown(&state, 80, 24, 85);
    assert!(rows[0].ends_with(" restarted 5 s ago"), "{}", rows[0]);
    assert_eq!(
        rows[1].trim_end(),
        "Requests     – /s                                                           ▄█"
    );
    let mut silent = State::new("u".to_owned());
    silent.answered(at(10), Err("not a Highwater server".to_owned()));
    let rows = shown(&silent, 80, 24, 10);
    assert_eq!(rows[1..3], [" GONE for 0 s: not a Highwater server", "no figures yet"]);
}

/// Purpose: a paused screen says so and how to resume, and still shows that a server is gone.
#[test]
fn a_pause_is_seen() {
    let mut state = busy();
    state.command(Command::Pause);
    state.answered(at(10), Err("refused".to_owned()));
    let rows = shown(&state, 80, 24, 12);
    assert!(rows[0].ends_with(" paused"), "{}", rows[0]);
    assert_eq!(rows[1], " GONE for 2 s: refused");
    assert!(rows[23].starts_with("q quit  p resume "), "{}", rows[23]);
}

/// Purpose: nothing that a server calls its endpoints reaches the terminal as a command.
#[test]
fn a_wicked_name_is_harmless() {
    let text = page(100.0, 1.0, 5.0, 0.0).replace("\"/a\"", "\"/a\u{1b}[31m\\n\"");
    let mut state = State::new("u".to_owned());
    state.answered(at(1), Ok(Sample::read(&text, at(1)).expect("a page")));
    let rows = shown(&state, 80, 24, 1).join("\n");
    assert!(rows.contains("/a\u{fffd}[31m\u{fffd}") && !rows.contains('\u{1b}'), "{rows}");
}

/// Purpose: more workers than rows are summed up, and none is left out of the sum.
#[test]
fn many_workers_are_summed_up() {
    let mut text = page(100.0, 1.0, 5.0, 0.0);
    for worker in 2..10 {
        text.push_str(&format!("highwater_worker_busy_ratio{{worker=\"{worker}\"}} 0.5\n"));
    }
    let mut state = State::new("u".to_owned());
    state.answered(at(1), Ok(Sample::read(&text, at(1)).expect("a page")));
    let rows = shown(&state, 80, 24, 1).join("\n");
    assert!(rows.contains("more, 50 % on average"), "{rows}");
}
