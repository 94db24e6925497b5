//! Which sources are to be held back, and by how much?

/// The most sources that are held back at once. Each attempt is compared with each of them, and a program has 4096
/// instructions at most.
pub const HELD_MAX: usize = 64;

/// Where attempts to connect come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An IPv4 address.
    Ipv4(u32),
    /// The first 64 bits of an IPv6 address.
    Ipv6Network(u64),
}

/// A source of which only a part of the attempts passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// The source.
    pub source: Source,
    /// The part that passes, 0 to 1.
    pub passes: f32,
}
