//! The rules of leases as code: every operation as a pure function over one record and the store's clock.
//!
//! A store that can read a record, decide, and write it back atomically calls these; one that decides in a statement or a
//! script of its own says the same there, and is held against the same conformance suite.
//!
//! An asking is answered by the first of these that fits:
//!
//! | the record | the answer |
//! |---|---|
//! | has this nonce among the dead | `Refused` |
//! | is held under this nonce, its lease runs | `Granted` again: same token, the lease left, nothing changed |
//! | the same, and the token must be above one that it is not above | `Granted` with a new token, nothing else changed |
//! | is held under this nonce, its lease is over | `Refused`: a late copy brings no lost lease back |
//! | is held under another nonce, its lease runs | `Held` |
//! | none, given back, or its lease is over | `Granted`, with a token above every one before |
//!
//! Renew, release and abandon are said at their functions. A row is deleted strictly after all of its lease, its token plus
//! [`TOKEN_HOLD`] and its dead nonces are past.

use std::time::Duration;

use super::contract::{Acquired, Ask, LeaseGrant, LeaseHolder};
use super::record::LeaseRecord;
use crate::{DeadNonces, FencingToken, Lease, Nonce, Settled, StoreError, StoreErrorKind, TOKEN_HOLD, Timestamp};

/// Decides an asking: the answer, and the record to write if it is to be written.
///
/// # Errors
/// Kind [`Refused`](StoreErrorKind::Refused) when the new token would have to be above one that is more than
/// [`TOKEN_HOLD`] ahead of the clock.
pub fn acquire(
    record: Option<&LeaseRecord>,
    ask: &Ask,
    now: Timestamp,
) -> Result<(Acquired, Option<LeaseRecord>), StoreError> {
    if record.is_some_and(|record| record.dead.contains(ask.nonce, now)) {
        return Ok((Acquired::Refused, None));
    }
    let Some((record, token, holder)) = record.and_then(|record| Some((record, record.token?, record.holder?))) else {
        return grant(record, ask, now);
    };
    match record.lease_left(now) {
        Some(lease_left) if holder == ask.nonce => {
            if ask.above.is_none_or(|above| token > above) {
                return Ok((Acquired::Granted(LeaseGrant { token, lease_left }), None));
            }
            let token = mint(Some(token), ask.above, now)?;
            let raised = LeaseRecord { token: Some(token), ..record.clone() };
            Ok((Acquired::Granted(LeaseGrant { token, lease_left }), Some(raised)))
        }
        Some(lease_left) => Ok((Acquired::Held { lease_left }, None)),
        None if holder == ask.nonce => Ok((Acquired::Refused, None)),
        None => grant(Some(record), ask, now),
    }
}

fn grant(
    record: Option<&LeaseRecord>,
    ask: &Ask,
    now: Timestamp,
) -> Result<(Acquired, Option<LeaseRecord>), StoreError> {
    let token = mint(record.and_then(|record| record.token), ask.above, now)?;
    let lease_left = ask.lease.length();
    let granted = LeaseRecord {
        token: Some(token),
        holder: Some(ask.nonce),
        lease_until: now.after(lease_left),
        dead: record.map_or_else(DeadNonces::default, |record| record.dead.clone()),
    };
    Ok((Acquired::Granted(LeaseGrant { token, lease_left }), Some(granted)))
}

/// The next token: `max(previous + 1, clock in microseconds, above + 1)`.
fn mint(
    previous: Option<FencingToken>,
    above: Option<FencingToken>,
    now: Timestamp,
) -> Result<FencingToken, StoreError> {
    let furthest = now.after(TOKEN_HOLD).micros();
    if above.is_some_and(|above| i64::try_from(above.get()).is_ok_and(|above| above > furthest)) {
        return Err(StoreError::new(StoreErrorKind::Refused, "the token is too far ahead of the store's clock"));
    }
    Ok(FencingToken::after(previous.max(above), now))
}

/// Renews: by its holder only, and only while the lease has not ended. Never shortens it.
#[must_use]
pub fn renew(record: Option<&mut LeaseRecord>, holder: &LeaseHolder, lease: Lease, now: Timestamp) -> Settled {
    match record {
        Some(record) if record.is_held_by(holder.token, holder.nonce) && record.lease_left(now).is_some() => {
            record.lease_until = record.lease_until.max(now.after(lease.length()));
            Settled::Applied
        }
        _ => Settled::Superseded,
    }
}

/// Gives the resource back, late too while nobody took over; the nonce is dead for `dead_for`.
#[must_use]
pub fn release(record: Option<&mut LeaseRecord>, holder: &LeaseHolder, dead_for: Duration, now: Timestamp) -> Settled {
    match record {
        Some(record) if record.dead.contains(holder.nonce, now) => Settled::AlreadyApplied,
        Some(record) if record.is_held_by(holder.token, holder.nonce) => {
            free(record, now);
            kill(record, holder.nonce, dead_for, now);
            Settled::Applied
        }
        _ => Settled::Superseded,
    }
}

/// Gives up an asking: frees the resource if it is held under this nonce, and kills the nonce in every case, on a stub if
/// there is no record.
#[must_use]
pub fn abandon(record: Option<LeaseRecord>, nonce: Nonce, dead_for: Duration, now: Timestamp) -> LeaseRecord {
    let stub = || LeaseRecord { token: None, holder: None, lease_until: now, dead: DeadNonces::default() };
    let mut record = record.unwrap_or_else(stub);
    if record.holder == Some(nonce) {
        free(&mut record, now);
    }
    kill(&mut record, nonce, dead_for, now);
    record
}

/// Whether a sweep may delete it: all that it is kept for is past.
#[must_use]
pub fn is_over(record: &LeaseRecord, now: Timestamp) -> bool {
    is_over_holding(record, now, TOKEN_HOLD)
}

/// The same with another hold of the token, for a store whose clock cannot step back so far.
#[must_use]
pub fn is_over_holding(record: &LeaseRecord, now: Timestamp, hold: Duration) -> bool {
    now > record.kept_until_holding(hold)
}

fn free(record: &mut LeaseRecord, now: Timestamp) {
    record.holder = None;
    record.lease_until = record.lease_until.min(now);
}

fn kill(record: &mut LeaseRecord, nonce: Nonce, dead_for: Duration, now: Timestamp) {
    record.dead.add(nonce, now.after(dead_for), now);
}
