//! A time on disk that no time-ordered key passes, so that a store may forget everything and still run nothing twice.
//!
//! 1. A time-ordered key is granted only if it is dated at most at the ceiling, and the ceiling is durable by then.
//! 2. So all keys that any earlier life of the store ran are dated at most at the ceiling it left, which is the floor of the
//!    next life: they are refused as too old, whatever the clocks say.
//! 3. A ceiling never falls. It is raised ahead of time by a thread of its own, so that as a rule no claim waits for the disk.

mod file;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use idempotency::time::{InvalidDuration, check};
use idempotency::{StoreError, StoreErrorKind, Timestamp};
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use self::file::{CeilingFile, Kept};

/// Where a [`MemoryStore`](crate::MemoryStore) keeps the ceiling that makes time-ordered keys safe over its restarts: see
/// [`build_under`](crate::MemoryStoreBuilder::build_under).
///
/// The file is small and written anew every few seconds while keys come. Beside it are made a file with `.new` after its name, for a
/// moment, and one with `.lock`, which stays: of two stores on one file the second is refused. A store whose `.lock` is removed while it
/// runs raises its ceiling no more, and refuses what is above it, until it is started again.
///
/// A ceiling never falls, so a clock that was once far ahead leaves one that refuses all time-ordered keys until that time has come. A
/// start that finds one more than a day ahead says so in the log. Only deleting the file ends it: what ran before is then
/// [unknown](MissingCeiling::SaysNothing), and keys are refused for the length of their drift.
#[derive(Clone, Debug)]
#[must_use]
pub struct Ceiling {
    path: PathBuf,
    ahead: Duration,
    missing: MissingCeiling,
}

/// What a missing file says of the time before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingCeiling {
    /// Nothing: keys may have run, by a store without a ceiling or one whose file is lost. Keys dated before the first start plus
    /// their drift are refused, so once for the length of the drift all are.
    #[default]
    SaysNothing,
    /// That no key was ever run. **Wrong if the file was lost**: then keys run again. Right where the file is made with what it
    /// belongs to, such as a directory that lives as long as the effects do.
    NothingRan,
}

impl Ceiling {
    /// The ceiling in the file at `path`, which is made when it is missing; its directory must be there.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ahead: Duration::from_secs(5), missing: MissingCeiling::default() }
    }

    /// How far ahead of the newest key or the clock the ceiling is put. Default 5 s. After a restart keys are refused for at most so
    /// long (and for the drift more, if clients date keys ahead); the file is written about twice in this time while keys come.
    ///
    /// # Errors
    /// [`InvalidDuration`] below 1 ms or above 36500 days.
    pub fn ahead(self, ahead: Duration) -> Result<Self, InvalidDuration> {
        Ok(Self { ahead: check("how far the ceiling is ahead", ahead)?, ..self })
    }

    /// What it means that the file is missing. Default [`MissingCeiling::SaysNothing`].
    pub fn missing(self, missing: MissingCeiling) -> Self {
        Self { missing, ..self }
    }

    /// Takes the file for this process, reads it, and makes the first ceiling of this life durable.
    pub(crate) fn hold(&self, now: Timestamp) -> Result<HeldCeiling, CeilingError> {
        let file = CeilingFile::lock(&self.path)?;
        let kept = match (file.read()?, self.missing) {
            (Some(kept), _) => kept,
            (None, MissingCeiling::SaysNothing) => Kept { ceiling: Timestamp::MIN, unknown_before: now },
            (None, MissingCeiling::NothingRan) => Kept { ceiling: Timestamp::MIN, unknown_before: Timestamp::MIN },
        };
        if kept.ceiling > now.after(self.ahead).after(FAR) {
            let refused_for = kept.ceiling.since(now);
            tracing::error!(
                file = %file.path().display(),
                ?refused_for,
                "the ceiling is far ahead of the clock: time-ordered keys are refused until it has come. If the clock was wrong when it was written, \
                 delete the file: what ran before is then unknown, and keys are refused for the length of their drift"
            );
        }
        let first = Kept { ceiling: kept.ceiling.max(now.after(self.ahead)), ..kept };
        let unwritable = |source| CeilingError::Unwritable { path: self.path.clone(), source };
        file.write(first).map_err(unwritable)?;
        let path = file.path().to_owned();
        // The file, and with it the lock, goes when the keeper does: nobody else may write while it still might.
        HeldCeiling::new(path, move |next| file.write(next), kept, first, self.ahead).map_err(unwritable)
    }
}

