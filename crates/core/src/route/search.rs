//! The search for a path's route in the tree: forward as long as something matches, else back to the next choice.
//!
//! ```text
//!  Literal ─▶ Param ─▶ Suffix ─▶ Plain ─▶ Rest ─▶ GoBack
//!     ▲                  │         │                 │
//!     └──── it matches ──┴─────────┘                 └─▶ the parent's choice behind the one that led here
//! ```

use super::{Node, NodeId, Params, ROOT, RouteId};

/// The route of `path`; the positions of its parameters are stored in `params`. Every node that the search enters is
/// reported to `on_enter`, so that a test can count them.
#[inline]
pub(super) fn search(
    nodes: &[Node],
    path: &[u8],
    params: &mut Params,
    on_enter: impl FnMut(NodeId),
) -> Option<RouteId> {
    params.count = 0;
    if path.first() != Some(&b'/') || u32::try_from(path.len()).is_err() {
        return None;
    }
    let node = &nodes[ROOT as usize];
    let mut place = Place { nodes, path, params, on_enter, at: ROOT, node, pos: 1 };
    let mut choice = Choice::Literal;
    loop {
        choice = match choice {
            Choice::Literal => {
                place.take_literals();
                match place.node.route {
                    _ if place.pos < path.len() => Choice::Param,
                    Some(route) => return Some(route),
                    // A parameter is never empty, so no other choice can match the end either.
                    None => Choice::GoBack,
                }
            }
            Choice::Param if !place.node.suffixes.is_empty() => Choice::Suffix(0),
            Choice::Suffix(next) => match place.take_suffixed(next) {
                true => Choice::Literal,
                false => Choice::Plain,
            },
            Choice::Param | Choice::Plain => match place.take_segment() {
                true => Choice::Literal,
                false => Choice::Rest,
            },
            Choice::Rest => match place.node.rest {
                Some(route) => {
                    place.params.push(place.pos, path.len() - place.pos);
                    return Some(route);
                }
                None => Choice::GoBack,
            },
            Choice::GoBack if place.at == ROOT => return None,
            Choice::GoBack => place.go_back(),
        };
    }
}

/// What a search tries next at a node.
#[derive(Clone, Copy)]
enum Choice {
    Literal,
    Param,
    /// A parameter with a suffix, from the one at this index on.
    Suffix(usize),
    /// A parameter without.
    Plain,
    Rest,
    GoBack,
}

/// How far a search has come.
struct Place<'s, F> {
    nodes: &'s [Node],
    path: &'s [u8],
    params: &'s mut Params,
    on_enter: F,
    at: NodeId,
    /// The node `at`.
    node: &'s Node,
    /// `path[..pos]` is matched.
    pos: usize,
}

impl<'s, F: FnMut(NodeId)> Place<'s, F> {
    /// The path that is not matched yet.
    #[inline]
    fn rest(&self) -> &'s [u8] {
        &self.path[self.pos..]
    }

    #[inline]
    fn go_to(&mut self, node: NodeId) {
        (self.at, self.node) = (node, &self.nodes[node as usize]);
    }

    #[inline]
    fn enter(&mut self, child: NodeId, length: usize) {
        self.go_to(child);
        self.pos += length;
        (self.on_enter)(child);
    }

    /// Follows literal children as far as their texts match.
    #[inline]
    fn take_literals(&mut self) {
        while let Some((child, length)) = self.literal_match() {
            self.enter(child, length);
        }
    }

    /// The literal child that the path continues with, and how long its text is.
    #[inline]
    fn literal_match(&self) -> Option<(NodeId, usize)> {
        let rest = self.rest();
        let child = self.node.child_beginning_with(*rest.first()?)?;
        let text = &self.nodes[child as usize].text;
        rest.starts_with(text).then_some((child, text.len()))
    }

    /// Takes the next segment as a parameter with a suffix, one of those from `next` on.
    #[inline]
    fn take_suffixed(&mut self, next: usize) -> bool {
        let rest = self.rest();
        let length = segment_length(rest);
        let Some((child, value)) = self.node.suffix_match(next, &rest[..length]) else {
            return false;
        };
        self.params.push(self.pos, value);
        self.enter(child, length);
        true
    }

    /// Takes the next segment as a parameter.
    #[inline]
    fn take_segment(&mut self) -> bool {
        let Some(child) = self.node.param else { return false };
        let length = segment_length(self.rest());
        if length == 0 {
            return false;
        }
        self.params.push(self.pos, length);
        self.enter(child, length);
        true
    }

    /// Returns to the parent, and says what comes there behind the choice that has led here.
    #[inline]
    fn go_back(&mut self) -> Choice {
        let (child, node) = (self.at, self.node);
        self.go_to(node.parent);
        if !node.text.is_empty() {
            self.pos -= node.text.len();
            return Choice::Param;
        }
        self.pos = self.params.pop();
        match self.node.suffixes.iter().position(|(_, other)| *other == child) {
            Some(index) => Choice::Suffix(index + 1),
            None => Choice::Rest,
        }
    }
}

/// Length of the text before the next `/` or the end.
#[inline]
fn segment_length(path: &[u8]) -> usize {
    path.iter().position(|&byte| byte == b'/').unwrap_or(path.len())
}
