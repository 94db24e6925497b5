//! A terminal of 80 by 24 with `highwater top` in it, by `script` of util-linux.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use highwater_skip::skip;

use highwater_testkit::{PATIENCE, program, within};

const ROWS: usize = 24;
const COLUMNS: usize = 80;

/// What is run inside: says who it is, sets the size, and becomes the command.
const INSIDE: &str =
    "echo pid=$$; stty rows 24 cols 80; exec \"$TOP\" top \"$TOP_URL\" --interval 200ms";

/// A terminal with `top` in it. Ends with the test.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs `top URL`; `None` where there is no `script`, which is said.
    pub(crate) fn start(url: &str) -> Option<Terminal> {
        let started = program("script")
            .args(["--quiet", "--flush", "--return", "--command"])
            .args([INSIDE, "/dev/null"])
            .env("TOP", env!("CARGO_BIN_EXE_highwater"))
            .env("TOP_URL", url)
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let has_script = Command::new("script").arg("--version").output();
        let (mut child, _) = match (started, has_script) {
            (Ok(child), Ok(version)) => (child, version),
            (Err(error), _) => {
                skip("setpriv", error);
                return None;
            }
            (_, Err(error)) => {
                skip("script", error);
                return None;
            }
        };
        let mut from = child.stdout.take().expect("it was asked for");
        let written = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&written);
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut piece) {
                all.lock().unwrap_or_else(PoisonError::into_inner).extend(&piece[..length]);
            }
        });
        let keys = child.stdin.take().expect("it was asked for");
        Some(Terminal { child, keys, written })
    }

    /// Everything that was written to the terminal.
    pub(crate) fn written(&self) -> String {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).into_owned()
    }

    /// What the screen shows now.
    pub(crate) fn screen(&self) -> String {
        screen(&self.written())
    }

    /// Waits until the screen satisfies `condition`.
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let is_so = within(PATIENCE, || condition(&self.screen()));
        assert!(is_so, "never {what}:\n{}", self.screen());
    }

    pub(crate) fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).expect("the terminal is open");
    }

    /// Sends `top` a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let written = self.written();
        let pid = written.split("pid=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let pid = pid.expect("it says so first");
        let status = Command::new("/bin/sh").args(["-c", &format!("kill -{name} {pid}")]).status();
        assert!(status.expect("there is a shell").success());
    }

    /// Waits for its end; its exit status.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let mut status = None;
        let ended = within(PATIENCE, || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        assert!(ended, "it did not end within {PATIENCE:?}:\n{}", self.screen());
        // What it wrote last is read by then.
        within(PATIENCE, || self.written().contains(LEAVE));
        status.and_then(|status| status.code())
    }
}

/// Enters and leaves the screen beside the shell's own.
pub(crate) const ENTER: &str = "\u{1b}[?1049h";
pub(crate) const LEAVE: &str = "\u{1b}[?1049l";

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a terminal shows after this was written to it: characters, and where the cursor is put.
fn screen(written: &str) -> String {
    let mut cells = vec![[' '; COLUMNS]; ROWS];
    let (mut row, mut column) = (0, 0);
    let begun = written.rfind(ENTER).map_or("", |at| &written[at..]);
    let mut rest = begun.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            if row < ROWS && column < COLUMNS && !c.is_control() {
                cells[row][column] = c;
                column += 1;
            }
            continue;
        }
        if rest.next() != Some('[') {
            continue;
        }
        let mut parameters = String::new();
        let command = rest.by_ref().find(|c| {
            let is_end = c.is_ascii_alphabetic();
            parameters.extend((!is_end).then_some(*c));
            is_end
        });
        match command {
            Some('H') => {
                let mut places =
                    parameters.split(';').map(|place| place.parse().unwrap_or(1_usize));
                row = places.next().unwrap_or(1) - 1;
                column = places.next().unwrap_or(1) - 1;
            }
            Some('J') => cells = vec![[' '; COLUMNS]; ROWS],
            _ => {}
        }
    }
    let rows: Vec<String> = cells.iter().map(|row| row.iter().collect()).collect();
    rows.join("\n")
}
