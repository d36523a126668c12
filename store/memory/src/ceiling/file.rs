//! The file: one writer, whole or not at all.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use idempotency::Timestamp;

use super::CeilingError;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// No time-ordered key above it was granted.
    pub(super) ceiling: Timestamp,
    /// Before this there may have been no ceiling; never changed once it is written.
    pub(super) unknown_before: Timestamp,
}

/// A ceiling's file, locked for this store.
#[derive(Debug)]
pub(super) struct CeilingFile {
    path: PathBuf,
    directory: PathBuf,
    /// Beside the file and not the file itself, which is another one after every write.
    lock: File,
    lock_path: PathBuf,
}

impl CeilingFile {
    /// Locks the ceiling at `path`.
    pub(super) fn lock(path: &Path) -> Result<Self, CeilingError> {
        let unreadable = |source| CeilingError::Unreadable { path: path.to_owned(), source };
        let path_found = whole_path(path).map_err(unreadable)?;
        let directory = path_found.parent().map(Path::to_owned).unwrap_or_default();
        let lock_path = beside(&path_found, ".lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&lock_path);
        let lock = lock.map_err(unreadable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path_found, directory, lock, lock_path }),
            Err(TryLockError::WouldBlock) => Err(CeilingError::Held { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(unreadable(error)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What it says; none when it is missing.
    pub(super) fn read(&self) -> Result<Option<Kept>, CeilingError> {
        let unreadable = |source| CeilingError::Unreadable { path: self.path.clone(), source };
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let mut bytes = Vec::new();
        // One byte more than the longest there is tells a longer one.
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let kept = std::str::from_utf8(&bytes).ok().and_then(parse);
        kept.map(Some).ok_or_else(|| CeilingError::Foreign { path: self.path.clone() })
    }

    /// Replaces what it says. When this returns it is durable; when it fails, nobody may rely on it. Never written once the lock is
    /// not the one that others would meet.
    pub(super) fn write(&self, kept: Kept) -> Result<(), io::Error> {
        self.still_locked()?;
        let new = beside(&self.path, ".new");
        let mut file = File::create(&new)?;
        file.write_all(text(kept).as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        // The name is in the directory, and durable when that is.
        File::open(&self.directory)?.sync_all()?;
        // Whoever locks another file from here on reads what was just written; whoever did so before may not have.
        self.still_locked()
    }

    /// Whether the lock's file still has its name: when somebody removed it, another store can lock a new one.
    #[cfg(unix)]
    fn still_locked(&self) -> Result<(), io::Error> {
        use std::os::unix::fs::MetadataExt as _;
        let identity = |file: &fs::Metadata| (file.dev(), file.ino());
        let held = identity(&self.lock.metadata()?);
        match fs::metadata(&self.lock_path) {
            Ok(found) if identity(&found) == held => Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Err(io::Error::other(format!("{} was removed while it was held", self.lock_path.display()))),
        }
    }

    /// Elsewhere a file that is open cannot be removed.
    #[cfg(not(unix))]
    fn still_locked(&self) -> Result<(), io::Error> {
        let _ = (&self.lock, &self.lock_path);
        Ok(())
    }
}

fn text(kept: Kept) -> String {
    format!("{HEAD}ceiling {}\nunknown before {}\n{END}", kept.ceiling.micros(), kept.unknown_before.micros())
}

/// Strictly what [`text`] writes: a file that is longer, shorter or otherwise spelled was not written by it, or not whole.
fn parse(found: &str) -> Option<Kept> {
    let lines = found.strip_prefix(HEAD)?.strip_suffix(END)?;
    let (ceiling, unknown_before) = lines.strip_suffix('\n')?.split_once('\n')?;
    let micros = |line: &str, name: &str| Some(Timestamp::from_micros(line.strip_prefix(name)?.parse().ok()?));
    let kept =
        Kept { ceiling: micros(ceiling, "ceiling ")?, unknown_before: micros(unknown_before, "unknown before ")? };
    (text(kept) == found).then_some(kept)
}

/// The same path however it is named, so that two names of one file are one lock. The file may be missing.
fn whole_path(path: &Path) -> Result<PathBuf, io::Error> {
    match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let name = path.file_name().ok_or(error)?;
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            Ok(directory.unwrap_or(Path::new(".")).canonicalize()?.join(name))
        }
        path => path,
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

const HEAD: &str = "idempotency ceiling 1\n";
const END: &str = "end\n";

/// Above the length of every file this release writes, in bytes.
const LONGEST: u64 = 128;
