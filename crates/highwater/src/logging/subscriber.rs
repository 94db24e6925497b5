//! Which events become lines?
//!
//! Those of level INFO and above, from any crate. It does not support spans: an application that wants them
//! brings a subscriber of its own.

use std::backtrace::Backtrace;
use std::io::Write;
use std::panic::PanicHookInfo;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::LogFormat;
use super::line::{dropped, line, panicked};
use super::writer::Writer;

/// Writes events as lines.
pub(super) struct Lines {
    format: LogFormat,
    /// Milliseconds since the epoch.
    now: fn() -> u64,
    writer: Writer,
}

impl Lines {
    pub(super) fn new(format: LogFormat, now: fn() -> u64, out: Box<dyn Write + Send>) -> Self {
        let writer = Writer::new(out, Box::new(move |count| dropped(format, now(), count)));
        Lines { format, now, writer }
    }

    pub(super) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Writes the message of a panic on this thread, and how many of its place were suppressed before.
    pub(super) fn panicked(
        &self,
        panic: &PanicHookInfo<'_>,
        suppressed: Option<u32>,
        backtrace: Option<&Backtrace>,
    ) {
        let line = panicked(self.format, (self.now)(), (panic, suppressed), backtrace);
        self.writer.write(line);
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        self.writer.write(line(self.format, (self.now)(), event));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // No span is enabled; this is for code that does not check.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
pub(super) mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines of the events of `emit`, at 2026-03-03T03:45:06.789Z.
    pub(in super::super) fn written(format: LogFormat, emit: impl FnOnce()) -> String {
        let memory = Memory::default();
        let lines = Lines::new(format, || 1_772_509_506_789, Box::new(memory.clone()));
        let dispatch = tracing::Dispatch::new(lines);
        tracing::dispatcher::with_default(&dispatch, emit);
        let lines = dispatch.downcast_ref::<Lines>().expect("it is one");
        lines.writer().flush(Duration::MAX);
        let bytes = memory.0.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("lines are text")
    }

    /// Purpose: events for developers are left out, and so are spans; an event inside of one is not.
    #[test]
    fn events_of_info_and_above_become_lines() {
        let lines = written(LogFormat::Text, || {
            let span = tracing::error_span!("a span", field = 1);
            let _entered = span.enter();
            tracing::error!("an error");
            tracing::info!("an info");
            tracing::debug!("for developers");
            tracing::trace!("for them, too");
        });
        assert_eq!(
            lines,
            "2026-03-03T03:45:06.789Z ERROR an error\n2026-03-03T03:45:06.789Z INFO  an info\n"
        );
    }
}
