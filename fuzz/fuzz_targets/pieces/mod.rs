//! How bytes are split on their way: at places that a state decides.

/// `rest` in pieces of random sizes.
pub(crate) struct Pieces<'w> {
    pub(crate) rest: &'w [u8],
    pub(crate) state: u64,
}

impl<'w> Iterator for Pieces<'w> {
    type Item = &'w [u8];

    fn next(&mut self) -> Option<&'w [u8]> {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let most = 1 << ((self.state >> 8) % 10);
        let len = (1 + (self.state >> 32) as usize % most).min(self.rest.len());
        let (piece, rest) = self.rest.split_at(len);
        self.rest = rest;
        (len > 0).then_some(piece)
    }
}
