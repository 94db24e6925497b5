//! Ids of items.

use std::fmt::{Display, Write as _};

use serde_core::de::DeserializeOwned;

/// A type that can name an item of a [`Resource`](super::Resource): numbers, text, and types of your own that are read from one
/// segment of a path (serde) and written into one (`Display`).
pub trait Id: DeserializeOwned + Display + 'static {}

impl<T: DeserializeOwned + Display + 'static> Id for T {}

/// The path of an item below the path of its list.
pub(super) fn path_of(list: &str, id: &impl Display) -> String {
    let mut path = list.trim_end_matches('/').to_owned();
    path.push('/');
    for byte in id.to_string().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(char::from(byte));
            }
            byte => write!(path, "%{byte:02X}").expect("text can be written to"),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: an id stays one segment, whatever is in it.
    #[test]
    fn paths() {
        assert_eq!(path_of("/books", &7), "/books/7");
        assert_eq!(path_of("/books/", &"a/b c?"), "/books/a%2Fb%20c%3F");
        assert_eq!(path_of("/", &"ä"), "/%C3%A4");
    }
}
