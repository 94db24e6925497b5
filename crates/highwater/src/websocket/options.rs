//! What may a client do on a WebSocket, and how long does the server wait for it?

use std::time::Duration;

use highwater_core::websocket::{Limits, Timing};

/// Bytes of messages that wait for the handler, or to be sent, unless an endpoint says otherwise.
const BUFFER_MAX: usize = 64 * 1024;

/// The options of an endpoint.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) limits: Limits,
    pub(super) timing: Timing,
    pub(super) receive_buffer_max: usize,
    pub(super) send_buffer_max: usize,
    /// In the order of the server's preference.
    pub(super) protocols: Vec<String>,
    pub(super) origins: Origins,
    #[cfg(feature = "websocket-deflate")]
    pub(super) deflate: Option<super::deflate::Deflate>,
}

/// Which web pages may connect.
#[derive(Clone, Debug)]
pub(super) enum Origins {
    /// Those of this server: the origin has the request's `Host`.
    Same,
    /// Those of this server, and these.
    Listed(Vec<String>),
    Any,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            limits: Limits::default(),
            timing: Timing::default(),
            receive_buffer_max: BUFFER_MAX,
            send_buffer_max: BUFFER_MAX,
            protocols: Vec::new(),
            origins: Origins::Same,
            #[cfg(feature = "websocket-deflate")]
            deflate: None,
        }
    }
}

/// The methods that set options, for each type that has them.
macro_rules! option_methods {
    () => {
        /// Accepts messages of up to `bytes` bytes, in one frame or several; a client that sends a larger one is closed
        /// with 1009. 1 MiB unless this is set. Memory is used for received bytes, not for announced ones.
        #[must_use]
        pub fn message_max(mut self, bytes: usize) -> Self {
            self.options.limits.message_max = bytes;
            self
        }

        /// Accepts frames with up to `bytes` bytes of content; a client that sends a larger one is closed with 1009.
        /// 1 MiB unless this is set.
        #[must_use]
        pub fn frame_max(mut self, bytes: usize) -> Self {
            self.options.limits.frame_max = bytes;
            self
        }

        /// Reads no further while messages of `bytes` bytes or more wait for the handler, so that a slow handler slows
        /// its client down. 64 KiB unless this is set.
        #[must_use]
        pub fn receive_buffer_max(mut self, bytes: usize) -> Self {
            self.options.receive_buffer_max = bytes;
            self
        }

        /// Makes senders wait while `bytes` bytes or more are to be sent, so that a slow client slows its handler down. 64
        /// KiB unless this is set. The connection may hold as many bytes again, and the kernel more. A client that takes
        /// nothing at all for the server's `write-timeout` is reset.
        #[must_use]
        pub fn send_buffer_max(mut self, bytes: usize) -> Self {
            self.options.send_buffer_max = bytes;
            self
        }

        /// Pings a client that has sent nothing for `silence`. 30 seconds unless this is set;
        /// `Duration::MAX` for never.
        #[must_use]
        pub fn ping_after(mut self, silence: std::time::Duration) -> Self {
            self.options.timing.ping_after = silence;
            self
        }

        /// Gives a client up that has sent nothing for `timeout` after a ping. 20 seconds unless this is set.
        #[must_use]
        pub fn pong_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.timing.pong_within = timeout;
            self
        }

        /// Closes a connection, with 1001, on which no message was sent or received for `timeout`; it may take up to
        /// twice as long. Pings do not count. Never unless this is set.
        #[must_use]
        pub fn idle_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.timing.idle_max = timeout;
            self
        }

        /// Closes a connection, with 1008, on which a message has begun and nothing more of it arrives for `timeout`, or,
        /// after `timeout`, less than 240 bytes per second on average. 60 seconds unless this is set; use `Duration::MAX`
        /// for clients that send the parts of a message over a long time.
        #[must_use]
        pub fn message_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.timing.message_within = timeout;
            self
        }

        /// Waits for a client's close frame for `timeout` after the server's; then the connection is reset. 5 seconds
        /// unless this is set.
        #[must_use]
        pub fn close_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.timing.close_within = timeout;
            self
        }

        /// Supports these protocols (`Sec-WebSocket-Protocol`): the first one that the client also offers is chosen. A
        /// client that offers none of them, or none at all, is accepted without one.
        #[must_use]
        pub fn protocols(mut self, protocols: impl IntoIterator<Item = impl Into<String>>) -> Self {
            self.options.protocols = protocols.into_iter().map(Into::into).collect();
            self
        }

        /// Compresses messages for clients that offer it (`permessage-deflate`), and accepts compressed ones. Not unless this
        /// is set. A request whose field `Sec-WebSocket-Extensions` is not a list of extensions is then answered 400.
        #[cfg(feature = "websocket-deflate")]
        #[cfg_attr(docsrs, doc(cfg(feature = "websocket-deflate")))]
        #[must_use]
        pub fn deflate(mut self, deflate: $crate::websocket::Deflate) -> Self {
            self.options.deflate = Some(deflate);
            self
        }

        /// Lets pages of these origins connect, besides those of this server: `https://app.example.com`. A browser sends
        /// the origin of the page, and its cookies with it, so that without a check any page could act for its visitors.
        /// Pages of other origins are answered 403. Clients that send no `Origin` are not browsers, and are accepted.
        #[must_use]
        pub fn origins(mut self, origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
            let origins = origins.into_iter().map(Into::into).collect();
            self.options.origins = $crate::websocket::options::Origins::Listed(origins);
            self
        }

        /// Lets pages of any origin connect: for endpoints that need no login.
        #[must_use]
        pub fn any_origin(mut self) -> Self {
            self.options.origins = $crate::websocket::options::Origins::Any;
            self
        }
    };
}

pub(super) use option_methods;

/// How long a handler may go on after its client has gone.
///
/// Less: what handlers do behind their loop is cut off; more: handlers that never look at their socket stay longer. A guess.
pub(super) const CLEANUP_MAX: Duration = Duration::from_secs(30);
