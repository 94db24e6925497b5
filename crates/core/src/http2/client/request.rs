//! The requests of a connection: how they begin, and what follows their fields.

use super::super::hpack::Indexing;
use super::super::{ErrorCode, encode};
use super::Connection;
use super::stream::Stream;

impl Connection {
    /// Begins a request, and returns its stream. `fields` adds its fields, the pseudo-fields first and all names in
    /// lower case, which is not checked. Content that does not fit the windows is kept until they are opened.
    ///
    /// # Panics
    /// If there is no [`room`](Connection::room).
    pub fn begin(
        &mut self,
        is_head: bool,
        content: &[u8],
        fields: impl FnOnce(&mut dyn FnMut(&[u8], &[u8], Indexing)),
    ) -> u32 {
        let mut stream = self.begin_stream(is_head, content.is_empty(), fields);
        stream.finish(content.is_empty());
        stream.send(content, &mut self.window, self.frame_max, &mut self.output);
        let id = stream.id;
        self.streams.push(stream);
        id
    }

    /// The same for a request whose content comes bit by bit: by [`send`](Connection::send), until it is
    /// [`finished`](Connection::finish).
    ///
    /// ```
    /// use highwater_core::http2::client::{Config, Connection};
    /// use highwater_core::http2::hpack::Indexing;
    ///
    /// let mut client = Connection::new(Config::default());
    /// let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "h"), (":path", "/")];
    /// let stream = client.open(|add| {
    ///     fields.iter().for_each(|(name, value)| add(name.as_bytes(), value.as_bytes(), Indexing::Incremental));
    /// });
    /// assert!(client.send(stream, b"Hello, "));
    /// assert!(client.send(stream, b"World!"));
    /// assert!(client.finish(stream, &[("checksum", "1c291ca3")]));
    /// assert!(!client.send(stream, b"?"), "it is finished");
    /// ```
    ///
    /// # Panics
    /// If there is no [`room`](Connection::room).
    pub fn open(&mut self, fields: impl FnOnce(&mut dyn FnMut(&[u8], &[u8], Indexing))) -> u32 {
        let stream = self.begin_stream(false, false, fields);
        let id = stream.id;
        self.streams.push(stream);
        id
    }

    /// Asks for a tunnel: a request with `CONNECT` and `:protocol` (RFC 8441 §4). After an answer of 2xx the content in both
    /// directions is the other protocol's; once the server ends its direction, so does the client.
    ///
    /// # Panics
    /// If there is no [`room`](Connection::room).
    pub fn connect(&mut self, fields: impl FnOnce(&mut dyn FnMut(&[u8], &[u8], Indexing))) -> u32 {
        let mut stream = self.begin_stream(false, false, fields);
        stream.is_tunnel = true;
        let id = stream.id;
        self.streams.push(stream);
        id
    }

    fn begin_stream(
        &mut self,
        is_head: bool,
        is_last: bool,
        fields: impl FnOnce(&mut dyn FnMut(&[u8], &[u8], Indexing)),
    ) -> Stream {
        assert!(self.room() > 0, "the caller asks first");
        let id = self.next_id;
        self.next_id += 2;
        let Connection { fields_out, output, .. } = self;
        encode::headers(id, is_last, self.frame_max, output, |block| {
            fields_out.begin(block);
            fields(&mut |name, value, indexing| fields_out.field(name, value, indexing, block));
        });
        Stream::new(id, self.initial_window, is_head)
    }

    /// Adds content to a request that is not finished. Returns false, and does nothing, if its stream has ended or is finished.
    pub fn send(&mut self, id: u32, content: &[u8]) -> bool {
        let Some(index) = self.find(id).ok().filter(|&index| self.streams[index].takes_content())
        else {
            return false;
        };
        let stream = &mut self.streams[index];
        stream.send(content, &mut self.window, self.frame_max, &mut self.output);
        true
    }

    /// Ends a request behind its content, with `trailers` if there are any; their names are in lower case, which is not
    /// checked. Returns false as [`send`](Connection::send) does.
    pub fn finish(&mut self, id: u32, trailers: &[(&str, &str)]) -> bool {
        let Some(index) = self.find(id).ok().filter(|&index| self.streams[index].takes_content())
        else {
            return false;
        };
        let stream = &mut self.streams[index];
        let owned =
            |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        stream.trailers = trailers.iter().map(owned).collect();
        stream.finish(false);
        self.send_end(index);
        true
    }

    /// How much content of a request waits for a window.
    pub fn unsent(&self, id: u32) -> usize {
        self.find(id).map_or(0, |index| self.streams[index].unsent())
    }

    /// Gives up a stream; nothing more is reported of it.
    pub fn cancel(&mut self, id: u32) {
        if let Ok(index) = self.find(id) {
            self.streams.remove(index);
            encode::reset(id, ErrorCode::CANCEL, &mut self.output);
        }
    }

    /// Sends what the windows allow on each stream.
    pub(super) fn send_all(&mut self) {
        for index in 0..self.streams.len() {
            self.send_rest(index);
        }
    }

    /// Sends what the windows allow on a stream.
    pub(super) fn send_rest(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        stream.send_rest(&mut self.window, self.frame_max, &mut self.output);
        self.send_end(index);
    }

    /// Sends the trailers of a request whose content is sent, or only its end. Neither needs a window.
    fn send_end(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        if !stream.owes_end() {
            return;
        }
        stream.finish(true);
        let (id, trailers) = (stream.id, core::mem::take(&mut stream.trailers));
        let Connection { fields_out, output, .. } = self;
        if trailers.is_empty() {
            return encode::data(id, &[], true, output);
        }
        encode::headers(id, true, self.frame_max, output, |block| {
            fields_out.begin(block);
            for (name, value) in &trailers {
                fields_out.field(name, value, Indexing::usual(name), block);
            }
        });
    }
}
