//! Rows of overload, judged.
