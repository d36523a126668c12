//! Claims, and what settles them.

use std::sync::Arc;
use std::time::Duration;

use idempotency::{
    Claim, Claimed, Doubt, Grant, Holder, Lease, Nonce, Outcome, RecordId, Recovery, Resolve, ResolveVerdict, Resolved,
    Settled, StoreError, StoreErrorKind, Tombstone,
};
use redis::{Cmd, Value};

use crate::db::{Db, duration, time};
use crate::error::{is_out_of_memory, store_error};
use crate::group::Asked;
use crate::link::Resend;
use crate::listing;
use crate::replicas::not_replicated;
use crate::reply::{self, Reply, settled};
use crate::scripts::{self, Script};

pub(crate) async fn claim(db: &Arc<Db>, claim: &Claim) -> Result<Claimed, StoreError> {
    let key = db.keys.record(&claim.id);
    let age = claim.life.age();
    let floor = age.and_then(|age| db.not_before.get(&age.class)).copied();
    let cap = claim.life.windows().renewal_cap();
    let is_plain = age.is_none() && claim.key_time.is_none() && cap.is_none();
    let arguments = |full: bool| {
        move |command: &mut Cmd| {
            command.arg(&request(claim)).arg(&life(claim));
            if is_plain && !full {
                return;
            }
            optional(command, age.map(|age| duration(age.max_age)));
            optional(command, age.map(|age| duration(age.drift)));
            optional(command, claim.key_time.map(time));
            optional(command, floor.map(time));
            command.arg(i64::from(full));
            optional(command, cap.map(duration));
        }
    };
    let asked = is_plain.then_some(|| Asked::of(&key, arguments(false)));
    let alone = db.write((&scripts::CLAIM, &key), Resend::Refused, arguments(false), is_granted);
    let answered = match db.share(|db| &db.claims, asked, alone).await {
        Err(error) if is_out_of_memory(&error) => {
            db.write((&scripts::CLAIM_WHEN_FULL, &key), Resend::Refused, arguments(true), is_granted).await
        }
        answered => answered,
    };
    let (answer, replicated) = answered.map_err(store_error)?;
    let claimed = claimed(claim, answer)?;
    if claimed == Claimed::Unreadable {
        tracing::warn!(id = %claim.id, "refused a claim on an unreadable record");
    }
    if let Err(short) = replicated {
        // Nobody runs with it. Should this fail too, the claimer abandons it once more when it sees the error.
        if let Err(error) = abandon(db, &claim.id, claim.nonce, DEAD_FOR).await {
            tracing::warn!(id = %claim.id, %error, "a claim on too few replicas was not abandoned");
        }
        return Err(not_replicated("claim", short));
    }
    Ok(claimed)
}

/// The fingerprint and the nonce, as records have them.
fn request(claim: &Claim) -> [u8; 49] {
    let mut bytes = [0; 49];
    bytes[..33].copy_from_slice(&claim.fingerprint.to_bytes());
    bytes[33..].copy_from_slice(claim.nonce.as_bytes());
    bytes
}

/// Lease, recovery, response and tombstone window in one: each argument more costs the server a tenth of what a small command does.
fn life(claim: &Claim) -> [u8; 25] {
    let windows = claim.life.windows();
    let mut bytes = [0; 25];
    bytes[..8].copy_from_slice(&duration(claim.lease.length()).to_be_bytes());
    bytes[8] = match claim.life.recovery() {
        Recovery::Hold => HOLD,
        Recovery::Rerun => RERUN,
    };
    bytes[9..17].copy_from_slice(&duration(windows.response()).to_be_bytes());
    bytes[17..].copy_from_slice(&duration(windows.tombstone()).to_be_bytes());
    bytes
}

fn is_granted(answer: &Value) -> bool {
    match answer {
        Value::Int(_) => true,
        Value::Array(values) => matches!(values.first(), Some(Value::BulkString(word)) if word == b"granted"),
        _ => false,
    }
}

fn claimed(claim: &Claim, answer: Value) -> Result<Claimed, StoreError> {
    if let Value::Int(token) = answer {
        // There was no record.
        return Ok(Claimed::Granted(Grant {
            token: reply::token(token)?,
            attempt: 1,
            lease_left: claim.lease.length(),
            recovery: claim.life.recovery(),
            possible_escape: false,
        }));
    }
    let mut reply = Reply::new(answer)?;
    let word = reply.text()?;
    Ok(match word.as_str() {
        "granted" => Claimed::Granted(Grant {
            token: reply.token()?,
            attempt: reply.number()?,
            lease_left: reply.duration()?,
            recovery: match reply.number()? {
                HOLD => Recovery::Hold,
                RERUN => Recovery::Rerun,
                _ => return Err(reply::unexpected()),
            },
            possible_escape: reply.number::<u8>()? == 1,
        }),
        "replay" => Claimed::Replay {
            outcome: reply.outcome()?.ok_or_else(reply::unexpected)?,
            completed_at: reply.time()?,
            age: reply.duration()?,
            time_left: reply.duration()?,
        },
        "executed" => Claimed::Executed(Tombstone {
            status: reply.number()?,
            location: reply.optional_text()?.map(Into::into),
            completed_at: reply.time()?,
            age: reply.duration()?,
        }),
        "in flight" => Claimed::InFlight { lease_left: reply.duration()? },
        "in doubt" => Claimed::InDoubt(Doubt {
            since: reply.time()?,
            age: reply.duration()?,
            attempt: reply.number()?,
            token: reply.token()?,
            own: reply.number::<u8>()? == 1,
            response: reply.outcome()?,
        }),
        "mismatch" => Claimed::Mismatch,
        "unreadable" => Claimed::Unreadable,
        "refused" => Claimed::Refused,
        "too old" => Claimed::TooOld,
        "from the future" => Claimed::FromTheFuture,
        "full" => Claimed::Full,
        _ => return Err(reply::unexpected()),
    })
}

