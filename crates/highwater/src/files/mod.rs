//! Static files: a folder, served below a path.
//!
//! ```text
//!  path ─▶ place.rs   a name below the root, or 404
//!            ├─ cache.rs    small files, compared with the disk by one `stat`: answered on the worker;
//!            │              the larger of them are sent by the kernel without a copy
//!            ├─ disk.rs     opened below the root, on the pool
//!            │    ├─ small    read whole, and kept
//!            │    └─ large    stream.rs: read off the worker, a piece at a time
//!            └─ embedded.rs a part of the program: answered on the worker
//!          ─▶ answer.rs   conditions, ranges, fields
//! ```
//!
//! ```no_run
//! use highwater::Router;
//! use highwater::files::StaticFiles;
//!
//! let app = Router::new()
//!     .get("/api/version", || "1")
//!     .files("/", StaticFiles::new("public").precompressed());
//! # app.build().unwrap();
//! ```

mod answer;
mod cache;
mod disk;
#[cfg(feature = "embedded")]
mod embedded;
mod page;
mod place;
mod source;
mod stream;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use highwater_core::http_date;
use highwater_core::time::UnixSeconds;
use http::{HeaderValue, header};

use self::answer::{Content, FileValidators, Representation};
use self::cache::{Cache, Known, Small};
use self::disk::{Found, Root, State};
use self::place::{Place, place};
use crate::app::{
    BoxError, Error, IntoResponse, LookedUp, Lookup, Redirect, Request, Response, Router,
};
use crate::content::coding::{Coding, Weights};
use crate::content::{entity_tag, media_type};

/// Larger files are read each time, piece by piece.
pub const CACHED_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A file that changes while it is read is read again this often. A guess: writing a small file takes less long.
const READS_MAX: usize = 3;

/// The compressed siblings that a file may have, in the order in which they are preferred: the smallest first.
const SIBLINGS: [(Coding, &str); 3] =
    [(Coding::Brotli, ".br"), (Coding::Zstd, ".zst"), (Coding::Gzip, ".gz")];

/// A folder whose files answer `GET` and `HEAD`: for [`Router::files`].
///
/// # Answers
///
/// | request | answer |
/// |---|---|
/// | for a file | 200, with type, length, `Last-Modified`, a strong `ETag`, `Accept-Ranges` |
/// | with `Range` | 206; several ranges as `multipart/byteranges`, those that overlap as one |
/// | with more than 16 ranges, or a malformed `Range` | 200, as if there were none |
/// | with a `Range` of which no byte exists | 416 |
/// | with conditions (`If-None-Match`, `If-Range`, …) | as RFC 9110 §13.2.2 says: 304, 412, or the file |
/// | for a folder, with a slash at the end | its `index.html`, or 404. There are no listings |
/// | for a folder that has one, without the slash | 307 to the path with it |
/// | for anything else | 404: also for every path that leads out of the folder, in any spelling or by a link |
///
/// The `ETag` of a file of up to 1 MiB is computed from its content, so copies on other machines have the same one. That of a
/// larger file is computed from its inode, the time at which the inode was changed, and the size.
///
/// Links are followed if they are relative and stay in the folder. Names that begin with a dot are not served, unless
/// [`hidden`](StaticFiles::hidden) says so, except below `/.well-known/`. A file that the server may not read, a device or a
/// socket is answered 404, too.
///
/// # Cost
///
/// Files of up to 1 MiB are kept in memory, at most [32 MiB](StaticFiles::cache_bytes_max) in all. For each request the
/// server checks on the disk whether the file has changed since it was read, so a change is seen by the next request.
/// Everything else happens on the pool of [`blocking`](crate::blocking) handlers: a slow disk delays no other request.
/// Larger files are read in pieces of 64 to 256 KiB while they are sent, with two pieces in memory for each download.
///
/// Files in memory of 64 KiB or more that are requested again take a descriptor each, at most 256 in all. The kernel sends
/// them over HTTP/1 without a copy.
///
/// ```no_run
/// use highwater::Router;
/// use highwater::files::StaticFiles;
///
/// let assets = StaticFiles::new("dist/assets").precompressed().cache_control("max-age=31536000, immutable");
/// let site = StaticFiles::new("dist").single_page("index.html").cache_control("no-cache");
/// let app = Router::new().files("/assets", assets).files("/", site);
/// # app.build().unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "give it to `Router::files`"]
pub struct StaticFiles {
    root: Root,
    #[cfg(feature = "embedded")]
    embedded: Option<embedded::Embedded>,
    index: Option<String>,
    single_page: Option<String>,
    is_precompressed: bool,
    shows_hidden: bool,
    cache_control: Option<HeaderValue>,
    cache_bytes_max: usize,
    media_types: Vec<(String, HeaderValue)>,
    problems: Vec<String>,
}

