//! A store in a private server, and what tests do with it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idempotency::time::ManualClock;
use idempotency::{
    Claim, Claimed, Fingerprint, Grant, Holder, Key, Lease, Life, Nonce, Outcome, RecordId, Recovery, ScopeId, Settled,
    Store, Timestamp, Windows,
};
use idempotency_sqlx::{PostgresOptions, PostgresStore, Statements};
use idempotency_testbed::servers::Postgres;
use sqlx::{Connection, PgConnection};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Longer than any test waits for a connection, however slow the machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);
pub(crate) const DEAD_FOR: Duration = Duration::from_secs(62);

/// One server for all tests of this program. It ends with the process.
pub(crate) fn server() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start)
}

/// A place for the tables, with nothing of other tests in it, and a clock for the stores there.
pub(crate) struct Place {
    url: String,
    pub(crate) clock: ManualClock,
}

impl Place {
    /// A schema in a database that all tests share: making a database takes longer than most of them. The session's
    /// `search_path` in the URL is a device of these tests; in operation the role or the database has it.
    pub(crate) async fn empty() -> Self {
        static DATABASE: OnceLock<String> = OnceLock::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = DATABASE.get_or_init(|| server().create_database("places"));
        let schema = format!("place_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let place = Self::at(format!("{url}?options=-csearch_path={schema}"));
        place.execute(&format!("CREATE SCHEMA {schema};")).await;
        place
    }

    pub(crate) async fn migrated() -> Self {
        let place = Self::empty().await;
        place.options().migrate().await.unwrap();
        place
    }

    pub(crate) fn at(url: String) -> Self {
        Self { url, clock: ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)) }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Settings with the clock of this place.
    pub(crate) fn options(&self) -> PostgresOptions {
        self.real_options().clock(self.clock.clone())
    }

    /// Settings with the clock that a store has in operation.
    pub(crate) fn real_options(&self) -> PostgresOptions {
        PostgresStore::options(&self.url).wait(PATIENT)
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        self.options().open().await.unwrap()
    }

    /// A store of each kind, in operation.
    pub(crate) async fn real_stores(&self) -> [PostgresStore; 2] {
        let direct = self.real_options().statements(Statements::PreparedOnce);
        [self.real_options().open().await.unwrap(), direct.open().await.unwrap()]
    }

    /// A connection of somebody else.
    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    pub(crate) async fn execute(&self, statements: &str) {
        execute(&mut self.connection().await, statements).await;
    }
}

pub(crate) async fn execute(connection: &mut PgConnection, statements: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned())).execute(connection).await.unwrap();
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
