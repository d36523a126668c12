//! Files that are there whole or not at all.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile, TempDir};

/// Files that get their names together, once all of them are written. Until then, and when anything fails, nothing is seen of them.
#[derive(Debug, Default)]
pub struct Files(Vec<(NamedTempFile, PathBuf)>);

impl Files {
    /// A file to be written that will be at `path`, over what is there.
    ///
    /// # Errors
    /// When nothing can be written in its folder.
    pub fn create(&mut self, path: &Path) -> io::Result<&mut NamedTempFile> {
        // As any new file: what the user's mask leaves of it.
        let file = Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder(path))?;
        self.0.push((file, path.to_owned()));
        Ok(&mut self.0.last_mut().ok_or(io::ErrorKind::NotFound)?.0)
    }

    /// A file with this text.
    ///
    /// # Errors
    /// As [`create`](Self::create), and when it cannot be written.
    pub fn add(&mut self, path: &Path, text: &str) -> io::Result<()> {
        self.create(path)?.write_all(text.as_bytes())
    }

    /// Gives all of them their names.
    ///
    /// # Errors
    /// When one cannot get its name, such as where a folder has it. Then none has, and what was there before is there again.
    pub fn keep(mut self) -> io::Result<()> {
        for (file, path) in &mut self.0 {
            file.flush()?;
            if path.is_dir() {
                return Err(io::Error::new(io::ErrorKind::IsADirectory, format!("{} is a folder", path.display())));
            }
        }
        let mut placed = Vec::new();
        for (file, path) in self.0 {
            let done = spare(&path).and_then(|old| {
                file.persist(&path).map_err(|error| error.error)?;
                placed.push((path, old));
                Ok(())
            });
            if let Err(error) = done {
                placed.into_iter().rev().for_each(|(path, old)| undo(&path, old));
                return Err(error);
            }
        }
        Ok(())
    }
}

/// A second name for what is at a path, until it is dropped. None where nothing is.
fn spare(path: &Path) -> io::Result<Option<TempDir>> {
    if !path.try_exists()? {
        return Ok(None);
    }
    let folder = tempfile::tempdir_in(folder(path))?;
    let name = folder.path().join(OLD);
    // Not every file system has links.
    fs::hard_link(path, &name).or_else(|_| fs::copy(path, &name).map(drop))?;
    Ok(Some(folder))
}

/// As well as it can be done: there is an error to be told already.
fn undo(path: &Path, old: Option<TempDir>) {
    let _ = match old {
        Some(folder) => fs::rename(folder.path().join(OLD), path),
        None => fs::remove_file(path),
    };
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

const OLD: &str = "old";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_seen_before_all_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures.csv");
        fs::write(&path, "old").unwrap();
        let mut files = Files::default();
        files.add(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert!(files.add(&folder.path().join("no/such/folder"), "").is_err());
        drop(files);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        let mut files = Files::default();
        files.add(&path, "new").unwrap();
        files.keep().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn all_get_their_names_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, taken] = ["old", "new", "taken"].map(|name| folder.path().join(name));
        fs::write(&old, "old").unwrap();
        let files = || {
            let mut files = Files::default();
            [&old, &new, &taken].into_iter().for_each(|path| files.add(path, "new").unwrap());
            files
        };
        let left = || {
            assert_eq!(fs::read_to_string(&old).unwrap(), "old");
            fs::read_dir(folder.path()).unwrap().count()
        };
        // A folder is seen before anything is placed.
        fs::create_dir(&taken).unwrap();
        assert!(files().keep().unwrap_err().to_string().contains("taken is a folder"));
        assert_eq!(left(), 2);
        fs::remove_dir(&taken).unwrap();
        // A file that is gone is not.
        let files = files();
        fs::remove_file(files.0[2].0.path()).unwrap();
        assert!(files.keep().is_err());
        assert_eq!(left(), 1);
    }
}
