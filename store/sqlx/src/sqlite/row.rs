//! Records as rows of SQLite.

use idempotency::{KeyClass, Record, RecordId, StoreError};
use sqlx::sqlite::SqliteRow;

use super::db::{Query, cached};
use super::{many, sql};
pub(super) use crate::row::{FORMAT, entry, id, judged, now, record, without_payload};
use crate::row::{Judged, integer};

crate::row::codec!(SqliteRow, Query);

/// A record that is read: its id, and the class of the claim that asks, if it is one with an age.
pub(super) type Asked<'a> = (&'a RecordId, Option<&'a KeyClass>);

/// The statement that reads records and what they are judged by.
pub(super) fn read(asked: &[Asked<'_>], given_now: Option<i64>) -> Query {
    bind(cached(many::READ_RECORDS.for_at_least(asked.len())), asked, given_now)
}

/// The same, as the first of a transaction.
pub(super) fn begin_and_read(asked: &[Asked<'_>], given_now: Option<i64>) -> Query {
    bind(cached(many::BEGIN_AND_READ_RECORDS.for_at_least(asked.len())), asked, given_now)
}

/// The same for one record, as the first after the effect of a transaction that was begun with [`sql::BEGIN_FOR_EFFECT`]; it fails
/// when that has ended.
pub(super) fn release_and_read(id: &RecordId, given_now: Option<i64>) -> Query {
    bind(cached(sql::RELEASE_AND_READ_RECORD), &[(id, None)], given_now)
}

/// What is not bound is NULL, and no record has that id.
pub(super) fn bind(read: Query, asked: &[Asked<'_>], given_now: Option<i64>) -> Query {
    asked.iter().fold(read.bind(given_now), |read, (id, class)| {
        read.bind(id.as_bytes().as_slice()).bind(class.map(KeyClass::as_str))
    })
}

/// What so many records are judged by, in the order in which they were asked for.
pub(super) fn all_judged(rows: &[SqliteRow], count: usize) -> Vec<Result<Judged, StoreError>> {
    let mut found = vec![&[][..]; count];
    for row in rows {
        let place = integer(row, "place").ok().flatten().and_then(|place| usize::try_from(place).ok());
        if let Some(found) = place.and_then(|place| found.get_mut(place)) {
            *found = std::slice::from_ref(row);
        }
    }
    found.into_iter().map(judged).collect()
}

/// The statement that writes a record.
pub(super) fn write(id: &RecordId, record: &Record) -> Query {
    crate::row::write(cached(sql::WRITE_RECORD), id, record)
}

/// The statement that writes several, as many as [`many::WRITE_RECORDS`] has one for.
pub(super) fn write_all(records: &[(&RecordId, &Record)]) -> Query {
    let statement = cached(many::WRITE_RECORDS.for_at_least(records.len()));
    records.iter().fold(statement, |statement, (id, record)| crate::row::write(statement, id, record))
}

/// The statements that write a record and commit.
pub(super) fn write_and_commit(id: &RecordId, record: &Record) -> Query {
    crate::row::write(cached(sql::WRITE_RECORD_AND_COMMIT), id, record)
}
