//! A certificate for development.

/// A chain of one certificate and its key, in PEM.
///
/// # Panics
/// If the system gives no randomness.
pub(super) fn make() -> (String, String) {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names);
    let made = made.expect("the names are valid, and the system has randomness");
    (made.cert.pem(), made.signing_key.serialize_pem())
}