impl StaticFiles {
    /// The files of `folder` and of the folders in it. It has to be there when the application is built; it, or a link to it,
    /// may be replaced later.
    pub fn new(folder: impl AsRef<Path>) -> Self {
        StaticFiles {
            root: Root(folder.as_ref().to_owned()),
            #[cfg(feature = "embedded")]
            embedded: None,
            index: Some(String::from("index.html")),
            single_page: None,
            is_precompressed: false,
            shows_hidden: false,
            cache_control: None,
            cache_bytes_max: 32 << 20,
            media_types: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Answers with the sibling `app.js.br`, `.zst` or `.gz` instead of `app.js` if there is one and the client accepts its
    /// coding. All answers then have `Vary: Accept-Encoding`. A sibling is used whatever its age: make it in the same build.
    pub fn precompressed(mut self) -> Self {
        self.is_precompressed = true;
        self
    }

    /// Answers with this file and 200 instead of 404, for applications that route in the browser. Requests for a name with an
    /// extension get 404, unless they accept `text/html` by name, because a page in place of a missing script would be
    /// misleading. Both answers have `Vary: Accept`, and caches revalidate the page before they use it again (`Cache-Control:
    /// no-cache`, if you set another one).
    pub fn single_page(mut self, file: &str) -> Self {
        match place(file, true).filter(|place| !place.is_empty() && !place.ends_with('/')) {
            Some(place) => self.single_page = Some(place),
            None => self.problems.push(format!(
                "StaticFiles::single_page(\"{file}\"): it is not the name of a file below the folder; write `index.html`"
            )),
        }
        self
    }

    /// The file that answers for a folder, in place of `index.html`; none with `None`.
    pub fn index(mut self, name: Option<&str>) -> Self {
        let is_name =
            |name: &str| place(name, true).is_some_and(|it| it == name && !it.contains('/'));
        match name {
            Some(name) if name.is_empty() || !is_name(name) => self.problems.push(format!(
                "StaticFiles::index(Some(\"{name}\")): it is not the name of a file; write `index.html`"
            )),
            name => self.index = name.map(str::to_owned),
        }
        self
    }

    /// Also serves files and folders whose names begin with a dot.
    pub fn hidden(mut self) -> Self {
        self.shows_hidden = true;
        self
    }

    /// Sets `Cache-Control` on all answers except errors. Without it, caches decide.
    pub fn cache_control<V>(mut self, value: V) -> Self
    where
        V: TryInto<HeaderValue, Error: Into<BoxError>>,
    {
        match value.try_into() {
            Ok(value) => self.cache_control = Some(value),
            Err(error) => self.problems.push(format!(
                "StaticFiles::cache_control(…): {}; a value is visible ASCII on one line",
                error.into()
            )),
        }
        self
    }

    /// Sets the media type of files with an extension, such as `("glb", "model/gltf-binary")`. Common ones are known.
    pub fn media_type(mut self, extension: &str, media_type: &str) -> Self {
        match HeaderValue::from_str(media_type) {
            Ok(value) if media_type.contains('/') => {
                let extension = extension.trim_start_matches('.').to_ascii_lowercase();
                self.media_types.push((extension, value));
            }
            _ => self.problems.push(format!(
                "StaticFiles::media_type(\"{extension}\", \"{media_type}\"): it is not a media type; write one such as \
                 `text/plain`"
            )),
        }
        self
    }

    /// How many bytes of small files are kept in memory. Default: 32 MiB. Beyond that, the least recently requested files
    /// are removed. With 0, no file is kept.
    pub fn cache_bytes_max(mut self, bytes: usize) -> Self {
        self.cache_bytes_max = bytes;
        self
    }
}

impl Router {
    /// Serves static files at `prefix` and below it. Routes that name a path more exactly come first, wherever they appear.
    ///
    /// ```no_run
    /// use highwater::Router;
    /// use highwater::files::StaticFiles;
    ///
    /// let app = Router::new().get("/", || "Hello").files("/static", StaticFiles::new("static"));
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn files(self, prefix: &str, files: StaticFiles) -> Self {
        let cache = Cache::new(files.cache_bytes_max);
        self.mount(prefix, LookedUp(Arc::new(Files { settings: files, cache })))
    }
}

/// Static files, as a handler.
struct Files {
    settings: StaticFiles,
    cache: Cache,
}

/// What a path asks for.
enum Target {
    File(Place),
    /// The folder of this place, which ends with a slash or is empty.
    Folder(Place),
    /// The root, without the slash at its end.
    Redirect,
    Nothing,
}

impl Lookup for Files {
    fn known(&self, request: &Request<'_>) -> Option<Response> {
        if !self.settings.is_on_disk() {
            return Some(self.look_up(request));
        }
        let place = match self.target(request) {
            Target::File(place) => place,
            Target::Folder(folder) => match &self.settings.index {
                Some(index) => folder + index,
                None => return None,
            },
            Target::Redirect => return Some(redirect(request)),
            Target::Nothing => return Some(not_found().into_response()),
        };
        let representation = self.kept(&place, request)?;
        Some(self.finish(representation.answer(request, now())))
    }

    fn look_up(&self, request: &Request<'_>) -> Response {
        self.found(request).unwrap_or_else(|error| Error::internal(error).into_response())
    }

    fn problems(&self) -> Vec<String> {
        let root = Some(&self.settings.root).filter(|_| self.settings.is_on_disk());
        root.and_then(Root::problem)
            .into_iter()
            .chain(self.settings.problems.iter().cloned())
            .collect()
    }
}

impl Files {
    fn target(&self, request: &Request<'_>) -> Target {
        let path = match request.raw_param("path") {
            Some(path) => path,
            None if request.path().ends_with('/') || request.original_path().ends_with('/') => "",
            None => return Target::Redirect,
        };
        match place(path, self.settings.shows_hidden) {
            None => Target::Nothing,
            Some(place) if place.is_empty() || place.ends_with('/') => Target::Folder(place),
            Some(place) => Target::File(place),
        }
    }

    /// The file that answers, from memory; `None` if the disk has to be asked for more than a state.
    fn kept(&self, place: &str, request: &Request<'_>) -> Option<Representation> {
        for (coding, suffix) in self.candidates(request) {
            let name = format!("{place}{suffix}");
            let state = self.settings.root.state(&name);
            match (self.cache.get(&name)?, state) {
                (Known::Absent, None) => {}
                (Known::File(small), Some(state)) if small.state == state => {
                    let small = self.cache.settle(&name, small);
                    return Some(self.of_small(&small, place, coding));
                }
                _ => return None,
            }
        }
        None
    }

    fn found(&self, request: &Request<'_>) -> io::Result<Response> {
        let (place, is_folder) = match self.target(request) {
            Target::File(place) => (place, false),
            Target::Folder(folder) => match &self.settings.index {
                Some(index) => (folder + index, true),
                None => return self.missing(request),
            },
            Target::Redirect => return Ok(redirect(request)),
            Target::Nothing => return Ok(not_found().into_response()),
        };
        if let Some(representation) = self.read(&place, request)? {
            return Ok(self.finish(representation.answer(request, now())));
        }
        if let (false, Some(index)) = (is_folder, &self.settings.index)
            && self.is_file(&format!("{place}/{index}"))?
        {
            return Ok(redirect(request));
        }
        self.missing(request)
    }

    /// The codings to try, the client's favourite first, with the suffixes of their files.
    fn candidates(&self, request: &Request<'_>) -> Vec<(Coding, &'static str)> {
        let plain = (Coding::Identity, "");
        if !self.settings.is_precompressed {
            return vec![plain];
        }
        let weights = Weights::of(request.headers());
        let mut candidates: Vec<_> = SIBLINGS.into_iter().chain([plain]).collect();
        candidates
            .retain(|(coding, _)| weights.of_coding(*coding) > 0 || *coding == Coding::Identity);
        // The sort is stable: of equal ones, the order of the server.
        candidates.sort_by_key(|(coding, _)| std::cmp::Reverse(weights.of_coding(*coding)));
        candidates
    }

    /// The file that answers, from the disk or the program.
    fn read(&self, place: &str, request: &Request<'_>) -> io::Result<Option<Representation>> {
        #[cfg(feature = "embedded")]
        if let Some(embedded) = self.settings.embedded {
            return Ok(self.read_embedded(embedded, place, request));
        }
        let mut absent = Vec::new();
        for (coding, suffix) in self.candidates(request) {
            let name = format!("{place}{suffix}");
            let Found::File(file, state) = self.settings.root.open(&name)? else {
                absent.push(name);
                continue;
            };
            let representation = self.read_file(file, state, (place, &name), coding)?;
            // Only beside a file that is there: what clients ask for in vain takes no memory.
            for name in absent.into_iter().filter(|name| name != place) {
                self.cache.put_absent(&name);
            }
            return Ok(Some(representation));
        }
        Ok(None)
    }

    fn read_file(
        &self,
        mut file: File,
        mut state: State,
        (place, name): (&str, &str),
        coding: Coding,
    ) -> io::Result<Representation> {
        let mut content = Bytes::new();
        for _ in 0..READS_MAX {
            if state.size > CACHED_FILE_BYTES_MAX {
                let validators = Some(validators(&state, name));
                let (size, content) = (state.size, Content::Open(file));
                let media_type = self.media_type(place);
                return Ok(Representation { content, size, media_type, coding, validators });
            }
            // One byte more than it had, to see that it is the end.
            let mut bytes = Vec::with_capacity(state.size as usize + 1);
            (&file).take(CACHED_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            content = bytes.into();
            let before = state;
            match self.settings.root.open(name)? {
                Found::File(again, now) => (file, state) = (again, now),
                Found::Folder | Found::Nothing => break,
            }
            if before == state && content.len() as u64 == state.size {
                let modified = modified(&state).1;
                let tag = tag(entity_tag::of_content(&content));
                let small = Arc::new(Small::new(state, [tag, modified], content));
                if !state.is_fresh(SystemTime::now()) {
                    self.cache.put(name, Known::File(Arc::clone(&small)));
                }
                return Ok(self.of_small(&small, place, coding));
            }
        }
        let (size, content) = (content.len() as u64, Content::Whole(content));
        let media_type = self.media_type(place);
        Ok(Representation { content, size, media_type, coding, validators: None })
    }

    fn of_small(&self, small: &Small, place: &str, coding: Coding) -> Representation {
        let validators = FileValidators {
            tag: small.tag.clone(),
            modified: small.state.modified(),
            modified_field: small.modified.clone(),
        };
        Representation {
            content: Content::Whole(small.content.clone()),
            size: small.state.size,
            media_type: self.media_type(place),
            coding,
            validators: Some(validators),
        }
    }

    fn media_type(&self, place: &str) -> HeaderValue {
        let extension = media_type::extension(place).unwrap_or_default();
        let own = |(known, _): &&(String, HeaderValue)| known.eq_ignore_ascii_case(extension);
        match self.settings.media_types.iter().rev().find(own) {
            Some((_, value)) => value.clone(),
            None => HeaderValue::from_static(media_type::of_name(place)),
        }
    }

    /// Adds what the answers for all files have in common.
    fn finish(&self, mut response: Response) -> Response {
        if response.error().is_some() {
            return response;
        }
        if let Some(cache_control) = &self.settings.cache_control {
            response.set_header(header::CACHE_CONTROL, cache_control.clone());
        }
        if self.settings.is_precompressed {
            response.vary("accept-encoding");
        }
        response
    }
}

/// The validators of a file whose content is not at hand.
fn validators(state: &State, name: &str) -> FileValidators {
    let (modified, modified_field) = modified(state);
    let kind = media_type::extension(name).unwrap_or_default();
    FileValidators { tag: tag(state.tag(kind)), modified, modified_field }
}

fn tag(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("it is ASCII")
}

/// When a file was changed, for `Last-Modified`: not later than the date of the response (RFC 9110 §8.8.2.1).
fn modified(state: &State) -> (UnixSeconds, HeaderValue) {
    let modified = state.modified().min(now());
    let field = http_date::format(modified);
    (modified, HeaderValue::from_bytes(&field).expect("a date is ASCII"))
}

fn now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(since.as_secs())
}

fn not_found() -> Error {
    Error::not_found("there is no such file")
}

/// To the same path with a slash at its end, where the links of a page lead to its neighbours.
fn redirect(request: &Request<'_>) -> Response {
    let path = request.original_path();
    if path.starts_with("//") || path.ends_with('/') {
        // It would lead to another host; or one more slash would be rewritten like this one.
        return not_found().into_response();
    }
    let query = request.original_query().map(|query| format!("?{query}")).unwrap_or_default();
    Redirect::temporary(format!("{path}/{query}")).into_response()
}
