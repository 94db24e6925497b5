//! Creates directories that survive a power cut.
//!
//! A directory is only as durable as its name in its parent; so each parent is synced right after a directory is
//! created in it, from the top. An interrupted run may have created the deepest existing directory without syncing: its
//! name is synced again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Creates the directory `path` and its missing parents, and makes their names durable.
///
/// # Errors
///
/// If one cannot be created, or a parent cannot be synced. Directories created by then stay; another call continues.
pub fn create_directory(path: impl AsRef<Path>) -> io::Result<()> {
    create(path.as_ref(), &mut Disk)
}

/// The file system operations used here.
trait Names {
    fn is_directory(&self, path: &Path) -> bool;
    /// Whether there is something else than a directory.
    fn is_file(&self, path: &Path) -> bool;
    fn make(&mut self, path: &Path) -> io::Result<()>;
    /// Makes the names in this directory durable.
    fn sync(&mut self, path: &Path) -> io::Result<()>;
}

struct Disk;

impl Names for Disk {
    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn is_file(&self, path: &Path) -> bool {
        path.exists() && !path.is_dir()
    }

    fn make(&mut self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            made => made,
        }
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }
}

fn create(path: &Path, names: &mut impl Names) -> io::Result<()> {
    if names.is_file(path) {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let there = path.ancestors().find(|one| is_there(one, names)).unwrap_or(Path::new("/"));
    match names.sync(&parent(there)) {
        // It belongs to another user; its durability is not ours to ensure.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        synced => synced?,
    }
    let mut missing: Vec<&Path> = path.ancestors().take_while(|one| *one != there).collect();
    while let Some(next) = missing.pop() {
        names.make(next)?;
        names.sync(&parent(next))?;
    }
    Ok(())
}

/// The empty path is the current directory.
fn is_there(path: &Path, names: &impl Names) -> bool {
    path == Path::new("") || names.is_directory(path)
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        // The root is its own parent.
        None if path.has_root() => path.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A file system that ends the process after so many operations, and knows which names are durable.
    #[derive(Default)]
    struct Model {
        there: BTreeSet<PathBuf>,
        durable: BTreeSet<PathBuf>,
        left: usize,
    }

    impl Model {
        fn operation(&mut self) -> io::Result<()> {
            self.left = self.left.checked_sub(1).ok_or(io::ErrorKind::Interrupted)?;
            Ok(())
        }
    }

    impl Names for Model {
        fn is_directory(&self, path: &Path) -> bool {
            self.there.contains(path)
        }

        fn is_file(&self, _path: &Path) -> bool {
            false
        }

        fn make(&mut self, path: &Path) -> io::Result<()> {
            self.operation()?;
            assert!(self.there.contains(&parent(path)), "{path:?} has no parent");
            self.there.insert(path.to_owned());
            Ok(())
        }

        fn sync(&mut self, path: &Path) -> io::Result<()> {
            self.operation()?;
            assert!(self.there.contains(path), "{path:?} is not there");
            let inside = self.there.iter().filter(|one| parent(one) == *path).cloned();
            self.durable.extend(inside.collect::<Vec<_>>());
            Ok(())
        }
    }

    /// Purpose: once a journal serves, no directory above it is gone after a power cut, however many were made, and
    /// though an earlier run ended between any two steps.
    #[test]
    fn every_name_is_durable() {
        for (path, given) in [("/d/a/b/c", "/d"), ("a/b/c", "."), ("/d", "/d"), ("a", ".")] {
            let path = Path::new(path);
            for first_run in 0..12 {
                let mut model = Model::default();
                model.there.extend(["/", ".", given].map(PathBuf::from));
                for left in [first_run, 100] {
                    model.left = left;
                    let done = create(path, &mut model);
                    assert!(done.is_ok() || left < 12);
                }
                for one in path.ancestors().filter(|one| one.parent().is_some()) {
                    let was_there = one == Path::new("") || one == Path::new(given);
                    assert!(was_there || model.durable.contains(one), "{one:?} of {path:?}");
                }
                assert!(model.durable.contains(path), "the last one, always");
            }
        }
    }

    /// Purpose: on a real file system the directories are made, and a second call changes nothing; a file in the place of the
    /// last one is named as what it is.
    #[test]
    fn on_a_real_disk() {
        let top = std::env::temp_dir().join(format!("directories-{}", std::process::id()));
        let path = top.join("a/b/c");
        for _ in 0..2 {
            create_directory(&path).expect("it can be made");
            assert!(path.is_dir());
        }
        let file = path.join("file");
        fs::write(&file, "").expect("it can be made");
        let error = create_directory(&file).expect_err("it is a file");
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        fs::remove_dir_all(&top).expect("it is ours");
    }
}
