//! A store in a temporary file, and what tests do with it.

use std::path::PathBuf;
use std::time::Duration;

use idempotency::time::ManualClock;
use idempotency::{
    Claim, Claimed, Fingerprint, Grant, Holder, Key, Lease, Life, Nonce, Outcome, RecordId, Recovery, ScopeId, Settled,
    Store, Timestamp, Windows,
};
use idempotency_sqlx::{SqliteOptions, SqliteStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tempfile::TempDir;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Longer than any test waits for a lock that will be free, however slow the machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);
pub(crate) const DEAD_FOR: Duration = Duration::from_secs(62);

/// A file with tables, and a clock for the stores on it.
pub(crate) struct File {
    folder: TempDir,
    pub(crate) clock: ManualClock,
}

impl File {
    pub(crate) async fn migrated() -> Self {
        let file = Self::missing();
        file.options().busy_timeout(PATIENT).migrate().await.unwrap();
        file
    }

    pub(crate) fn missing() -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000));
        Self { folder: tempfile::tempdir().unwrap(), clock }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("store.sqlite")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// Settings with the clock of this file.
    pub(crate) fn options(&self) -> SqliteOptions {
        SqliteStore::options(&self.url()).clock(self.clock.clone())
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        self.options().busy_timeout(PATIENT).open().await.unwrap()
    }

    /// A store with the clock that it has in operation.
    pub(crate) async fn real_store(&self) -> SqliteStore {
        SqliteStore::options(&self.url()).busy_timeout(PATIENT).open().await.unwrap()
    }

    /// A connection of somebody else, who waits for nothing.
    pub(crate) async fn connection(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.path()).busy_timeout(Duration::ZERO);
        options.create_if_missing(true).connect().await.unwrap()
    }

    pub(crate) async fn execute(&self, statement: &'static str) {
        sqlx::raw_sql(statement).execute(&mut self.connection().await).await.unwrap();
    }

    /// Whether these bytes are in the database or in its log.
    pub(crate) fn holds(&self, marker: &[u8]) -> bool {
        std::fs::read_dir(self.folder.path()).unwrap().any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            bytes.windows(marker.len()).any(|window| window == marker)
        })
    }
}

pub(crate) fn life() -> Life {
    Life::new(Recovery::Hold, Windows::new(HOUR, 24 * HOUR).unwrap())
}

pub(crate) fn id(key: &str) -> RecordId {
    RecordId::new(&ScopeId::global(), &Key::parse(key).unwrap())
}

pub(crate) fn claim(key: &str) -> Claim {
    Claim {
        id: id(key),
        fingerprint: Fingerprint::of([key]),
        nonce: Nonce::random(),
        lease: Lease::default(),
        life: life(),
        key_time: None,
        room: 1024,
    }
}

pub(crate) fn outcome(body: &'static str) -> Outcome {
    Outcome::new(201, body.as_bytes().into()).with_location(Some("/charges/1"))
}

#[track_caller]
pub(crate) fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        claimed => panic!("not granted: {claimed:?}"),
    }
}

/// Claims, and must be granted.
pub(crate) async fn grant(store: &impl Store, claim: &Claim) -> Holder {
    let grant = granted(store.claim(claim).await.unwrap());
    Holder { id: claim.id, token: grant.token, nonce: claim.nonce }
}

/// Claims and completes.
pub(crate) async fn run(store: &impl Store, claim: &Claim, outcome: &Outcome) -> Holder {
    let holder = grant(store, claim).await;
    assert_eq!(store.complete(&holder, outcome).await.unwrap(), Settled::Applied);
    holder
}

/// The same request again.
pub(crate) fn duplicate(claim: &Claim) -> Claim {
    Claim { nonce: Nonce::random(), ..claim.clone() }
}

#[track_caller]
pub(crate) fn replayed(claimed: Claimed) -> Outcome {
    match claimed {
        Claimed::Replay { outcome, .. } => outcome,
        claimed => panic!("not a replay: {claimed:?}"),
    }
}
