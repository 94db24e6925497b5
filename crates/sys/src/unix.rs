//! Listening on a Unix socket: who owns the file, and when may it be replaced?
//!
//! A process that dies leaves its socket's file behind, and no process can listen at that path while the file is there. So
//! a file without a listening process is replaced; a file with one is never touched. Replacing and publishing are one step
//! (`rename(2)`): clients find the old socket or the new one, which already listens and has its permissions. Two processes
//! that start at the same time take turns, by a lock on the directory.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::Listener;
use crate::call::check;
use crate::socket::{RawAddr, listen};

/// How long to wait for the lock on a directory, and how often to try: to publish a socket takes less than a millisecond.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The file of a Unix socket on which this process listens. Dropping it removes the file, unless another process
/// has put its own socket there.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Without the lock another process could put its own there between the look and the removal.
        let _lock = lock_directory(&self.path);
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // If it cannot be removed, the next server replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on a Unix stream socket at `path`. `mode` are the permissions of its file, to which clients need write access;
/// without it, the umask decides. `backlog` is as for [`Listener::bind`]. The listener counts as [shared](Listener::share).
///
/// # Errors
/// The error names the path and what to do. `AddrInUse` if a process listens there.
pub fn bind_unix(
    path: &Path,
    mode: Option<u32>,
    backlog: u32,
) -> io::Result<(Listener, SocketFile)> {
    publish(path, mode, backlog).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot listen on unix:{}: {error}{}", path.display(), remedy(&error)),
        )
    })
}

fn publish(path: &Path, mode: Option<u32>, backlog: u32) -> io::Result<(Listener, SocketFile)> {
    let _lock = lock_directory(path)?;
    make_way(path)?;
    let unpublished = directory(path).join(format!(".{}", std::process::id()));
    // Of a predecessor with this process id.
    let _ = fs::remove_file(&unpublished);
    let fd = socket()?;
    let mut raw = address(&unpublished)?;
    let (name, len) = (raw.as_mut_ptr(), raw.len());
    // SAFETY: `name` is valid for reads of `len` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), name, len) })?;
    let published = (|| -> io::Result<(u64, u64)> {
        if let Some(mode) = mode {
            fs::set_permissions(&unpublished, Permissions::from_mode(mode))?;
        }
        listen(&fd, backlog)?;
        let identity = identity(&unpublished)?;
        address(path)?; // Clients need one.
        fs::rename(&unpublished, path)?;
        Ok(identity)
    })();
    let identity = published.inspect_err(|_| {
        let _ = fs::remove_file(&unpublished);
    })?;
    let mut listener = Listener::of(fd, backlog);
    listener.set_shared();
    Ok((listener, SocketFile { path: path.to_owned(), identity }))
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Locks the directory of `path` until the file is dropped. Other servers hold this lock for a moment, and other programs for
/// as long as they run, to keep systemd-tmpfiles(8) out: after [`LOCK_PATIENCE`] this server continues without it.
fn lock_directory(path: &Path) -> io::Result<File> {
    let lock = File::open(directory(path))?;
    let until = Instant::now() + LOCK_PATIENCE;
    while let Err(TryLockError::WouldBlock) = lock.try_lock()
        && Instant::now() < until
    {
        thread::sleep(LOCK_PAUSE);
    }
    Ok(lock)
}

/// Checks that there is nothing at `path`, or the file of a socket at which nobody listens.
fn make_way(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "there is a file that is not a socket; remove it, or choose another path",
        ));
    }
    let fd = socket()?;
    let raw = address(path)?;
    // SAFETY: the address is valid for reads of its length.
    match check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr(), raw.len()) }) {
        // Its process is gone.
        Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => Ok(()),
        // It was removed meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // A full queue, a socket of another type, or not for us: it is somebody's.
        Ok(_) => Err(in_use()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EPROTOTYPE | libc::EACCES) => Err(in_use()),
            _ => Err(error),
        },
    }
}

fn in_use() -> io::Error {
    io::Error::from_raw_os_error(libc::EADDRINUSE)
}