/// Why a store has no ceiling. Without one it is not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CeilingError {
    /// Another store has it, in this process or in another one.
    #[error("the ceiling {} belongs to a store that is running", .path.display())]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// It is there and cannot be read, or cannot be locked.
    #[error("the ceiling {} cannot be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not a ceiling, or one that is torn: what ran before is not known. Whoever deletes it says so, and keys are refused
    /// for the length of their drift.
    #[error("{} is not a whole ceiling of this release; if it is deleted, what ran before is unknown", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be written, so nothing could be admitted.
    #[error("the ceiling {} cannot be written", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The ceiling of a store that is running.
#[derive(Debug)]
pub(crate) struct HeldCeiling {
    at_start: Timestamp,
    unknown_before: Timestamp,
    ahead: Duration,
    path: PathBuf,
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// As [`Progress::ceiling`], to be looked at by every claim.
    durable: AtomicI64,
    asked: Mutex<Asked>,
    wake: Condvar,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct Asked {
    ceiling: Option<Timestamp>,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Progress {
    ceiling: Timestamp,
    failures: u64,
    error: Option<Arc<io::Error>>,
    /// Nobody raises it any more.
    keeper_is_gone: bool,
}

impl HeldCeiling {
    /// The ceiling at `path`, which `write` makes durable.
    fn new(
        path: PathBuf,
        write: impl Fn(Kept) -> Result<(), io::Error> + Send + 'static,
        found: Kept,
        first: Kept,
        ahead: Duration,
    ) -> Result<Self, io::Error> {
        let begun = Progress { ceiling: first.ceiling, failures: 0, error: None, keeper_is_gone: false };
        let (progress, _) = watch::channel(begun);
        let shared = Arc::new(Shared {
            durable: AtomicI64::new(first.ceiling.micros()),
            asked: Mutex::default(),
            wake: Condvar::new(),
            progress,
        });
        let keeper = std::thread::Builder::new().name("idempotency-ceiling".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                let _gone = SayGone(&shared);
                shared.keep(write, first);
            }
        })?;
        let (at_start, unknown_before) = (found.ceiling, found.unknown_before);
        Ok(Self { at_start, unknown_before, ahead, path, shared, keeper: Some(keeper) })
    }

    /// Above every key that an earlier life ran.
    pub(crate) const fn at_start(&self) -> Timestamp {
        self.at_start
    }

    /// Before this time a store may have run keys without a ceiling.
    pub(crate) const fn unknown_before(&self) -> Timestamp {
        self.unknown_before
    }

    /// Whether a key of this time is at most at the durable ceiling. Asks for the next one when half of the way to it is gone.
    pub(crate) fn covers(&self, key_time: Timestamp, now: Timestamp) -> bool {
        let durable = self.durable();
        let front = key_time.max(now);
        if durable < front.after(self.ahead / 2) {
            self.ask(front.after(self.ahead));
        }
        key_time <= durable
    }

    /// Waits until the ceiling is at least at `key_time`, which was asked for.
    ///
    /// # Cancel safety
    /// May be dropped; the ceiling is raised all the same.
    pub(crate) async fn wait_for(&self, key_time: Timestamp) -> Result<(), StoreError> {
        let mut progress = self.shared.progress.subscribe();
        let failures = progress.borrow_and_update().failures;
        // Asked again: what was asked before may have failed by now.
        self.ask(key_time.after(self.ahead));
        let settled = progress.wait_for(|progress| {
            progress.ceiling >= key_time || progress.failures > failures || progress.keeper_is_gone
        });
        // The sender is in `self`.
        let Ok(settled) = settled.await else { return Err(refused(&self.path, None)) };
        if settled.ceiling >= key_time {
            return Ok(());
        }
        let error = settled.error.clone().filter(|_| !settled.keeper_is_gone);
        Err(refused(&self.path, error))
    }

