//! Which driver serves, and why? Found by trying, logged once.

use highwater_sys::Capabilities;

use super::config::TransportChoice;

/// A kind of driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
    Uring {
        /// Workers that find no memory for a ring of their own serve over epoll.
        or_epoll: bool,
    },
    #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
    Epoll,
    Portable,
}

impl Kind {
    /// One that works wherever this program does.
    #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
    pub(crate) const SAFE: Kind = Kind::Epoll;
    /// One that works wherever this program does.
    #[cfg(not(all(target_os = "linux", not(highwater_portable_only))))]
    pub(crate) const SAFE: Kind = Kind::Portable;

    pub(crate) const fn name(self) -> &'static str {
        match self {
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Kind::Uring { .. } => "uring",
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Kind::Epoll => "epoll",
            Kind::Portable => "portable",
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

#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
fn decide(wanted: TransportChoice, capabilities: &Capabilities) -> Result<Chosen, String> {
    let asked_for = "asked for by --transport".to_owned();
    let (kind, reason) = match (wanted, &capabilities.uring) {
        (TransportChoice::Portable, _) => {
            (Kind::Portable, format!("{asked_for}; for development: slower than uring and epoll"))
        }
        (TransportChoice::Epoll, _) => (Kind::Epoll, asked_for),
        (TransportChoice::Uring, Ok(())) => (Kind::Uring { or_epoll: false }, asked_for),
        (TransportChoice::Uring, Err(reason)) => {
            return Err(format!(
                "--transport uring does not work here: {reason}; use --transport auto or epoll"
            ));
        }
        (TransportChoice::Auto, Ok(())) => {
            (Kind::Uring { or_epoll: true }, "io_uring works here".to_owned())
        }
        (TransportChoice::Auto, Err(reason)) => (Kind::Epoll, reason.clone()),
    };
    Ok(Chosen { kind, reason })
}

#[cfg(not(all(target_os = "linux", not(highwater_portable_only))))]
fn decide(wanted: TransportChoice, capabilities: &Capabilities) -> Result<Chosen, String> {
    let because = capabilities.uring.as_ref().err().map_or("", String::as_str);
    match wanted {
        TransportChoice::Auto | TransportChoice::Portable => Ok(Chosen {
            kind: Kind::Portable,
            reason: format!("for development: {because}, and so does epoll"),
        }),
        TransportChoice::Uring | TransportChoice::Epoll => Err(format!(
            "--transport {wanted} does not work here: {because}, and so does epoll; use \
             --transport auto or portable"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the portable driver is taken only where it is asked for or where there is no other, and says that it is
    /// for development; a wish that cannot be met names what to ask for instead.
    #[test]
    fn portable_is_no_default() {
        let works = Capabilities { uring: Ok(()), kernel: String::new() };
        let refused = Capabilities { uring: Err("EPERM".into()), ..works.clone() };
        for capabilities in [&works, &refused] {
            let portable = decide(TransportChoice::Portable, capabilities).expect("it works");
            assert_eq!(portable.kind, Kind::Portable);
            assert!(portable.reason.contains("for development"), "{}", portable.reason);
        }
        let complaint = decide(TransportChoice::Uring, &refused).expect_err("it is refused");
        assert!(complaint.contains("EPERM; use --transport auto or"), "{complaint}");
        let automatic =
            |capabilities| decide(TransportChoice::Auto, capabilities).map(|it| it.kind);
        assert_eq!(automatic(&refused), Ok(Kind::SAFE));
        let is_only_one = Kind::SAFE == Kind::Portable;
        assert_eq!(automatic(&works) == Ok(Kind::Portable), is_only_one);
    }
}
