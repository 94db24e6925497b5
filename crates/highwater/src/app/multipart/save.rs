//! From a part to a file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use super::Part;
use crate::app::error::Error;

/// How many bytes are written at once.
const WRITTEN_AT_ONCE: usize = 256 << 10;

impl Part<'_> {
    /// Writes the rest of its content into a new file, off the worker, and returns the number of bytes. If that fails, or if
    /// the client disconnects, the file is removed again. Choose the path in the application: never use the client's
    /// [`file_name`](Part::file_name).
    ///
    /// # Errors
    /// As [`Multipart::next_part`](super::Multipart::next_part); 500 if the file exists already, or cannot be written: the
    /// log then names it.
    pub async fn save(mut self, path: impl Into<PathBuf>) -> Result<u64, Error> {
        let path = path.into();
        let failed = |error: io::Error| {
            let named = format!("cannot save a part of a form as {}: {error}", path.display());
            Error::internal(io::Error::new(error.kind(), named))
        };
        let (mut file, mut unfinished) = create(path.clone()).await.map_err(failed)?;
        let (mut buffer, mut bytes) = (Vec::new(), 0);
        while let Some(piece) = self.next().await? {
            bytes += piece.len() as u64;
            buffer.extend_from_slice(&piece);
            if buffer.len() >= WRITTEN_AT_ONCE {
                (file, buffer) = write(file, buffer).await.map_err(failed)?;
            }
        }
        write(file, buffer).await.map_err(failed)?;
        unfinished.path = None;
        Ok(bytes)
    }
}

/// Removes a file that was not written to its end.
struct Unfinished {
    path: Option<PathBuf>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It may be gone, and there is nowhere to report that.
        let remove = |path: &Path| drop(fs::remove_file(path));
        self.path.as_deref().into_iter().for_each(remove);
    }
}

/// Creates the file. It is removed, too, if nobody waits for it any more once it is there.
async fn create(path: PathBuf) -> io::Result<(File, Unfinished)> {
    blocking(move || {
        let file = File::create_new(&path)?;
        Ok((file, Unfinished { path: Some(path) }))
    })
    .await
}

/// Writes the buffer, and returns it empty.
async fn write(mut file: File, mut buffer: Vec<u8>) -> io::Result<(File, Vec<u8>)> {
    blocking(move || {
        file.write_all(&buffer)?;
        buffer.clear();
        Ok((file, buffer))
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await?
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Purpose: a client that disconnects while its file is being created leaves none.
    #[test]
    fn a_file_that_nobody_waits_for_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        // One thread: what is given to it later runs later.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
        runtime.expect("a runtime").block_on(async {
            {
                let creation = pin!(create(path.clone()));
                assert!(creation.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            let seen = path.clone();
            let is_there = spawn_blocking(move || seen.exists()).await;
            assert!(!is_there.expect("it runs"));
        });
    }
}
