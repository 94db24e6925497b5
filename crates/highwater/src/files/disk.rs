//! Opens files below a root, and says in which state they are.
//!
//! The root is looked up again each time, so that a deployment may replace it, or a link to it, while the server runs. Below
//! it the kernel follows links only while they stay there (`openat2` with `RESOLVE_BENEATH`). Where that call is not
//! available, no link is followed.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use highwater_core::time::UnixSeconds;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How often a look-up is repeated that a rename has disturbed. A guess; twice is rare.
const TRIES_MAX: usize = 8;

/// What stands at a place.
pub(super) enum Found {
    File(File, State),
    Folder,
    /// Nothing, or nothing that may be served: a device, a link that leads out, a file without permission.
    Nothing,
}

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    device: u64,
    inode: u64,
    pub(super) size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// Likewise, of the inode: it cannot be set back.
    changed: (i64, i64),
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        State {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The time of the last change of content.
    pub(super) fn modified(&self) -> UnixSeconds {
        UnixSeconds(u64::try_from(self.modified.0).unwrap_or_default())
    }

    /// The entity tag of a file in this state. Not from the time of its content: reproducible builds give all files the same
    /// time, and a file may be replaced within the granularity of the clock. Then its inode differs. `kind` keeps those of a file and its
    /// compressed siblings apart.
    pub(super) fn tag(&self, kind: &str) -> String {
        let nanoseconds = i128::from(self.changed.0) * 1_000_000_000 + i128::from(self.changed.1);
        let kind: String = kind.chars().filter(char::is_ascii_alphanumeric).collect();
        format!("\"{nanoseconds:x}-{:x}-{:x}-{kind}\"", self.inode, self.size)
    }

    /// Whether the last change is so recent that the clock of the file system may not tell another from it.
    pub(super) fn is_fresh(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let since = Duration::new(
            u64::try_from(seconds).unwrap_or_default(),
            u32::try_from(nanoseconds).unwrap_or_default(),
        );
        // Kernels count in ticks of up to 10 ms.
        (UNIX_EPOCH + since) + Duration::from_millis(20) >= now
    }
}

/// A folder whose files are served.
#[derive(Clone, Debug)]
pub(super) struct Root(pub(super) PathBuf);

impl Root {
    /// What is wrong with it.
    pub(super) fn problem(&self) -> Option<String> {
        let path = self.0.display();
        let ask = "name a folder that is there when the server starts";
        match std::fs::metadata(&self.0) {
            Ok(metadata) if metadata.is_dir() => None,
            Ok(_) => Some(format!("StaticFiles::new(\"{path}\"): it is not a folder; {ask}")),
            Err(error) => Some(format!("StaticFiles::new(\"{path}\"): {error}; {ask}")),
        }
    }

    /// The state of the file at `place`, if there is one.
    ///
    /// It follows links wherever they lead: only to compare it with the state of a file that was opened below the root.
    pub(super) fn state(&self, place: &str) -> Option<State> {
        let metadata = std::fs::metadata(self.0.join(place)).ok()?;
        metadata.is_file().then(|| State::of(&metadata))
    }

    /// Opens what stands at `place`.
    ///
    /// # Errors
    /// Those that are not the client's: no descriptors, a broken disk.
    pub(super) fn open(&self, place: &str) -> io::Result<Found> {
        self.open_by(place, beneath)
    }

    fn open_by(
        &self,
        place: &str,
        open: impl Fn(&OwnedFd, &str) -> Result<OwnedFd, Errno>,
    ) -> io::Result<Found> {
        let place = if place.is_empty() { "." } else { place };
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(Path::new(&self.0), folder, Mode::empty())
            .and_then(|root| open(&root, place));
        let file = match opened {
            Ok(file) => File::from(file),
            Err(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::ACCESS
                | Errno::XDEV // A link leads out.
                | Errno::LOOP
                | Errno::NAMETOOLONG
                | Errno::INVAL
                | Errno::NXIO // A socket.
                | Errno::NODEV,
            ) => return Ok(Found::Nothing),
            Err(error) => return Err(error.into()),
        };
        let metadata = file.metadata()?;
        Ok(match () {
            () if metadata.is_file() => Found::File(file, State::of(&metadata)),
            () if metadata.is_dir() => Found::Folder,
            () => Found::Nothing,
        })
    }
}

