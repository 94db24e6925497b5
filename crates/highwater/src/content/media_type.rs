//! Which media type has a file? By the end of its name.

/// The type of content that is not known better.
pub(crate) const BINARY: &str = "application/octet-stream";

/// By extension, in lower case. Text has its charset: UTF-8, as the web is.
const TYPES: &[(&str, &str)] = &[
    ("aac", "audio/aac"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("br", "application/x-brotli"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("m4a", "audio/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("rss", "application/rss+xml"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The extension of a file's name, without its dot. `None` for `README` and `.profile`.
pub(crate) fn extension(name: &str) -> Option<&str> {
    let name = name.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, extension)| extension)
}

/// The media type of a file of this name.
pub(crate) fn of_name(name: &str) -> &'static str {
    let Some(extension) = extension(name) else { return BINARY };
    let wanted = || extension.bytes().map(|byte| byte.to_ascii_lowercase());
    let found = TYPES.binary_search_by(|(known, _)| known.bytes().cmp(wanted()));
    found.map_or(BINARY, |index| TYPES[index].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a browser runs a script and shows a page only if its type says so.
    #[test]
    fn types() {
        for (name, of) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.min.JS", "text/javascript; charset=utf-8"),
            ("x.tar.gz", "application/gzip"),
            ("dir.d/README", BINARY),
            (".html", BINARY),
            ("a.", BINARY),
            ("font.woff2", "font/woff2"),
        ] {
            assert_eq!(of_name(name), of, "{name}");
        }
        assert!(TYPES.is_sorted(), "it is searched by halves");
    }
}
