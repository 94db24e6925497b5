//! temp
macro_rules! info { ($msg:literal $(, $k:ident = $v:expr)* $(,)?) => {{ eprint!("{}", $msg); $( eprint!(" {}={:?}", stringify!($k), $v); )* eprintln!(); }} }
pub(crate) use info;
pub(crate) fn set_format(_: crate::server::LogFormat) {}
