//! Answers as tests over real sockets want them: complete, and with text for content.
#![allow(dead_code, reason = "no test file uses all of it")]

use highwater_core::http1::client::{Asked, FieldLines, Next, Reader};

/// A complete answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// As text; what is not UTF-8 is replaced.
    pub(crate) content: String,
    pub(crate) bytes: Vec<u8>,
    fields: Vec<(String, String)>,
}

impl Answer {
    /// The first value of a field, whose name is given in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// Reads the answers on one connection.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    reader: Reader,
    begun: Answer,
}

impl Answers {
    /// Takes bytes off the front of `bytes` until an answer is complete.
    ///
    /// # Panics
    /// If they are none.
    pub(crate) fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Answer> {
        let mut rest = bytes.as_slice();
        let answer = self.read(&mut rest);
        let used = bytes.len() - rest.len();
        bytes.drain(..used);
        answer
    }

    fn read(&mut self, rest: &mut &[u8]) -> Option<Answer> {
        loop {
            match self.reader.next(rest, Asked::Plain).expect("an answer is HTTP") {
                Next::Wait => return None,
                Next::Head(head) => {
                    let fields = owned(head.fields());
                    self.begun = Answer { status: head.status(), fields, ..Answer::default() };
                }
                Next::Content(piece) => self.begun.bytes.extend_from_slice(piece),
                Next::End(..) => {
                    self.begun.content = String::from_utf8_lossy(&self.begun.bytes).into_owned();
                    return Some(std::mem::take(&mut self.begun));
                }
                Next::Interim(head) => panic!("unasked: {head:?}"),
                Next::Raw(_) => unreachable!("nothing else was asked for"),
            }
        }
    }
}

fn owned(fields: FieldLines<'_>) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), text(value))).collect()
}
