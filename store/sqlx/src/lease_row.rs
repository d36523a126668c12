//! Leases as rows, the same in every database.

use idempotency::{DeadNonces, LeaseRecord, Nonce, Resource, StoreError, Timestamp};

use crate::row::{self, Columns, Unreadable, Values};

/// The record of a resource, if there is one, and the clock that it is judged by.
pub(crate) struct Found {
    pub(crate) now: Timestamp,
    pub(crate) record: Option<LeaseRecord>,
}

/// What the statement that reads them came to: always one row.
pub(crate) fn found(rows: &[impl Columns]) -> Result<Found, StoreError> {
    let row = rows.first().ok_or_else(|| row::refuse(Unreadable::Column(sqlx::Error::RowNotFound)))?;
    let there = row.blob("resource").map_err(Unreadable::Column).map_err(row::refuse)?;
    let record = there.map(|_| record(row)).transpose().map_err(row::refuse)?;
    Ok(Found { now: row::now(row)?, record })
}

fn record(row: &impl Columns) -> Result<LeaseRecord, Unreadable> {
    let token = match row.integer("token").map_err(Unreadable::Column)? {
        None => None,
        Some(number) => Some(row::token(number).ok_or(Unreadable::Value("token"))?),
    };
    let holder = match row.blob("holder").map_err(Unreadable::Column)? {
        None => None,
        Some(nonce) => Some(Nonce::from_bytes(nonce.try_into().map_err(|_| Unreadable::Value("holder"))?)),
    };
    if holder.is_some() && token.is_none() {
        return Err(Unreadable::Value("holder"));
    }
    let lease_until = row.integer("lease_until").map_err(Unreadable::Column)?;
    let dead = row.blob("dead_nonces").map_err(Unreadable::Column)?;
    Ok(LeaseRecord {
        token,
        holder,
        lease_until: lease_until.map(Timestamp::from_micros).ok_or(Unreadable::Value("lease_until"))?,
        dead: dead.and_then(DeadNonces::from_bytes).ok_or(Unreadable::Value("dead_nonces"))?,
    })
}

/// Binds a record to a statement that writes it: token, holder, end, dead nonces, when it is due, and whose it is.
pub(crate) fn write<Q: Values>(statement: Q, resource: &Resource, record: &LeaseRecord) -> Q {
    statement
        .integer(record.token.map(row::token_number))
        .blob(record.holder.as_ref().map(|nonce| nonce.as_bytes().as_slice()))
        .integer(Some(record.lease_until.micros()))
        .blob(Some(&record.dead.to_bytes()))
        .integer(Some(record.due().micros()))
        .blob(Some(resource.as_bytes()))
}

/// Binds what the row held when it was read: token, holder, end, dead nonces.
#[cfg(feature = "postgres")]
pub(crate) fn compare<Q: Values>(statement: Q, record: &LeaseRecord) -> Q {
    statement
        .integer(record.token.map(row::token_number))
        .blob(record.holder.as_ref().map(|nonce| nonce.as_bytes().as_slice()))
        .integer(Some(record.lease_until.micros()))
        .blob(Some(&record.dead.to_bytes()))
}
