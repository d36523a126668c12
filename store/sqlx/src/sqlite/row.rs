//! Records as rows of SQLite.

use idempotency::{KeyClass, Record, RecordId};
use sqlx::sqlite::SqliteRow;

use super::db::{Query, cached};
use super::sql;
pub(super) use crate::row::{FORMAT, entry, id, judged, now, record, without_payload};

crate::row::codec!(SqliteRow, Query);

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

/// The same, as the first after the effect of a transaction that was begun with [`sql::BEGIN_FOR_EFFECT`]; it fails when that has ended.
pub(super) fn release_and_read(id: &RecordId, given_now: Option<i64>) -> Query {
    bind(cached(sql::RELEASE_AND_READ_RECORD), id, None, given_now)
}

/// The statement that writes a record.
pub(super) fn write(id: &RecordId, record: &Record) -> Query {
    crate::row::write(cached(sql::WRITE_RECORD), id, record)
}

/// The statements that write a record and commit.
pub(super) fn write_and_commit(id: &RecordId, record: &Record) -> Query {
    crate::row::write(cached(sql::WRITE_RECORD_AND_COMMIT), id, record)
}
