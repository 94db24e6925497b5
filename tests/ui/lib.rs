//! Nothing. The test beside it, `ui.rs`, is a package of its own for the sake of what trybuild builds for it.
#![forbid(unsafe_code)]
