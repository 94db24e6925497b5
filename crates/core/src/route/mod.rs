//! Which route does a path belong to? A radix tree over path patterns.
//!
//! It knows nothing of methods, handlers or percent-encoding: a [`Router<T>`] maps a path to a `T`.
//! An HTTP framework keeps a table of methods in that `T`, so that 404, 405 and `Allow` come out of
//! one lookup.
//!
//! # Patterns
//!
//! | pattern | matches |
//! |---|---|
//! | `/users/me` | that path, byte for byte |
//! | `/users/{id}` | one segment of at least one byte in place of `{id}` |
//! | `/{name}.json`, `/v{n}` | one segment that begins and ends like that, with at least one byte between |
//! | `/static/{*rest}` | at least one byte after `/static/`, slashes included; neither `/static` nor `/static/` |
//! | `/{{x}}` | the literal path `/{x}`: a doubled brace stands for one |
//!
//! Paths are matched raw, as they arrive: `%2F` is not a separator, `/a%62` is not `/ab`, a trailing
//! slash counts and an empty segment is a segment. The caller takes the query off first. Decode the
//! values with [`percent_decode`](crate::percent::percent_decode).
//!
//! # Precedence
//! In every segment, from left to right, literal text comes before `{param}`, and `{param}` before
//! `{*rest}`. Of parameters with text beside them, the one with the longer text in front comes first, then the
//! one with the longer text behind. The order of insertion never matters. The search backtracks when a choice leads
//! nowhere: with `/a/b` and `/{x}/c`, the path `/a/c` matches the second. Different routes may name
//! the same parameter differently, but two routes that match the same paths are refused.
//!
//! # Cost
//!
//! A path that is a route itself is found in a hash table, any other one in the tree.
//! A lookup allocates nothing and does not recurse. A node determines how many segments were
//! matched to reach it, so a lookup enters each node at most once: it is never exponential. Its
//! work is at most the path's length for each node whose parent was reached. To backtrack it walks
//! up: each node knows its parent, so no stack is needed.
//!
//! Invariants: a literal child begins with a byte that none of its siblings begins with; a `{*rest}` follows literal
//! text that ends with `/`, and what follows a parameter begins at the end of its segment; patterns all begin with
//! `/`, which is the root's text.

mod literals;
mod pattern;
mod search;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use literals::Literals;
pub use pattern::{InsertError, InsertErrorKind};
use pattern::{Pattern, Piece};

/// How many parameters a pattern can have, `{*rest}` included.
pub const PARAMS_MAX: usize = 16;

/// Maps paths to values by pattern.
#[derive(Clone, Debug)]
pub struct Router<T> {
    nodes: Vec<Node>,
    /// The routes without parameters, which are in the tree, too.
    literals: Literals,
    routes: Vec<Route<T>>,
}

/// A route of one router: how many were inserted before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(u32);

