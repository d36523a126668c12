//! Records as rows, the same in every database.

use std::time::Duration;

use bytes::Bytes;
use idempotency::protocol::{self, Decision};
use idempotency::time::micros;
use idempotency::{
    AgeLimit, Claim, Claimed, DeadNonces, Entry, FencingToken, Fingerprint, KeyClass, Life, Nonce, Outcome, Record,
    RecordId, Recovery, Standing, State, StoreError, StoreErrorKind, Stored, Timestamp,
};

/// A row of any of our databases: its columns are integers, texts and bytes.
pub(crate) trait Columns {
    fn integer(&self, name: &'static str) -> Result<Option<i64>, sqlx::Error>;
    fn text(&self, name: &'static str) -> Result<Option<&str>, sqlx::Error>;
    fn blob(&self, name: &'static str) -> Result<Option<&[u8]>, sqlx::Error>;
}

/// A statement of any of our databases, that takes the same.
pub(crate) trait Values: Sized {
    fn integer(self, value: Option<i64>) -> Self;
    fn text(self, value: Option<&str>) -> Self;
    fn blob(self, value: Option<&[u8]>) -> Self;
}

/// [`Columns`] and [`Values`] of a database.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
macro_rules! codec {
    ($row:ty, $query:ty) => {
        impl crate::row::Columns for $row {
            fn integer(&self, name: &'static str) -> Result<Option<i64>, sqlx::Error> {
                sqlx::Row::try_get(self, name)
            }
            fn text(&self, name: &'static str) -> Result<Option<&str>, sqlx::Error> {
                sqlx::Row::try_get(self, name)
            }
            fn blob(&self, name: &'static str) -> Result<Option<&[u8]>, sqlx::Error> {
                sqlx::Row::try_get(self, name)
            }
        }

        impl crate::row::Values for $query {
            fn integer(self, value: Option<i64>) -> Self {
                self.bind(value)
            }
            fn text(self, value: Option<&str>) -> Self {
                self.bind(value)
            }
            fn blob(self, value: Option<&[u8]>) -> Self {
                self.bind(value)
            }
        }
    };
}
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use codec;

/// The row format that this release reads and writes.
pub(crate) const FORMAT: i64 = 1;

/// A record, if there is one, and what it is judged by.
pub(crate) struct Judged {
    pub(crate) now: Timestamp,
    floor: Timestamp,
    found: Option<Result<Record, Unreadable>>,
}

impl Judged {
    /// Decides a claim. A row that cannot be read is somebody's record: it is never taken for a new key.
    pub(crate) fn decide(&self, claim: &Claim) -> Decision {
        let record = match &self.found {
            Some(Err(unreadable)) => {
                tracing::warn!(id = %claim.id, %unreadable, "refused a claim on an unreadable row");
                return Decision::Answer(Claimed::Unreadable);
            }
            Some(Ok(record)) => Some(record),
            None => None,
        };
        protocol::decide(record, claim, self.now, self.floor)
    }

    /// What a grant forgets when it begins a new life in the row of one that is over, as a purge would: the class
    /// and the time of the old life's key.
    pub(crate) fn forgotten(&self) -> Option<(&KeyClass, Timestamp)> {
        let Some(Ok(record)) = &self.found else { return None };
        match record.standing(self.now) {
            Standing::Absent { .. } => record.floor(),
            _ => None,
        }
    }

    /// Whether there is a row, which may be one that cannot be read.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) const fn is_there(&self) -> bool {
        self.found.is_some()
    }

    /// Whether a grant forgets the steps of the row's record: they are over with its old life.
    pub(crate) fn forgets_steps(&self) -> bool {
        matches!(&self.found, Some(Ok(record)) if !record.keeps_steps(self.now))
    }

    /// Whether a key made then is too old whatever the clock says.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn is_below_floor(&self, key_time: Timestamp) -> bool {
        key_time <= self.floor
    }

    /// The record; an error when it cannot be read.
    pub(crate) fn record(self) -> Result<Option<Record>, StoreError> {
        self.found.transpose().map_err(refuse)
    }
}

/// What the statement that reads a record and what it is judged by came to: always one row.
pub(crate) fn judged(rows: &[impl Columns]) -> Result<Judged, StoreError> {
    let row = rows.first().ok_or_else(|| refuse(Unreadable::Column(sqlx::Error::RowNotFound)))?;
    let there = blob(row, "id").map_err(refuse)?;
    let floor = integer(row, "floor").map_err(refuse)?;
    Ok(Judged {
        now: now(row)?,
        floor: floor.map_or(Timestamp::MIN, Timestamp::from_micros),
        found: there.map(|_| record(row)),
    })
}

/// The clock that the statement read.
pub(crate) fn now(row: &impl Columns) -> Result<Timestamp, StoreError> {
    // NULL where a SQLite is older than 3.42 and does not know `subsec`.
    needed(integer, row, "now").map(Timestamp::from_micros).map_err(refuse)
}

pub(crate) fn id(row: &impl Columns) -> Result<RecordId, StoreError> {
    bytes(row, "id").map(RecordId::from_bytes).map_err(refuse)
}

pub(crate) fn refuse(unreadable: Unreadable) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, unreadable)
}

