//! How many descriptors may this process have?

use std::io;

use crate::call::check;

/// `RLIMIT_NOFILE`: one more than the highest descriptor number this process may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// The limit in force.
    pub soft: u64,
    /// The highest soft limit that the process may set without a privilege.
    pub hard: u64,
}

/// The current limit.
///
/// # Errors
/// Whatever `getrlimit(2)` reports.
pub fn descriptors() -> io::Result<DescriptorLimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes for the duration of the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    Ok(DescriptorLimit { soft: limit.rlim_cur, hard: limit.rlim_max })
}

/// Raises the soft limit to the hard one, for the whole process, and returns the limit in force.
///
/// # Errors
/// Whatever `setrlimit(2)` reports; the limit is then what it was.
pub fn raise_descriptors() -> io::Result<DescriptorLimit> {
    let DescriptorLimit { soft, hard } = descriptors()?;
    if soft < hard {
        set_descriptors(hard, hard)?;
    }
    descriptors()
}

/// Sets the soft limit, which may be lower than before. For the whole process.
///
/// # Errors
/// `EINVAL` above the hard limit.
pub fn set_descriptors_soft(soft: u64) -> io::Result<()> {
    set_descriptors(soft, descriptors()?.hard)
}

fn set_descriptors(soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` is valid for reads for the duration of the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: after raising, nothing is left to raise, and the hard limit is untouched.
    #[test]
    fn raise_reaches_the_hard_limit() {
        let before = descriptors().unwrap();
        let after = raise_descriptors().unwrap();
        assert_eq!(after, DescriptorLimit { soft: before.hard, hard: before.hard });
    }
}