impl RouteId {
    /// The id as an index: dense, from 0, in the order of insertion.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug)]
struct Route<T> {
    pattern: Box<str>,
    param_names: Box<[Box<str>]>,
    value: T,
}

/// A place in the tree: what was matched so far, and what may follow.
#[derive(Clone, Debug)]
struct Node {
    /// The literal text that leads here from the parent; empty if a parameter does.
    text: Box<[u8]>,
    /// The first byte of each literal child, in step with `children`.
    first_bytes: Vec<u8>,
    children: Vec<NodeId>,
    /// Where a `{param}` leads that takes the segment to its end.
    param: Option<NodeId>,
    /// Where a `{param}` with a suffix leads, the longest first.
    suffixes: Vec<(Box<[u8]>, NodeId)>,
    /// The route of a `{*rest}` from here.
    rest: Option<RouteId>,
    /// The route whose pattern ends here.
    route: Option<RouteId>,
    parent: NodeId,
}

type NodeId = u32;

/// The node whose text is the `/` that every pattern begins with. Its parent is itself.
const ROOT: NodeId = 0;

impl<T> Router<T> {
    /// A router without routes.
    pub fn new() -> Self {
        let nodes = Vec::from([Node::new(b"/", ROOT)]);
        Router { nodes, literals: Literals::default(), routes: Vec::new() }
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// If the pattern is malformed, or another route already matches the same paths. The error
    /// names the pattern, or both, and says what to write instead. The router is unchanged.
    pub fn insert(&mut self, pattern: &str, value: T) -> Result<RouteId, InsertError> {
        let Pattern { pieces, param_names } = Pattern::parse(pattern)?;
        let id =
            RouteId(u32::try_from(self.routes.len()).expect("2³² routes do not fit in memory"));
        let mut at = ROOT;
        let mut ends_in_rest = false;
        let literal = match &pieces[..] {
            [Piece::Literal(text)] => Some(text.clone()),
            _ => None,
        };
        for piece in pieces {
            match piece {
                // The root stands for the slash that every pattern begins with.
                Piece::Literal(text) if at == ROOT => at = self.literal_child(at, &text[1..]),
                Piece::Literal(text) => at = self.literal_child(at, &text),
                Piece::Param(suffix) if suffix.is_empty() => at = self.param_child(at),
                Piece::Param(suffix) => at = self.suffix_child(at, &suffix),
                Piece::Rest => ends_in_rest = true,
            }
        }
        let node = &mut self.nodes[at as usize];
        let end = if ends_in_rest { &mut node.rest } else { &mut node.route };
        if let Some(existing) = *end {
            let existing = self.routes[existing.index()].pattern.clone();
            return Err(InsertError::new(pattern, InsertErrorKind::Conflict { existing }));
        }
        *end = Some(id);
        if let Some(path) = literal {
            self.literals.insert(path.into(), id);
        }
        self.routes.push(Route { pattern: pattern.into(), param_names, value });
        Ok(id)
    }

    /// The route that `path` belongs to, and its value. The positions of its parameters are stored
    /// in `params`, whose former content does not matter. If there is no route, `params` is
    /// meaningless.
    ///
    /// `path` is an absolute path without a query. Anything else (`*`, `host:port`, more than 4
    /// GiB) has no route.
    #[inline]
    pub fn find(&self, path: impl AsRef<[u8]>, params: &mut Params) -> Option<(RouteId, &T)> {
        let path = path.as_ref();
        let id = match self.literals.get(path) {
            Some(id) => {
                params.count = 0;
                id
            }
            None => search::search(&self.nodes, path, params, |_| ())?,
        };
        Some((id, &self.routes[id.index()].value))
    }

    /// The value of the route that was inserted with exactly this pattern. Takes time in proportion
    /// to the number of routes: use it during set-up only.
    pub fn get_mut(&mut self, pattern: &str) -> Option<&mut T> {
        self.routes
            .iter_mut()
            .find(|route| &*route.pattern == pattern)
            .map(|route| &mut route.value)
    }

    /// The pattern of a route, as it was inserted.
    ///
    /// # Panics
    ///
    /// If `id` belongs to another router and this one has no such route.
    pub fn pattern(&self, id: RouteId) -> &str {
        &self.routes[id.index()].pattern
    }

    /// The names of a route's parameters, from left to right, in step with [`Params`].
    ///
    /// # Panics
    ///
    /// If `id` belongs to another router and this one has no such route.
    #[inline]
    pub fn param_names(&self, id: RouteId) -> &[Box<str>] {
        &self.routes[id.index()].param_names
    }

    /// All routes, in the order of insertion.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> {
        self.routes.iter().map(|route| (&*route.pattern, &route.value))
    }

    /// The node reached from `at` by `text`. Adds missing nodes, and splits a node inside which the
    /// text ends or differs.
    fn literal_child(&mut self, mut at: NodeId, mut text: &[u8]) -> NodeId {
        while let Some(&first) = text.first() {
            let Some(child) = self.nodes[at as usize].child_beginning_with(first) else {
                let node = self.add_node(text, at);
                self.nodes[at as usize].first_bytes.push(first);
                self.nodes[at as usize].children.push(node);
                return node;
            };
            let shared = shared_length(&self.nodes[child as usize].text, text);
            let whole = shared == self.nodes[child as usize].text.len();
            at = if whole { child } else { self.split(child, shared) };
            text = &text[shared..];
        }
        at
    }

