//! Shows the screen until the user quits.
//!
//! Owns the terminal: raw mode and the alternate screen are left again however this ends, by a key,
//! a signal, an error or a panic.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use highwater::server::{Signal, Signals};
use highwater_sys::clock;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::screen::{self, Palette};
use super::state::{Command, State};
use super::watch::{Answer, Server};

/// How long a key, a signal or an answer may wait until it is seen.
const TURN: Duration = Duration::from_millis(50);

/// How often the screen is drawn although nothing happened: it shows times that pass.
const DRAW_AGAIN: Duration = Duration::from_millis(500);

/// What a shell adds to the number of a signal that ended a program.
const BY_SIGNAL: u8 = 128;

/// Shows the server until a key or a signal ends it.
#[expect(clippy::print_stderr, reason = "this is how a command complains")]
pub(crate) fn run(server: Server, interval: Duration) -> ExitCode {
    let url = server.shown();
    // Before anything is started that has to be stopped in good order.
    let begun = Signals::catch().and_then(|signals| Ok((signals, server.watch(interval)?)));
    let ended = begun.and_then(|(signals, answers)| {
        // From here on a panic of any thread restores the terminal first.
        let mut terminal = ratatui::try_init()?;
        let ended = watch(&mut terminal, &mut State::new(url), &answers, &signals);
        ratatui::try_restore()?;
        ended
    });
    match ended {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(signal)) => ExitCode::from(BY_SIGNAL + number(signal)),
        Err(error) => {
            eprintln!("highwater top: the terminal: {error}; --once needs none");
            ExitCode::FAILURE
        }
    }
}

fn watch(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    answers: &Receiver<Answer>,
    signals: &Signals,
) -> io::Result<Option<Signal>> {
    let palette = Palette::of(std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()));
    let mut drawn = None;
    loop {
        let mut has_news = false;
        loop {
            match answers.try_recv() {
                Ok(Answer { at, result }) => {
                    state.answered(at, result);
                    has_news = true;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other("the thread that asks has ended"));
                }
            }
        }
        let now = clock::monotonic();
        if has_news || drawn.is_none_or(|drawn| now - drawn >= DRAW_AGAIN) {
            terminal.draw(|frame| screen::draw(frame, state, &palette, now))?;
            drawn = Some(now);
        }
        if event::poll(TURN)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match pressed(key) {
                    Pressed::Quit => return Ok(None),
                    Pressed::Command(command) => state.command(command),
                    Pressed::Other => {}
                },
                _ => {}
            }
            drawn = None;
        }
        if let Some(signal) = signals.wait_timeout(Duration::ZERO)? {
            return Ok(Some(signal));
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Pressed {
    Quit,
    Command(Command),
    Other,
}

fn pressed(key: KeyEvent) -> Pressed {
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if with_control => Pressed::Quit,
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Pressed::Quit,
        KeyCode::Char('p' | 'P' | ' ') => Pressed::Command(Command::Pause),
        KeyCode::Tab => Pressed::Command(Command::NextOrder),
        KeyCode::Up | KeyCode::Char('k') => Pressed::Command(Command::Up),
        KeyCode::Down | KeyCode::Char('j') => Pressed::Command(Command::Down),
        KeyCode::Home => Pressed::Command(Command::First),
        _ => Pressed::Other,
    }
}

fn number(signal: Signal) -> u8 {
    match signal {
        Signal::HangUp => 1,
        Signal::Interrupt => 2,
        Signal::Quit => 3,
        Signal::Terminate => 15,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the keys do what the last line of the screen says.
    #[test]
    fn keys() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        for (key, expected) in [
            (key(KeyCode::Char('q')), Pressed::Quit),
            (key(KeyCode::Esc), Pressed::Quit),
            (control('c'), Pressed::Quit),
            (key(KeyCode::Char('c')), Pressed::Other),
            (key(KeyCode::Char('p')), Pressed::Command(Command::Pause)),
            (key(KeyCode::Tab), Pressed::Command(Command::NextOrder)),
            (key(KeyCode::Up), Pressed::Command(Command::Up)),
            (key(KeyCode::Down), Pressed::Command(Command::Down)),
            (key(KeyCode::Home), Pressed::Command(Command::First)),
            (key(KeyCode::F(1)), Pressed::Other),
        ] {
            assert_eq!(pressed(key), expected, "{key:?}");
        }
    }
}
