//! Where do the files come from: a folder on the disk, or the program?

use std::io;

use super::disk::Found;
use super::{Files, StaticFiles};

impl StaticFiles {
    #[cfg(feature = "embedded")]
    pub(super) fn is_on_disk(&self) -> bool {
        self.embedded.is_none()
    }

    #[cfg(not(feature = "embedded"))]
    pub(super) fn is_on_disk(&self) -> bool {
        true
    }
}

impl Files {
    /// Whether a file stands at `place`.
    pub(super) fn is_file(&self, place: &str) -> io::Result<bool> {
        #[cfg(feature = "embedded")]
        if let Some(embedded) = self.settings.embedded {
            return Ok(embedded.has(place));
        }
        Ok(matches!(self.settings.root.open(place)?, Found::File(..)))
    }
}