/// A nonblocking socket: a listener with a full queue must not keep us waiting.
fn socket() -> io::Result<OwnedFd> {
    let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, flags, 0) })?;
    // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address(path: &Path) -> io::Result<RawAddr> {
    RawAddr::of_path(path).ok_or_else(|| {
        io::Error::new(
            ErrorKind::InvalidInput,
            "the path of a Unix socket has 1 to 107 bytes; choose a shorter one",
        )
    })
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            "; another process listens there: stop it, or choose another path"
        }
        Some(libc::ENOENT) => "; make its directory first, or choose another path",
        Some(libc::EACCES) => {
            "; the process needs the right to write in its directory: grant it, or choose another path"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// A directory for the time of a test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hw-unix-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("the temporary directory can be written");
            Directory(path)
        }

        fn names(&self) -> Vec<PathBuf> {
            let entries = fs::read_dir(&self.0).expect("it is there");
            entries.map(|entry| entry.expect("it can be read").path()).collect()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Purpose: the file is there with its permissions while a server listens, and no file is left behind.
    #[test]
    fn the_file_comes_and_goes() {
        let directory = Directory::new("comes");
        let path = directory.0.join("s");
        let (listener, file) = bind_unix(&path, Some(0o640), 16).expect("nothing is there");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(directory.names(), std::slice::from_ref(&path));
        UnixStream::connect(&path).expect("it listens");
        drop((listener, file));
        assert_eq!(directory.names(), [] as [PathBuf; 0]);
    }

    /// Purpose: the file of a dead process is replaced; a live socket and any other file are not.
    #[test]
    fn only_what_is_dead_is_replaced() {
        let directory = Directory::new("dead");
        let path = directory.0.join("s");
        drop(UnixListener::bind(&path).expect("nothing is there"));
        let (listener, file) = bind_unix(&path, None, 16).expect("nobody listens there");

        let error = bind_unix(&path, None, 16).expect_err("somebody listens there");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("cannot listen on unix:{}: ", path.display())),
            "{message}"
        );
        assert!(message.ends_with("stop it, or choose another path"), "{message}");
        UnixStream::connect(&path).expect("it still listens");
        drop((listener, file));

        let datagram = std::os::unix::net::UnixDatagram::bind(&path).expect("nothing is there");
        let error = bind_unix(&path, None, 16).expect_err("somebody receives there");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(datagram);
        fs::remove_file(&path).expect("it was left behind");

        fs::write(&path, "precious").expect("it can be written");
        let message = bind_unix(&path, None, 16).expect_err("there is a file").to_string();
        assert!(message.contains("there is a file that is not a socket"), "{message}");
        assert_eq!(fs::read_to_string(&path).expect("it is untouched"), "precious");
        assert_eq!(directory.names(), [path]);
    }

    /// Purpose: a listener whose queue is full is alive, and asking it does not wait.
    #[test]
    fn a_full_queue_is_alive() {
        let directory = Directory::new("full");
        let path = directory.0.join("s");
        let (listener, file) = bind_unix(&path, None, 0).expect("nothing is there");
        let clients: Vec<_> = (0..2).map(|_| make_way(&path)).collect();
        assert!(clients.iter().all(Result::is_err), "{clients:?}");
        drop((listener, file));
    }

    /// Purpose: a directory that another program has locked, and does not unlock, keeps no server from starting or ending.
    #[test]
    fn a_locked_directory_is_no_obstacle() {
        let directory = Directory::new("locked");
        let theirs = File::open(&directory.0).expect("it is there");
        theirs.lock().expect("nobody has locked it");
        let path = directory.0.join("s");
        let (listener, file) = bind_unix(&path, None, 16).expect("nothing is there");
        UnixStream::connect(&path).expect("it listens");
        drop((listener, file));
        assert_eq!(directory.names(), [] as [PathBuf; 0]);
    }

    /// Purpose: a server that ends does not remove the file of the one that took its place.
    #[test]
    fn a_successors_file_stays() {
        let directory = Directory::new("successor");
        let path = directory.0.join("s");
        let (first, first_file) = bind_unix(&path, None, 16).expect("nothing is there");
        drop(first);
        let (second, second_file) = bind_unix(&path, None, 16).expect("nobody listens any more");
        drop(first_file);
        UnixStream::connect(&path).expect("the second listens");
        drop((second, second_file));
    }

    /// Purpose: what is wrong with a path is said, and nothing is left behind.
    #[test]
    fn bad_paths_are_explained() {
        let directory = Directory::new("bad");
        let long = directory.0.join("x".repeat(120));
        let message = bind_unix(&long, None, 16).expect_err("it is too long").to_string();
        assert!(message.ends_with("has 1 to 107 bytes; choose a shorter one"), "{message}");
        let absent = directory.0.join("absent/s");
        let message = bind_unix(&absent, None, 16).expect_err("no directory").to_string();
        assert!(message.ends_with("make its directory first, or choose another path"), "{message}");
        assert_eq!(directory.names(), [] as [PathBuf; 0]);
    }
}