/// What an operator sees of a row; none when its record's life is over. A row that cannot be read is shown as in
/// doubt, since nobody here can say what became of it; only its id is certain.
pub(crate) fn entry(row: &impl Columns) -> Result<Option<Entry>, StoreError> {
    let (id, now) = (id(row)?, now(row)?);
    match record(row) {
        Ok(record) => Ok(record.entry(id, now)),
        Err(unreadable) => {
            tracing::warn!(%id, %unreadable, "listed an unreadable row as in doubt");
            let since = integer(row, "since").ok().flatten().map_or(now, Timestamp::from_micros);
            Ok(Some(Entry {
                id,
                state: State::InDoubt,
                token: integer(row, "token").ok().flatten().and_then(token),
                attempt: number(row, "attempt").unwrap_or(0),
                age: now.since(since),
                status: None,
                resolution: None,
            }))
        }
    }
}

/// The record in a row.
pub(crate) fn record(row: &impl Columns) -> Result<Record, Unreadable> {
    let format = needed(integer, row, "format")?;
    if format != FORMAT {
        return Err(Unreadable::Format(format));
    }
    Ok(Record {
        fingerprint: Fingerprint::from_bytes(bytes(row, "fingerprint")?),
        nonce: Nonce::from_bytes(bytes(row, "nonce")?),
        token: integer(row, "token")?.map(|number| token(number).ok_or(Unreadable::Value("token"))).transpose()?,
        attempt: number(row, "attempt")?,
        life: life(row)?,
        key_time: integer(row, "key_time")?.map(Timestamp::from_micros),
        lease_until: Timestamp::from_micros(needed(integer, row, "lease_until")?),
        stored: stored(row)?,
        since: Timestamp::from_micros(needed(integer, row, "since")?),
        dead: DeadNonces::from_bytes(needed(blob, row, "dead_nonces")?).ok_or(Unreadable::Value("dead_nonces"))?,
        resolution: Option::zip(
            text(row, "resolved_by")?.map(ToOwned::to_owned),
            text(row, "resolved_why")?.map(ToOwned::to_owned),
        ),
    })
}

fn life(row: &impl Columns) -> Result<Option<Life>, Unreadable> {
    let recovery = match text(row, "recovery")? {
        None => return Ok(None),
        Some(HOLD) => Recovery::Hold,
        Some(RERUN) => Recovery::Rerun,
        Some(_) => return Err(Unreadable::Value("recovery")),
    };
    let age = match text(row, "key_class")? {
        None => None,
        Some(class) => Some(AgeLimit {
            max_age: duration(row, "max_age")?,
            drift: duration(row, "drift")?,
            class: KeyClass::new(class),
        }),
    };
    Ok(Some(Life::from_stored(recovery, duration(row, "response_window")?, duration(row, "tombstone_window")?, age)))
}

fn stored(row: &impl Columns) -> Result<Stored, Unreadable> {
    match needed(text, row, "state")? {
        IN_FLIGHT => Ok(Stored::InFlight),
        COMPLETED => outcome(row)?.map(Stored::Completed).ok_or(Unreadable::Value("status")),
        IN_DOUBT => Ok(Stored::InDoubt(outcome(row)?)),
        RELEASED => Ok(Stored::Released),
        _ => Err(Unreadable::Value("state")),
    }
}

fn outcome(row: &impl Columns) -> Result<Option<Outcome>, Unreadable> {
    let Some(status) = integer(row, "status")? else { return Ok(None) };
    let status = u16::try_from(status).map_err(|_| Unreadable::Value("status"))?;
    let outcome = match blob(row, "payload")? {
        Some(payload) => Outcome::new(status, Bytes::copy_from_slice(payload)),
        None => Outcome::not_kept(status),
    };
    Ok(Some(outcome.with_location(text(row, "location")?)))
}

pub(crate) fn token(number: i64) -> Option<FencingToken> {
    FencingToken::new(u64::try_from(number).ok()?).ok()
}

fn duration(row: &impl Columns, name: &'static str) -> Result<Duration, Unreadable> {
    number(row, name).map(Duration::from_micros)
}

pub(crate) fn bytes<const N: usize>(row: &impl Columns, name: &'static str) -> Result<[u8; N], Unreadable> {
    needed(blob, row, name)?.try_into().map_err(|_| Unreadable::Value(name))
}

pub(crate) fn number<T: TryFrom<i64>>(row: &impl Columns, name: &'static str) -> Result<T, Unreadable> {
    T::try_from(needed(integer, row, name)?).map_err(|_| Unreadable::Value(name))
}

/// A column that must hold something.
pub(crate) fn needed<'r, R: Columns, T>(
    column: impl Fn(&'r R, &'static str) -> Result<Option<T>, Unreadable>,
    row: &'r R,
    name: &'static str,
) -> Result<T, Unreadable> {
    column(row, name)?.ok_or(Unreadable::Value(name))
}

pub(crate) fn integer<R: Columns>(row: &R, name: &'static str) -> Result<Option<i64>, Unreadable> {
    row.integer(name).map_err(Unreadable::Column)
}

