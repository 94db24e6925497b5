//! Which driver serves, and why? Found by trying, logged once.

use highwater_sys::Capabilities;

use super::config::TransportChoice;

/// A kind of driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Uring,
    Epoll,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Uring => "uring",
            Kind::Epoll => "epoll",
        }
    }
}

/// The driver chosen, and the reason.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) kind: Kind,
    pub(crate) reason: String,
}

/// Chooses a driver.
///
/// # Errors
/// The driver that was requested by name does not work here; says why, and what to request instead.
pub(crate) fn choose(wanted: TransportChoice) -> Result<Chosen, String> {
    decide(wanted, &highwater_sys::probe())
}

fn decide(wanted: TransportChoice, capabilities: &Capabilities) -> Result<Chosen, String> {
    match (wanted, &capabilities.uring) {
        (TransportChoice::Epoll, _) => {
            Ok(Chosen { kind: Kind::Epoll, reason: "asked for by --transport".into() })
        }
        (TransportChoice::Uring, Ok(())) => {
            Ok(Chosen { kind: Kind::Uring, reason: "asked for by --transport".into() })
        }
        (TransportChoice::Uring, Err(reason)) => Err(format!(
            "--transport uring does not work here: {reason}; use --transport auto or epoll"
        )),
        (TransportChoice::Auto, Ok(())) => {
            Ok(Chosen { kind: Kind::Uring, reason: "io_uring works here".into() })
        }
        (TransportChoice::Auto, Err(reason)) => {
            Ok(Chosen { kind: Kind::Epoll, reason: reason.clone() })
        }
    }
}