pub(crate) async fn complete(db: &Arc<Db>, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
    let arguments = |command: &mut Cmd| {
        held(command, holder);
        put(command, outcome);
    };
    let wrote = |answer: &Value| matches!(answer, Value::BulkString(word) if word != b"superseded");
    let key = db.keys.record(&holder.id);
    // An empty location is not to be told from none there.
    let may_share = outcome.payload().is_some() && outcome.location() != Some("");
    let asked = || {
        Asked::of(&key, |command| {
            arguments(command);
            if outcome.location().is_none() {
                command.arg("");
            }
        })
    };
    let alone = db.write((&scripts::COMPLETE, &key), Resend::Broken, arguments, wrote);
    let answered = db.share(|db| &db.completions, may_share.then_some(asked), alone).await;
    let (answer, replicated) = answered.map_err(store_error)?;
    let settled = settled(answer)?;
    replicated.map_err(|short| not_replicated("complete", short))?;
    Ok(settled)
}

pub(crate) async fn renew(db: &Db, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
    settle(db, &scripts::RENEW, holder, |command| {
        command.arg(duration(lease.length()));
    })
    .await
}

pub(crate) async fn release(db: &Db, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
    settle(db, &scripts::RELEASE, holder, |command| {
        command.arg(duration(dead_for));
    })
    .await
}

pub(crate) async fn mark_in_doubt(db: &Db, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
    settle(db, &scripts::MARK_IN_DOUBT, holder, |command| {
        if let Some(response) = response {
            put(command, response);
        }
    })
    .await
}

async fn settle(db: &Db, script: &Script, holder: &Holder, more: impl Fn(&mut Cmd)) -> Result<Settled, StoreError> {
    let arguments = |command: &mut Cmd| {
        held(command, holder);
        more(command);
    };
    settled(db.run(script, &db.keys.record(&holder.id), arguments).await?)
}

pub(crate) async fn abandon(db: &Db, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
    let arguments = |command: &mut Cmd| {
        command.arg(nonce.as_bytes()).arg(duration(dead_for));
    };
    settled(db.run(&scripts::ABANDON, &db.keys.record(id), arguments).await?).map(drop)
}

pub(crate) async fn resolve(db: &Db, resolve: &Resolve) -> Result<Resolved, StoreError> {
    // Made here, so that a message that is sent twice is recognised.
    let nonce = Nonce::random();
    let arguments = |command: &mut Cmd| {
        command
            .arg(resolve.token_seen.get())
            .arg(nonce.as_bytes())
            .arg(duration(DEAD_FOR))
            .arg(&resolve.who)
            .arg(&resolve.why);
        match &resolve.verdict {
            ResolveVerdict::Happened(outcome) => put(command, outcome),
            ResolveVerdict::DidNotHappen { fence_token } => {
                command.arg(fence_token.map_or(0, idempotency::FencingToken::get));
            }
        }
    };
    let answer = reply::text(db.run(&scripts::RESOLVE, &db.keys.record(&resolve.id), arguments).await?)?;
    match answer.as_str() {
        "applied" => Ok(Resolved::Applied),
        "superseded" => Ok(Resolved::Superseded),
        "missing" => Ok(Resolved::Missing),
        other => {
            let missing = || StoreError::new(StoreErrorKind::Refused, "a script named no state");
            listing::state(other)?.map(Resolved::NotInDoubt).ok_or_else(missing)
        }
    }
}

fn held(command: &mut Cmd, holder: &Holder) {
    command.arg(holder.token.get()).arg(holder.nonce.as_bytes());
}

/// An outcome as scripts take it: its status, whether its payload is kept, that, and its location if it has one.
fn put(command: &mut Cmd, outcome: &Outcome) {
    let payload = outcome.payload();
    command
        .arg(outcome.status())
        .arg(if payload.is_some() { KEPT } else { NOT_KEPT })
        .arg(payload.map_or(&[][..], |payload| payload.as_ref()));
    if let Some(location) = outcome.location() {
        command.arg(location);
    }
}

fn optional(command: &mut Cmd, number: Option<i64>) {
    match number {
        Some(number) => command.arg(number),
        None => command.arg(""),
    };
}

const NOT_KEPT: i64 = 1;
const KEPT: i64 = 2;

const HOLD: u8 = 1;
const RERUN: u8 = 2;

/// How long the nonce of a resolved attempt stays dead, and of a claim that is on too few replicas: longer than a message of
/// any sensible store timeout can be late.
const DEAD_FOR: Duration = Duration::from_secs(120);
