//! Records as rows.

use std::time::Duration;

use bytes::Bytes;
use idempotency::protocol::{self, Decision};
use idempotency::time::micros;
use idempotency::{
    AgeLimit, Claim, Claimed, DeadNonces, Entry, FencingToken, Fingerprint, KeyClass, Life, Nonce, Outcome, Record,
    RecordId, Recovery, Standing, State, StoreError, StoreErrorKind, Stored, Timestamp,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, Sqlite, Type};

use super::db::{Query, cached};
use super::error::store_error;
use super::sql;

/// The row format that this release reads and writes.
pub(super) const FORMAT: i64 = 1;

/// A record, if there is one, and what it is judged by.
pub(super) struct Judged {
    pub(super) now: Timestamp,
    floor: Timestamp,
    found: Option<Result<Record, Unreadable>>,
}

impl Judged {
    /// Decides a claim. A row that cannot be read is somebody's record: it is never taken for a new key.
    pub(super) fn decide(&self, claim: &Claim) -> Decision {
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
    pub(super) fn forgotten(&self) -> Option<(&KeyClass, Timestamp)> {
        let Some(Ok(record)) = &self.found else { return None };
        match record.standing(self.now) {
            Standing::Absent { .. } => record.floor(),
            _ => None,
        }
    }

    /// The record; an error when it cannot be read.
    pub(super) fn record(self) -> Result<Option<Record>, StoreError> {
        self.found.transpose().map_err(refuse)
    }
}

/// The statement that reads a record and what it is judged by.
pub(super) fn read(id: &RecordId, class: Option<&KeyClass>, given_now: Option<i64>) -> Query {
    bind(cached(sql::READ_RECORD), id, class, given_now)
}

/// The same, as the first of a transaction.
pub(super) fn begin_and_read(id: &RecordId, class: Option<&KeyClass>, given_now: Option<i64>) -> Query {
    bind(cached(sql::BEGIN_AND_READ_RECORD), id, class, given_now)
}

fn bind(read: Query, id: &RecordId, class: Option<&KeyClass>, given_now: Option<i64>) -> Query {
    read.bind(id.as_bytes().as_slice()).bind(given_now).bind(class.map(KeyClass::as_str))
}

/// What [`read`] came to: always one row.
pub(super) fn judged(rows: &[SqliteRow]) -> Result<Judged, StoreError> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound).map_err(store_error)?;
    let there: Option<&[u8]> = row.try_get("id").map_err(store_error)?;
    let floor: Option<i64> = row.try_get("floor").map_err(store_error)?;
    Ok(Judged {
        now: now(row)?,
        floor: floor.map_or(Timestamp::MIN, Timestamp::from_micros),
        found: there.map(|_| record(row)),
    })
}

/// The clock that the statement read.
pub(super) fn now(row: &SqliteRow) -> Result<Timestamp, StoreError> {
    // NULL where the SQLite is older than 3.42 and does not know `subsec`.
    column(row, "now").map(Timestamp::from_micros).map_err(refuse)
}

pub(super) fn id(row: &SqliteRow) -> Result<RecordId, StoreError> {
    bytes(row, "id").map(RecordId::from_bytes).map_err(refuse)
}

fn refuse(unreadable: Unreadable) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, unreadable)
}

/// What an operator sees of a row; none when its record's life is over. A row that cannot be read is shown as in
/// doubt, since nobody here can say what became of it; only its id is certain.
pub(super) fn entry(row: &SqliteRow) -> Result<Option<Entry>, StoreError> {
    let (id, now) = (id(row)?, now(row)?);
    match record(row) {
        Ok(record) => Ok(record.entry(id, now)),
        Err(unreadable) => {
            tracing::warn!(%id, %unreadable, "listed an unreadable row as in doubt");
            let since = column(row, "since").map_or(now, Timestamp::from_micros);
            Ok(Some(Entry {
                id,
                state: State::InDoubt,
                token: column(row, "token").ok().and_then(token),
                attempt: column(row, "attempt").unwrap_or(0),
                age: now.since(since),
                status: None,
                resolution: None,
            }))
        }
    }
}

/// The record in a row.
pub(super) fn record(row: &SqliteRow) -> Result<Record, Unreadable> {
    let format: i64 = column(row, "format")?;
    if format != FORMAT {
        return Err(Unreadable::Format(format));
    }
    Ok(Record {
        fingerprint: Fingerprint::from_bytes(bytes(row, "fingerprint")?),
        nonce: Nonce::from_bytes(bytes(row, "nonce")?),
        token: nullable(row, "token")?.map(|number| token(number).ok_or(Unreadable::Value("token"))).transpose()?,
        attempt: column(row, "attempt")?,
        life: life(row)?,
        key_time: nullable(row, "key_time")?.map(Timestamp::from_micros),
        lease_until: Timestamp::from_micros(column(row, "lease_until")?),
        stored: stored(row)?,
        since: Timestamp::from_micros(column(row, "since")?),
        dead: DeadNonces::from_bytes(column(row, "dead_nonces")?).ok_or(Unreadable::Value("dead_nonces"))?,
        resolution: Option::zip(nullable(row, "resolved_by")?, nullable(row, "resolved_why")?),
    })
}

