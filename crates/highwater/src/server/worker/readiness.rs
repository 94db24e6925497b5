//! How does a worker that waits in its runtime learn that its driver has something to report?

use std::io;
use std::task::{Context, Poll};

use highwater_sys::External;

#[cfg(not(unix))]
pub(super) use elsewhere::Readiness;
#[cfg(unix)]
pub(super) use on_unix::Readiness;

/// The runtime waits for the descriptor of the driver.
#[cfg(unix)]
mod on_unix {
    use std::os::fd::OwnedFd;

    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::*;

    /// Readable when a poll of the driver may have something to do.
    pub(in crate::server::worker) struct Readiness(AsyncFd<OwnedFd>);

    impl Readiness {
        /// Inside the runtime.
        pub(in crate::server::worker) fn of(driver: &impl External) -> io::Result<Self> {
            let readiness = driver.readiness_fd().try_clone_to_owned()?;
            #[expect(
                deprecated,
                reason = "its successor is unsafe for types that lie about their \
                descriptor; OwnedFd does not"
            )]
            let readiness = AsyncFd::with_interest(readiness, Interest::READABLE)?;
            Ok(Readiness(readiness))
        }

        /// Ready once for each time that the driver became ready.
        pub(in crate::server::worker) fn poll_ready(
            &mut self,
            cx: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            self.0.poll_read_ready(cx).map_ok(|mut ready| ready.clear_ready())
        }
    }
}

/// The runtime cannot wait for the driver, so the worker looks at the driver again and again.
#[cfg(not(unix))]
mod elsewhere {
    use std::time::Duration;

    use tokio::time::{Interval, MissedTickBehavior, interval};

    use super::*;

    /// The worker looks at its driver this often. As often as a worker that waits in its driver looks at its runtime.
    const LOOK: Duration = Duration::from_millis(1);

    /// When it is time to look.
    pub(in crate::server::worker) struct Readiness(Interval);

    impl Readiness {
        /// Inside the runtime.
        pub(in crate::server::worker) fn of(_: &impl External) -> io::Result<Self> {
            let mut looks = interval(LOOK);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            Ok(Readiness(looks))
        }

        /// Ready when it is time to look.
        pub(in crate::server::worker) fn poll_ready(
            &mut self,
            cx: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            self.0.poll_tick(cx).map(|_| Ok(()))
        }
    }
}
