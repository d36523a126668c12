//! What most changes come to, each in one statement: the claim of a key that nobody has, and a completion by its holder.
//!
//! The statement carries it out or leaves everything as it is. Then whatever else it may be is decided on the record.

use std::sync::Arc;

use idempotency::time::micros;
use idempotency::{
    Claim, Claimed, Grant, Holder, Outcome, Recovery, StoreError, StoreErrorKind, TOKEN_HOLD, Timestamp,
};
use sqlx::sqlite::SqliteRow;

use super::db::{Query, cached};
use super::row::{self, FORMAT};
use super::{many, sql};
use crate::row::{integer, recovery_name, token, token_number};

/// A change that may come to one statement.
pub(super) enum Short {
    /// Without an age limit: the floor of an older key's class is another row.
    Claim(Arc<Claim>),
    Completion(Holder, Outcome),
}

/// The statements that read a record and then claim it if nobody has. What comes back is what was read and, if it was claimed, a row
/// for [`granted`].
pub(super) fn read_and_claim(claim: &Claim, given_now: Option<i64>) -> Query {
    let read = row::bind(cached(sql::READ_RECORD_AND_CLAIM), &[(&claim.id, None)], given_now);
    bind_claims(read, &[claim], 1, given_now)
}

/// The statement that completes what its holder still holds. A row comes back if it does.
pub(super) fn complete(holder: &Holder, outcome: &Outcome, given_now: Option<i64>) -> Query {
    bind_completions(cached(sql::COMPLETE), &[(holder, outcome)], 1, given_now)
}

/// A transaction from its beginning to its end. A row comes back for each of these that it carried out, with the id of its record.
pub(super) fn transaction<'s>(shorts: impl Iterator<Item = &'s Short>, given_now: Option<i64>) -> Query {
    let (mut claims, mut completions) = (Vec::new(), Vec::new());
    for short in shorts {
        match short {
            Short::Claim(claim) => claims.push(&**claim),
            Short::Completion(holder, outcome) => completions.push((holder, outcome)),
        }
    }
    let (statements, lines) = many::claims_and_completions(claims.len(), completions.len());
    let statements = bind_claims(cached(statements), &claims, lines.0, given_now);
    bind_completions(statements, &completions, lines.1, given_now)
}

/// The answer to a claim for which a row came back.
pub(super) fn granted(row: &SqliteRow, claim: &Claim) -> Result<Claimed, StoreError> {
    let token = integer(row, "token").ok().flatten().and_then(token);
    let token = token.ok_or_else(|| StoreError::new(StoreErrorKind::Refused, "the clock is beyond all tokens"))?;
    Ok(Claimed::Granted(Grant {
        token,
        attempt: 1,
        lease_left: claim.lease.length(),
        recovery: claim.life.recovery(),
        possible_escape: false,
    }))
}

fn bind_claims(statement: Query, claims: &[&Claim], lines: usize, given_now: Option<i64>) -> Query {
    if lines == 0 {
        return statement;
    }
    let statement = statement.bind(given_now).bind(FORMAT).bind(micros(TOKEN_HOLD));
    let statement = claims.iter().fold(statement, |statement, claim| {
        let windows = claim.life.windows();
        let recovery: Recovery = claim.life.recovery();
        statement
            .bind(claim.id.as_bytes().as_slice())
            .bind(claim.fingerprint.to_bytes().as_slice())
            .bind(claim.nonce.as_bytes().as_slice())
            .bind(micros(claim.lease.length()))
            .bind(recovery_name(recovery))
            .bind(micros(windows.response()))
            .bind(micros(windows.tombstone()))
            .bind(claim.key_time.map(Timestamp::micros))
    });
    bind_none(statement, (lines - claims.len()) * many::CLAIM_COLUMNS)
}

fn bind_completions(
    statement: Query,
    completions: &[(&Holder, &Outcome)],
    lines: usize,
    given_now: Option<i64>,
) -> Query {
    if lines == 0 {
        return statement;
    }
    let statement = statement.bind(given_now).bind(FORMAT);
    let statement = completions.iter().fold(statement, |statement, (holder, outcome)| {
        statement
            .bind(holder.id.as_bytes().as_slice())
            .bind(holder.nonce.as_bytes().as_slice())
            .bind(token_number(holder.token))
            .bind(i64::from(outcome.status()))
            .bind(outcome.location())
            .bind(outcome.payload().map(|payload| payload.as_ref()))
    });
    bind_none(statement, (lines - completions.len()) * many::COMPLETION_COLUMNS)
}

/// Lines that are nobody's. They are bound because the parameters of the next statement come after them.
fn bind_none(statement: Query, parameters: usize) -> Query {
    (0..parameters).fold(statement, |statement, _| statement.bind(None::<i64>))
}
