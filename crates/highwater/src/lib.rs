//! How do I serve my application?
