//! Nothing. Cargo gives a dependency all features that any of the chosen packages asks for, so it builds `syn`, and each macro
//! and each crate above it, again for each choice of packages. With this one among them, `syn` is always the same one. No
//! feature of ours is hidden by that: it changes macros only, not what the code that they write leans on.
#![forbid(unsafe_code)]
