//! Files that are a part of the program.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;
use highwater_core::http_date;
use highwater_core::time::UnixSeconds;
use http::HeaderValue;
use rust_embed::{EmbeddedFile, Metadata, RustEmbed};

use super::answer::{Content, FileValidators, Representation};
use super::{Files, StaticFiles, now};
use crate::app::Request;

/// How much of a file's hash is in its tag: as much as no two files share by accident.
const TAG_BYTES: usize = 16;

/// When files were changed that do not say it. So no client has an older state under this date.
static STARTED: LazyLock<UnixSeconds> = LazyLock::new(now);

/// A folder that was read when the program was compiled.
#[derive(Clone, Copy)]
pub(super) struct Embedded(fn(&str) -> Option<EmbeddedFile>);

impl Embedded {
    /// Whether there is a file of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        (self.0)(name).is_some()
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Embedded")
    }
}

impl StaticFiles {
    /// The files of a folder that the crate [`rust-embed`](https://docs.rs/rust-embed) has made a part of the program, which is
    /// then the only file to deploy. They are served like the files of a folder, with ranges, conditions and compressed
    /// siblings; their `ETag` is computed from their content. Nothing is read from the disk, and no copies are kept. Needs the
    /// feature `embedded`, and `rust-embed` in the application's `Cargo.toml`.
    ///
    /// In a debug build `rust-embed` reads them from the folder instead, so that a change is seen by the next request, unless its
    /// feature `debug-embed` is on.
    ///
    /// ```
    /// use highwater::Router;
    /// use highwater::files::StaticFiles;
    /// use rust_embed::RustEmbed;
    ///
    /// #[derive(RustEmbed)]
    /// #[folder = "tests/assets"] // Relative to Cargo.toml.
    /// struct Assets;
    ///
    /// let app = Router::new().files("/", StaticFiles::embedded::<Assets>().precompressed());
    /// # app.build().unwrap();
    /// ```
    pub fn embedded<T: RustEmbed>() -> Self {
        LazyLock::force(&STARTED);
        StaticFiles { embedded: Some(Embedded(T::get)), ..StaticFiles::new("") }
    }
}

impl Files {
    /// The file that answers, from the program.
    pub(super) fn read_embedded(
        &self,
        embedded: Embedded,
        place: &str,
        request: &Request<'_>,
    ) -> Option<Representation> {
        self.candidates(request).into_iter().find_map(|(coding, suffix)| {
            let EmbeddedFile { data, metadata } = (embedded.0)(&format!("{place}{suffix}"))?;
            let content = match data {
                Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                Cow::Owned(bytes) => Bytes::from(bytes),
            };
            Some(Representation {
                size: content.len() as u64,
                content: Content::Whole(content),
                media_type: self.media_type(place),
                coding,
                validators: Some(validators(&metadata)),
            })
        })
    }
}

fn validators(metadata: &Metadata) -> FileValidators {
    let hash = metadata.sha256_hash();
    let mut tag = String::with_capacity(2 * TAG_BYTES + 2);
    tag.push('"');
    for byte in &hash[..TAG_BYTES] {
        write!(tag, "{byte:02x}").expect("text can be written to");
    }
    tag.push('"');
    // 0: builds that are to be the same each time.
    let modified = metadata.last_modified().filter(|seconds| *seconds > 0).map(UnixSeconds);
    let modified = modified.unwrap_or(*STARTED).min(now());
    FileValidators {
        tag: HeaderValue::try_from(tag).expect("it is ASCII"),
        modified,
        modified_field: HeaderValue::from_bytes(&http_date::format(modified))
            .expect("a date is ASCII"),
    }
}