/// To read, but never to wait for the other end of a pipe.
fn reading() -> OFlags {
    OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
}

fn beneath(root: &OwnedFd, place: &str) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 1;
    loop {
        match rustix::fs::openat2(root, place, reading(), Mode::empty(), resolve) {
            Err(Errno::AGAIN) if tries < TRIES_MAX => tries += 1,
            // An old kernel, or the policy of a container.
            Err(Errno::NOSYS | Errno::PERM) => return without_links(root, place),
            opened => return opened,
        }
    }
}

/// Opens one name after the other, none of which may be a link.
fn without_links(root: &OwnedFd, place: &str) -> Result<OwnedFd, Errno> {
    let mut names = place.split('/').filter(|name| !name.is_empty()).peekable();
    let mut folder = root.try_clone().map_err(|_| Errno::MFILE)?;
    while let Some(name) = names.next() {
        let flags = match names.peek() {
            None => reading(),
            Some(_) => OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        };
        let opened = rustix::fs::openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
        match names.peek() {
            None => return Ok(opened),
            Some(_) => folder = opened,
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn name(found: io::Result<Found>) -> &'static str {
        match found.expect("nothing is broken") {
            Found::File(..) => "file",
            Found::Folder => "folder",
            Found::Nothing => "nothing",
        }
    }

    /// Purpose: links are followed only below the root, and nothing but files and folders is opened; without `openat2` no
    /// link is.
    #[test]
    fn links_stay_inside() {
        let base = tempfile::tempdir().expect("a folder");
        let root = base.path().join("root");
        std::fs::create_dir_all(root.join("sub")).expect("a folder");
        std::fs::write(base.path().join("secret"), "secret").expect("a file");
        std::fs::write(root.join("sub/file"), "content").expect("a file");
        for (to, from) in [
            ("sub/file", "inside"),
            ("sub", "folder"),
            ("../secret", "outside"),
            ("..", "up"),
            ("loop", "loop"),
            ("gone", "dangling"),
            ("/proc/self/root", "magic"),
        ] {
            symlink(to, root.join(from)).expect("a link");
        }
        symlink(base.path().join("secret"), root.join("absolute")).expect("a link");
        symlink(root.join("sub/file"), root.join("absolute-inside")).expect("a link");
        drop(std::os::unix::net::UnixListener::bind(root.join("socket")).expect("a socket"));
        let root = Root(root);
        for (place, with, without) in [
            ("", "folder", "folder"),
            ("sub", "folder", "folder"),
            ("sub/", "folder", "folder"),
            ("sub/file", "file", "file"),
            ("sub/file/", "nothing", "file"), // place.rs makes no such place of a file
            ("sub/file/x", "nothing", "nothing"),
            ("none", "nothing", "nothing"),
            ("inside", "file", "nothing"),
            ("folder/file", "file", "nothing"),
            ("outside", "nothing", "nothing"),
            ("up/secret", "nothing", "nothing"),
            ("absolute", "nothing", "nothing"),
            ("absolute-inside", "nothing", "nothing"),
            ("loop", "nothing", "nothing"),
            ("dangling", "nothing", "nothing"),
            ("magic/etc/passwd", "nothing", "nothing"),
            ("socket", "nothing", "nothing"),
        ] {
            assert_eq!(name(root.open(place)), with, "{place}");
            assert_eq!(name(root.open_by(place, without_links)), without, "{place}, no openat2");
        }
        assert_eq!(name(root.open(&"x".repeat(300))), "nothing");
        assert_eq!(name(root.open(&"x/".repeat(3000))), "nothing");
    }
}
