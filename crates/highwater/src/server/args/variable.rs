//! What is the variable of a setting called?

/// What the variables of all settings begin with that have no name of their own.
pub(super) const PREFIX: &str = "HIGHWATER_";

/// Where to listen.
pub(super) const LISTEN: &str = "HIGHWATER_LISTEN";

/// The variable of a setting that names none itself.
pub(super) fn variable(setting: &str) -> String {
    format!("{PREFIX}{}", setting.replace('-', "_").to_uppercase())
}
