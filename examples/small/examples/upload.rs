//! Files from a form, saved part by part while they arrive, within limits.
//!
//! `curl -F picture=@cat.png http://127.0.0.1:8080/pictures`
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use highwater::multipart::{Multipart, MultipartLimits};
use highwater::{Created, Error, Handler, Router, Server, ServerError, State};

/// Bytes of one picture, at most; beyond it 413.
const PICTURE_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a whole form: the pictures, and what stands around them.
const FORM_BYTES_MAX: u64 = 5 << 20;

#[derive(Clone)]
struct Pictures {
    folder: PathBuf,
    /// When this process began, in nanoseconds: a part of each name, so that it is not one of a process before.
    began: u128,
    next: Arc<AtomicU64>,
}

impl Pictures {
    /// Another name for each picture. Never the one that the client gives: it may be a path.
    fn name(&self) -> String {
        format!("{:x}-{}.picture", self.began, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a form has saved so far; removed again unless the whole form is.
#[derive(Default)]
struct Saved {
    paths: Vec<PathBuf>,
}

impl Drop for Saved {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = std::fs::remove_file(path); // It may be gone, and there is nobody to tell.
        }
    }
}

/// Pictures are kept in `folder`.
pub fn router(folder: PathBuf) -> Router {
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    Router::new()
        .state(Pictures { folder, began, next: Arc::default() })
        .post("/pictures", save.body_max(FORM_BYTES_MAX))
}

async fn save(State(pictures): State<Pictures>, form: Multipart) -> Result<Created<String>, Error> {
    let limits =
        MultipartLimits { parts_max: 4, part_bytes_max: PICTURE_BYTES_MAX, ..Default::default() };
    let mut form = form.limits(limits);
    let mut saved = Saved::default();
    let mut lines = String::new();
    while let Some(part) = form.next_part().await? {
        let name = pictures.name();
        let path = pictures.folder.join(&name);
        let bytes = part.save(&path).await?; // Removes its own file if it fails.
        saved.paths.push(path);
        lines.push_str(&format!("{name}: {bytes} bytes\n"));
    }
    if lines.is_empty() {
        return Err(Error::unprocessable("there is no picture in the form"));
    }
    saved.paths.clear();
    Ok(Created(lines))
}

fn main() -> Result<(), ServerError> {
    Server::new(router(std::env::temp_dir())).run()
}
