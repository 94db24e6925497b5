//! Files from a form, saved part by part while they arrive, within limits.
//!
//! `curl -F picture=@cat.png http://127.0.0.1:8080/pictures`
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highwater::multipart::{Multipart, MultipartLimits};
use highwater::{Created, Error, Handler, Router, Server, ServerError, State};

/// Bytes of one picture, at most; beyond it 413.
const PICTURE_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a whole form: the pictures, and what stands around them.
const FORM_BYTES_MAX: u64 = 5 << 20;

#[derive(Clone)]
struct Pictures {
    folder: PathBuf,
    next: Arc<AtomicU64>,
}

/// Pictures are kept in `folder`.
pub fn router(folder: PathBuf) -> Router {
    Router::new()
        .state(Pictures { folder, next: Arc::default() })
        .post("/pictures", save.body_max(FORM_BYTES_MAX))
}

async fn save(State(pictures): State<Pictures>, form: Multipart) -> Result<Created<String>, Error> {
    let limits =
        MultipartLimits { parts_max: 4, part_bytes_max: PICTURE_BYTES_MAX, ..Default::default() };
    let mut form = form.limits(limits);
    let mut saved = String::new();
    while let Some(part) = form.next_part().await? {
        // Never the name that the client gives: it may be a path.
        let name = format!("{}.picture", pictures.next.fetch_add(1, Ordering::Relaxed));
        let bytes = part.save(pictures.folder.join(&name)).await?;
        saved.push_str(&format!("{name}: {bytes} bytes\n"));
    }
    if saved.is_empty() {
        return Err(Error::unprocessable("there is no picture in the form"));
    }
    Ok(Created(saved))
}

fn main() -> Result<(), ServerError> {
    Server::new(router(std::env::temp_dir())).run()
}
