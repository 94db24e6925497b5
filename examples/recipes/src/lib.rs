//! What third-party crates do for an application: one module for each recipe of `docs/recipes.md`.
#![forbid(unsafe_code)]

pub mod decompression;
pub mod passwords;
pub mod sessions;
pub mod sign_in;
pub mod templates;
pub mod traces;

/// Its programs are compiled as documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/recipes.md")]
struct Recipes;