fn life(row: &SqliteRow) -> Result<Option<Life>, Unreadable> {
    let recovery = match nullable(row, "recovery")? {
        None => return Ok(None),
        Some(HOLD) => Recovery::Hold,
        Some(RERUN) => Recovery::Rerun,
        Some(_) => return Err(Unreadable::Value("recovery")),
    };
    let age = match nullable(row, "key_class")? {
        None => None,
        Some(class) => Some(AgeLimit {
            max_age: duration(row, "max_age")?,
            drift: duration(row, "drift")?,
            class: KeyClass::new(class),
        }),
    };
    Ok(Some(Life::from_stored(recovery, duration(row, "response_window")?, duration(row, "tombstone_window")?, age)))
}

fn stored(row: &SqliteRow) -> Result<Stored, Unreadable> {
    match column(row, "state")? {
        IN_FLIGHT => Ok(Stored::InFlight),
        COMPLETED => outcome(row)?.map(Stored::Completed).ok_or(Unreadable::Value("status")),
        IN_DOUBT => Ok(Stored::InDoubt(outcome(row)?)),
        RELEASED => Ok(Stored::Released),
        _ => Err(Unreadable::Value("state")),
    }
}

fn outcome(row: &SqliteRow) -> Result<Option<Outcome>, Unreadable> {
    let Some(status) = nullable(row, "status")? else { return Ok(None) };
    let outcome = match nullable::<Vec<u8>>(row, "payload")? {
        Some(payload) => Outcome::new(status, Bytes::from(payload)),
        None => Outcome::not_kept(status),
    };
    Ok(Some(outcome.with_location(nullable(row, "location")?)))
}

fn token(number: i64) -> Option<FencingToken> {
    FencingToken::new(u64::try_from(number).ok()?).ok()
}

fn duration(row: &SqliteRow, name: &'static str) -> Result<Duration, Unreadable> {
    let micros: i64 = column(row, name)?;
    u64::try_from(micros).map(Duration::from_micros).map_err(|_| Unreadable::Value(name))
}

fn bytes<const N: usize>(row: &SqliteRow, name: &'static str) -> Result<[u8; N], Unreadable> {
    let bytes: &[u8] = column(row, name)?;
    bytes.try_into().map_err(|_| Unreadable::Value(name))
}

/// A column that must hold something: sqlx reads NULL as 0 or as nothing at all where no `Option` is asked for.
fn column<'r, T>(row: &'r SqliteRow, name: &'static str) -> Result<T, Unreadable>
where
    T: Decode<'r, Sqlite> + Type<Sqlite>,
{
    nullable(row, name)?.ok_or(Unreadable::Value(name))
}

fn nullable<'r, T>(row: &'r SqliteRow, name: &'static str) -> Result<Option<T>, Unreadable>
where
    T: Decode<'r, Sqlite> + Type<Sqlite>,
{
    row.try_get(name).map_err(Unreadable::Column)
}

/// The statements that write a record and commit.
pub(super) fn write_and_commit(id: &RecordId, record: &Record) -> Query {
    let (state, outcome) = match &record.stored {
        Stored::InFlight => (IN_FLIGHT, None),
        Stored::Completed(outcome) => (COMPLETED, Some(outcome)),
        Stored::InDoubt(response) => (IN_DOUBT, response.as_ref()),
        Stored::Released => (RELEASED, None),
    };
    let life = record.life.as_ref();
    let age = life.and_then(Life::age);
    let resolution = record.resolution.as_ref();
    cached(sql::WRITE_RECORD_AND_COMMIT)
        .bind(id.as_bytes().as_slice())
        .bind(FORMAT)
        .bind(state)
        .bind(record.since.micros())
        .bind(record.fingerprint.to_bytes().as_slice())
        .bind(record.nonce.as_bytes().as_slice())
        .bind(record.token.map(|token| i64::try_from(token.get()).unwrap_or(i64::MAX)))
        .bind(record.attempt)
        .bind(record.lease_until.micros())
        .bind(life.map(|life| match life.recovery() {
            Recovery::Hold => HOLD,
            Recovery::Rerun => RERUN,
        }))
        .bind(life.map(|life| micros(life.windows().response())))
        .bind(life.map(|life| micros(life.windows().tombstone())))
        .bind(age.map(|age| micros(age.max_age)))
        .bind(age.map(|age| micros(age.drift)))
        .bind(age.map(|age| age.class.as_str()))
        .bind(record.key_time.map(Timestamp::micros))
        .bind(record.dead.to_bytes())
        .bind(resolution.map(|(who, _)| who.as_str()))
        .bind(resolution.map(|(_, why)| why.as_str()))
        .bind(record.due().micros())
        .bind(outcome.map(Outcome::status))
        .bind(outcome.and_then(Outcome::location))
        .bind(outcome.and_then(Outcome::payload).map(|payload| payload.as_ref()))
}

const IN_FLIGHT: &str = "in-flight";
const COMPLETED: &str = "completed";
const IN_DOUBT: &str = "in-doubt";
const RELEASED: &str = "released";
const HOLD: &str = "hold";
const RERUN: &str = "rerun";

/// A row that this release cannot read: another release wrote it, or nobody should have.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("row format {0} is not known to this release, which reads {FORMAT}")]
    Format(i64),
    #[error("a column cannot be read")]
    Column(#[source] sqlx::Error),
    #[error("column `{0}` holds an impossible value")]
    Value(&'static str),
}