pub(crate) fn text<'r, R: Columns>(row: &'r R, name: &'static str) -> Result<Option<&'r str>, Unreadable> {
    row.text(name).map_err(Unreadable::Column)
}

pub(crate) fn blob<'r, R: Columns>(row: &'r R, name: &'static str) -> Result<Option<&'r [u8]>, Unreadable> {
    row.blob(name).map_err(Unreadable::Column)
}

/// What a sweep leaves of a record whose response window is over.
pub(crate) fn without_payload(record: Record) -> Record {
    let stored = match record.stored {
        Stored::Completed(outcome) => Stored::Completed(outcome.without_payload()),
        other => other,
    };
    Record { stored, ..record }
}

/// Binds a record to a statement that writes it: 23 values, in the order of the table's columns.
pub(crate) fn write<Q: Values>(statement: Q, id: &RecordId, record: &Record) -> Q {
    write_record(write_key(statement, id), record)
}

/// Binds the first two: which row, and in what format.
pub(crate) fn write_key<Q: Values>(statement: Q, id: &RecordId) -> Q {
    statement.blob(Some(id.as_bytes())).integer(Some(FORMAT))
}

/// Binds the others.
pub(crate) fn write_record<Q: Values>(statement: Q, record: &Record) -> Q {
    let outcome = match &record.stored {
        Stored::Completed(outcome) => Some(outcome),
        Stored::InDoubt(response) => response.as_ref(),
        Stored::InFlight | Stored::Released => None,
    };
    let resolution = record.resolution.as_ref();
    let statement = statement
        .text(Some(state_name(&record.stored)))
        .integer(Some(record.since.micros()))
        .blob(Some(&record.fingerprint.to_bytes()))
        .blob(Some(record.nonce.as_bytes()))
        .integer(record.token.map(token_number))
        .integer(Some(record.attempt.into()))
        .integer(Some(record.lease_until.micros()));
    write_life(statement, record.life.as_ref())
        .integer(record.key_time.map(Timestamp::micros))
        .blob(Some(&record.dead.to_bytes()))
        .text(resolution.map(|(who, _)| who.as_str()))
        .text(resolution.map(|(_, why)| why.as_str()))
        .integer(Some(due(record).micros()))
        .integer(outcome.map(|outcome| outcome.status().into()))
        .text(outcome.and_then(Outcome::location))
        .blob(outcome.and_then(Outcome::payload).map(|payload| payload.as_ref()))
}

/// When a sweep has something to do with the row, or earlier: it judges the whole record and moves this on. While the record is in flight
/// it is early enough for what comes of it, so that a completion need not move it, and no index changes.
pub(crate) fn due(record: &Record) -> Timestamp {
    match (&record.stored, &record.life) {
        (Stored::InFlight, Some(life)) => record.due().min(record.since.after(life.windows().response())),
        _ => record.due(),
    }
}

/// How long after its claim a record is due already, so that a completion need not move it. None where it may still be in flight then, and a
/// server lets nobody above READ COMMITTED write a row that a sweep has moved meanwhile.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn early(life: &Life) -> Option<Duration> {
    Some(life.windows().response()).filter(|window| *window >= LONG_AFTER_A_RUN)
}

/// Longer than an attempt runs by default, several times.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const LONG_AFTER_A_RUN: Duration = Duration::from_secs(3600);

/// Binds life settings: recovery, both windows, maximum age, drift, class.
pub(crate) fn write_life<Q: Values>(statement: Q, life: Option<&Life>) -> Q {
    let age = life.and_then(Life::age);
    statement
        .text(life.map(|life| recovery_name(life.recovery())))
        .integer(life.map(|life| micros(life.windows().response())))
        .integer(life.map(|life| micros(life.windows().tombstone())))
        .integer(age.map(|age| micros(age.max_age)))
        .integer(age.map(|age| micros(age.drift)))
        .text(age.map(|age| age.class.as_str()))
}

pub(crate) const fn recovery_name(recovery: Recovery) -> &'static str {
    match recovery {
        Recovery::Hold => HOLD,
        Recovery::Rerun => RERUN,
    }
}

pub(crate) const fn state_name(stored: &Stored) -> &'static str {
    match stored {
        Stored::InFlight => IN_FLIGHT,
        Stored::Completed(_) => COMPLETED,
        Stored::InDoubt(_) => IN_DOUBT,
        Stored::Released => RELEASED,
    }
}

pub(crate) fn token_number(token: FencingToken) -> i64 {
    // A token is below 2^53.
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

const IN_FLIGHT: &str = "in-flight";
const COMPLETED: &str = "completed";
const IN_DOUBT: &str = "in-doubt";
const RELEASED: &str = "released";
const HOLD: &str = "hold";
const RERUN: &str = "rerun";

/// A row that this release cannot read: another release wrote it, or nobody should have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("row format {0} is not known to this release, which reads {FORMAT}")]
    Format(i64),
    #[error("a column cannot be read")]
    Column(#[source] sqlx::Error),
    #[error("column `{0}` holds an impossible value")]
    Value(&'static str),
}