    /// Puts a node in front of `lower` that takes over the first `length` bytes of its text.
    fn split(&mut self, lower: NodeId, length: usize) -> NodeId {
        let (parent, text) = {
            let node = &mut self.nodes[lower as usize];
            (node.parent, core::mem::take(&mut node.text))
        };
        let upper = self.add_node(&text[..length], parent);
        for child in &mut self.nodes[parent as usize].children {
            if *child == lower {
                *child = upper;
            }
        }
        self.nodes[lower as usize].text = text[length..].into();
        self.nodes[lower as usize].parent = upper;
        self.nodes[upper as usize].first_bytes.push(text[length]);
        self.nodes[upper as usize].children.push(lower);
        upper
    }

    fn param_child(&mut self, at: NodeId) -> NodeId {
        if let Some(child) = self.nodes[at as usize].param {
            return child;
        }
        let child = self.add_node(b"", at);
        self.nodes[at as usize].param = Some(child);
        child
    }

    fn suffix_child(&mut self, at: NodeId, suffix: &[u8]) -> NodeId {
        let suffixes = &self.nodes[at as usize].suffixes;
        if let Some((_, child)) = suffixes.iter().find(|(text, _)| **text == *suffix) {
            return *child;
        }
        let place = suffixes.partition_point(|(text, _)| text.len() >= suffix.len());
        let child = self.add_node(b"", at);
        self.nodes[at as usize].suffixes.insert(place, (suffix.into(), child));
        child
    }

    fn add_node(&mut self, text: &[u8], parent: NodeId) -> NodeId {
        let id = NodeId::try_from(self.nodes.len()).expect("2³² nodes do not fit in memory");
        self.nodes.push(Node::new(text, parent));
        id
    }
}

impl<T> Default for Router<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl Node {
    fn new(text: &[u8], parent: NodeId) -> Self {
        Node {
            text: text.into(),
            first_bytes: Vec::new(),
            children: Vec::new(),
            param: None,
            suffixes: Vec::new(),
            rest: None,
            route: None,
            parent,
        }
    }

    #[inline]
    fn child_beginning_with(&self, byte: u8) -> Option<NodeId> {
        let place = self.first_bytes.iter().position(|&first| first == byte)?;
        self.children.get(place).copied()
    }

    /// The first of the suffixes from `next` on that `segment` ends with, and how long the value before it is.
    fn suffix_match(&self, next: usize, segment: &[u8]) -> Option<(NodeId, usize)> {
        let fits = |(text, _): &&(Box<[u8]>, NodeId)| {
            segment.len() > text.len() && segment.ends_with(text)
        };
        let (text, child) = self.suffixes.get(next..)?.iter().find(fits)?;
        Some((*child, segment.len() - text.len()))
    }
}

fn shared_length(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(l, r)| l == r).count()
}

/// Positions of the parameters in a matched path, from left to right: 132 bytes that own nothing
/// and can be used again. The router has the names ([`Router::param_names`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Params {
    spans: [Span; PARAMS_MAX],
    count: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    length: u32,
}

impl Params {
    /// No parameters.
    pub const fn new() -> Self {
        Params { spans: [Span { start: 0, length: 0 }; PARAMS_MAX], count: 0 }
    }

    /// How many there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value of parameter `index`, still percent-encoded. `path` is the path that was searched
    /// for. `None` if there are fewer parameters, or if `path` is shorter than the parameter's
    /// position.
    #[inline]
    pub fn value<'p>(&self, index: usize, path: &'p str) -> Option<&'p str> {
        let span = self.spans[..self.len()].get(index)?;
        path.get(span.start as usize..)?.get(..span.length as usize)
    }

    /// As [`Params::value`], of a path in bytes.
    #[inline]
    pub fn value_in<'p>(&self, index: usize, path: &'p [u8]) -> Option<&'p [u8]> {
        let span = self.spans[..self.len()].get(index)?;
        path.get(span.start as usize..)?.get(..span.length as usize)
    }

    /// All values, as [`Params::value`] gives them.
    pub fn values<'p>(&self, path: &'p str) -> impl Iterator<Item = &'p str> {
        (0..self.len()).filter_map(move |index| self.value(index, path))
    }

    /// Positions fit in 32 bits because `search` refuses longer paths.
    #[inline]
    fn push(&mut self, start: usize, length: usize) {
        self.spans[self.count as usize] = Span { start: start as u32, length: length as u32 };
        self.count += 1;
    }

    /// Removes the last one and returns where it began.
    #[inline]
    fn pop(&mut self) -> usize {
        self.count -= 1;
        self.spans[self.count as usize].start as usize
    }
}
