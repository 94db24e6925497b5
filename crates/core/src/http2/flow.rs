//! How many bytes of content may be sent (RFC 9113 §6.9)?

use super::settings::{WINDOW_DEFAULT, WINDOW_MAX};

/// The window of a stream or a connection, in one direction. It can be below zero, after its initial size was lowered.
///
/// ```
/// use highwater_core::http2::Window;
///
/// let mut window = Window::default();
/// assert!(window.take(65_535));
/// assert_eq!(window.available(), 0);
/// assert!(!window.take(1), "the peer has sent too much");
/// assert!(window.give(100));
/// assert_eq!(window.available(), 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(i32);

impl Default for Window {
    fn default() -> Self {
        Window::new(WINDOW_DEFAULT)
    }
}

impl Window {
    /// A window of `size` bytes, at most [`WINDOW_MAX`].
    pub fn new(size: u32) -> Window {
        Window(size.min(WINDOW_MAX) as i32)
    }

    /// Bytes that may be sent.
    #[inline]
    pub fn available(self) -> u32 {
        self.0.max(0) as u32
    }

    /// Bytes are sent. False, and nothing is taken, if they exceed the window: `FLOW_CONTROL_ERROR`.
    #[inline]
    #[must_use]
    pub fn take(&mut self, bytes: u32) -> bool {
        let fits = bytes <= self.available();
        if fits {
            self.0 -= bytes as i32;
        }
        fits
    }

    /// WINDOW_UPDATE: more bytes may be sent. False if the window would exceed 2³¹−1: `FLOW_CONTROL_ERROR`.
    #[inline]
    #[must_use]
    pub fn give(&mut self, bytes: u32) -> bool {
        self.change(i64::from(bytes))
    }

    /// `SETTINGS_INITIAL_WINDOW_SIZE` has changed from `old` to `new`, while the stream is open. False as for
    /// [`give`](Window::give).
    #[must_use]
    pub fn resize(&mut self, old: u32, new: u32) -> bool {
        self.change(i64::from(new) - i64::from(old))
    }

    fn change(&mut self, by: i64) -> bool {
        let changed = i64::from(self.0) + by;
        let fits = changed <= i64::from(WINDOW_MAX);
        if fits {
            self.0 = i32::try_from(changed).unwrap_or(i32::MIN);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the bounds, and a window below zero, from which only an update leads back (RFC 9113 §6.9.2).
    #[test]
    fn bounds() {
        let mut window = Window::new(10);
        assert!(window.give(WINDOW_MAX - 10) && window.available() == WINDOW_MAX);
        assert!(!window.give(1));
        assert!(window.take(WINDOW_MAX) && !window.take(1));
        let mut window = Window::default();
        assert!(window.take(60_000) && window.resize(65_535, 16_384));
        assert_eq!((window, window.available()), (Window(-43_616), 0));
        assert!(!window.take(1) && window.take(0));
        assert!(window.give(43_617) && window.available() == 1);
        assert!(!window.resize(0, WINDOW_MAX));
    }
}