    fn durable(&self) -> Timestamp {
        Timestamp::from_micros(self.shared.durable.load(Ordering::Acquire))
    }

    fn ask(&self, ceiling: Timestamp) {
        let mut asked = self.shared.asked.lock();
        if asked.ceiling.is_none_or(|before| before < ceiling) {
            asked.ceiling = Some(ceiling);
            self.shared.wake.notify_one();
        }
    }
}

/// For certain nothing was carried out, which is what busy says.
fn refused(path: &Path, error: Option<Arc<io::Error>>) -> StoreError {
    let why = error.map_or_else(|| "its keeper is gone".to_owned(), |error| error.to_string());
    StoreError::new(StoreErrorKind::Busy, format!("the ceiling {} cannot be raised: {why}", path.display()))
}

impl Drop for HeldCeiling {
    /// Waits for a write that is under way, so that whoever takes the file next finds it at rest.
    fn drop(&mut self) {
        self.shared.asked.lock().closed = true;
        self.shared.wake.notify_one();
        if let Some(keeper) = self.keeper.take() {
            // A keeper that panicked has let go of its file.
            let _ = keeper.join();
        }
    }
}

impl Shared {
    /// Raises the ceiling whenever it is asked to. What failed is not tried again until somebody asks.
    fn keep(&self, write: impl Fn(Kept) -> Result<(), io::Error>, mut kept: Kept) {
        while let Some(ceiling) = self.next(kept.ceiling) {
            let next = Kept { ceiling, ..kept };
            let written = write(next);
            if written.is_ok() {
                kept = next;
                self.durable.store(ceiling.micros(), Ordering::Release);
            }
            self.progress.send_modify(|progress| match written {
                Ok(()) => progress.ceiling = ceiling,
                Err(error) => {
                    progress.failures += 1;
                    progress.error = Some(Arc::new(error));
                }
            });
        }
    }

    /// The next ceiling that is asked for and above the one there is; none when the store is gone.
    fn next(&self, durable: Timestamp) -> Option<Timestamp> {
        let mut asked = self.asked.lock();
        loop {
            if asked.closed {
                return None;
            }
            match asked.ceiling.take() {
                Some(ceiling) if ceiling > durable => return Some(ceiling),
                // Whoever waits for less has it.
                Some(_) => {}
                None => self.wake.wait(&mut asked),
            }
        }
    }
}

/// Tells those who wait that the keeper has ended, also when it panicked.
struct SayGone<'s>(&'s Shared);

impl Drop for SayGone<'_> {
    fn drop(&mut self) {
        self.0.progress.send_modify(|progress| progress.keeper_is_gone = true);
    }
}

/// How far ahead of the clock a ceiling that was found is no accident of two machines' clocks.
const FAR: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails loudly")]
    use super::*;

    #[tokio::test]
    async fn a_keeper_that_panicked_holds_up_no_claim() {
        let start = Timestamp::from_micros(1_000_000);
        let kept = Kept { ceiling: start, unknown_before: Timestamp::MIN };
        let broken = |_| panic!("on purpose");
        let ceiling = HeldCeiling::new("ceiling".into(), broken, kept, kept, Duration::from_secs(5)).unwrap();
        // The first one finds it running, the second one gone.
        for _ in 0..2 {
            let waited = ceiling.wait_for(start.after(Duration::from_secs(1)));
            let refused = tokio::time::timeout(Duration::from_secs(20), waited).await.unwrap().unwrap_err();
            assert_eq!(refused.kind(), StoreErrorKind::Busy);
            let why = std::error::Error::source(&refused).unwrap().to_string();
            assert!(why.contains("its keeper is gone"), "{why}");
        }
        ceiling.wait_for(start).await.unwrap();
    }
}
