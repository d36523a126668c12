//! The protocol as code: every store operation as a pure function over one record and the store's clock.
//!
//! A store that can read a record, decide, and write it back atomically (under a lock, or in a
//! transaction that excludes other writers) calls these; one that decides in a statement or a script of its
//! own says the same there and is held against the same [conformance suite](crate::conformance).
//!
//! The order of the rules in [`decide`] is part of the protocol.

use std::time::Duration;

use crate::transaction::Fate;
use crate::{
    Claim, Claimed, DeadNonces, Doubt, FencingToken, Fingerprint, Grant, Holder, Lease, Nonce, Outcome, Record,
    Resolve, ResolveVerdict, Resolved, Settled, Standing, Stored, TOKEN_HOLD, Timestamp, Tombstone,
};

/// What a claim comes to, before anything is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This answer; nothing is written.
    Answer(Claimed),
    /// It was executed, which is the answer, and the hit renews the tombstone's window: [`prolong`] the record. When that cannot be
    /// written, it is the answer all the same.
    Prolong(Tombstone),
    /// [`grant`] it, if there is room.
    Grant,
}

impl Decision {
    /// The answer; none for a grant.
    #[must_use]
    pub fn answer(self) -> Option<Claimed> {
        match self {
            Self::Answer(claimed) => Some(claimed),
            Self::Prolong(tombstone) => Some(Claimed::Executed(tombstone)),
            Self::Grant => None,
        }
    }
}

/// Decides a claim. `floor` is the time at and below which keys of the claim's class are too old
/// whatever the clock says.
#[must_use]
pub fn decide(record: Option<&Record>, claim: &Claim, now: Timestamp, floor: Timestamp) -> Decision {
    let Some(record) = record else {
        return decide_free(claim, claim.life.age(), now, floor);
    };
    if record.dead.contains(claim.nonce, now) {
        return Decision::Answer(Claimed::Refused);
    }
    let standing = record.standing(now);
    if !matches!(standing, Standing::Absent { .. } | Standing::Released) {
        if record.fingerprint.version() != claim.fingerprint.version() {
            return Decision::Answer(Claimed::Unreadable);
        }
        if record.fingerprint != claim.fingerprint {
            return Decision::Answer(Claimed::Mismatch);
        }
    }
    let own = record.nonce == claim.nonce;
    let age = now.since(record.since);
    match (standing, record.token) {
        (Standing::Completed { outcome, time_left }, _) => {
            Decision::Answer(Claimed::Replay { outcome: outcome.clone(), completed_at: record.since, age, time_left })
        }
        (Standing::Tombstone { outcome }, _) => {
            let tombstone = Tombstone {
                status: outcome.status(),
                completed_at: record.since,
                age,
                location: outcome.location().map(Into::into),
            };
            match prolonged(record, claim, now) {
                Some(_) => Decision::Prolong(tombstone),
                None => Decision::Answer(Claimed::Executed(tombstone)),
            }
        }
        (Standing::InFlight { lease_left }, Some(token)) if own => granted_again(record, token, lease_left),
        (Standing::LeaseEnded, Some(token)) if own => granted_again(record, token, Duration::ZERO),
        (Standing::InDoubt { since, response }, Some(token)) => Decision::Answer(Claimed::InDoubt(Doubt {
            since,
            age: now.since(since),
            attempt: record.attempt,
            token,
            response: response.cloned(),
            own,
        })),
        (Standing::InFlight { lease_left }, _) => Decision::Answer(Claimed::InFlight { lease_left }),
        (Standing::Absent { .. }, _) => {
            // As if it had been purged just now, whether or not anybody swept.
            let floor = record.floor().map_or(floor, |(_, key_time)| floor.max(key_time));
            decide_free(claim, claim.life.age(), now, floor)
        }
        (Standing::Released, _) => {
            let life = record.life.as_ref().unwrap_or(&claim.life);
            decide_free(claim, life.age(), now, floor)
        }
        (Standing::LeaseEnded, _) => Decision::Grant,
        // Nobody grants without a token; whoever wrote such a record is not known here.
        (Standing::InDoubt { .. }, None) => Decision::Answer(Claimed::Unreadable),
    }
}

fn granted_again(record: &Record, token: FencingToken, lease_left: Duration) -> Decision {
    Decision::Answer(Claimed::Granted(Grant {
        token,
        attempt: record.attempt,
        lease_left,
        recovery: record.recovery(),
        possible_escape: false,
    }))
}

fn decide_free(claim: &Claim, limit: Option<&crate::AgeLimit>, now: Timestamp, floor: Timestamp) -> Decision {
    let (Some(limit), Some(key_time)) = (limit, claim.key_time) else {
        return Decision::Grant;
    };
    if key_time <= now.before(limit.max_age).max(floor) {
        return Decision::Answer(Claimed::TooOld);
    }
    if key_time > now.after(limit.drift) {
        return Decision::Answer(Claimed::FromTheFuture);
    }
    Decision::Grant
}

/// Carries out a claim that [`decide`] granted: the record as it is to be written, and the answer.
#[must_use]
pub fn grant(record: Option<Record>, claim: &Claim, now: Timestamp) -> (Record, Grant) {
    let previous_token = record.as_ref().and_then(|r| r.token);
    let token = FencingToken::after(previous_token, now);
    let standing = record.as_ref().map(|r| r.standing(now));
    let possible_escape = matches!(standing, Some(Standing::Absent { was_in_doubt: true }));
    let new_life = matches!(standing, None | Some(Standing::Absent { .. }));
    let (attempt, life, key_time, dead) = match record {
        None => (0, None, None, DeadNonces::default()),
        Some(record) if new_life => (0, None, None, record.dead),
        Some(record) => (record.attempt, record.life, record.key_time, record.dead),
    };
    let record = Record {
        fingerprint: claim.fingerprint,
        nonce: claim.nonce,
        token: Some(token),
        attempt: attempt.saturating_add(1),
        life: Some(life.unwrap_or_else(|| claim.life.clone())),
        key_time: key_time.or(claim.key_time),
        lease_until: now.after(claim.lease.length()),
        stored: Stored::InFlight,
        since: now,
        dead,
        resolution: None,
    };
    let grant = Grant {
        token,
        attempt: record.attempt,
        lease_left: claim.lease.length(),
        recovery: record.recovery(),
        possible_escape,
    };
    (record, grant)
}

/// Renews the window of a tombstone for a claim that hits it. `Applied` if the record is to be written: it is still one, and it
/// gains enough. A payload that is over and still there is left to the sweep, which sees to it that nothing of it remains.
#[must_use]
pub fn prolong(record: Option<&mut Record>, claim: &Claim, now: Timestamp) -> Settled {
    let Some(record) = record else { return Settled::Superseded };
    let is_tombstone = matches!(record.standing(now), Standing::Tombstone { .. });
    if !is_tombstone || record.fingerprint != claim.fingerprint {
        return Settled::Superseded;
    }
    let Some(window) = prolonged(record, claim, now) else { return Settled::AlreadyApplied };
    if let Some(life) = &mut record.life {
        life.set_tombstone_window(window);
    }
    Settled::Applied
}

/// The tombstone window after a hit by this claim, from completion, if its settings renew it and that is worth a write.
fn prolonged(record: &Record, claim: &Claim, now: Timestamp) -> Option<Duration> {
    let windows = claim.life.windows();
    let cap = windows.renewal_cap()?;
    let stored = record.life.as_ref()?.windows().tombstone();
    let window = (now.since(record.since) + windows.tombstone()).min(cap);
    (window.saturating_sub(stored) >= windows.tombstone() / LEAST_GAIN).then_some(window)
}

/// The part of a tombstone window that a renewal gains at least. It bounds the writes for a key that is asked for all the time.
const LEAST_GAIN: u32 = 100;

/// Completes: late is fine while nobody took over. Never inserts.
#[must_use]
pub fn complete(record: Option<&mut Record>, holder: &Holder, outcome: &Outcome, now: Timestamp) -> Settled {
    let Some(record) = record else { return Settled::Superseded };
    let held = record.is_held_by(holder.token, holder.nonce);
    match record.standing(now) {
        Standing::InFlight { .. } | Standing::LeaseEnded | Standing::InDoubt { .. } if held => {
            record.stored = Stored::Completed(outcome.clone());
            record.since = now;
            Settled::Applied
        }
        Standing::Completed { .. } | Standing::Tombstone { .. } if record.nonce == holder.nonce => {
            Settled::AlreadyApplied
        }
        _ => Settled::Superseded,
    }
}

/// What became of a holder's commit in the effect's transaction, judged when that transaction has ended.
#[must_use]
pub fn fate(record: Option<&Record>, holder: &Holder, now: Timestamp) -> Fate {
    let Some(record) = record else { return Fate::Superseded };
    match record.standing(now) {
        Standing::Completed { .. } | Standing::Tombstone { .. } if record.nonce == holder.nonce => Fate::Committed,
        Standing::InFlight { .. } | Standing::LeaseEnded | Standing::InDoubt { .. }
            if record.is_held_by(holder.token, holder.nonce) =>
        {
            Fate::NotCommitted
        }
        _ => Fate::Superseded,
    }
}

/// Renews: only while the lease has not ended. Never shortens it.
#[must_use]
pub fn renew(record: Option<&mut Record>, holder: &Holder, lease: Lease, now: Timestamp) -> Settled {
    let Some(record) = record else { return Settled::Superseded };
    match record.standing(now) {
        Standing::InFlight { .. } if record.is_held_by(holder.token, holder.nonce) => {
            record.lease_until = record.lease_until.max(now.after(lease.length()));
            Settled::Applied
        }
        _ => Settled::Superseded,
    }
}

/// Releases: the key is free again and the nonce dead for `dead_for`.
#[must_use]
pub fn release(record: Option<&mut Record>, holder: &Holder, dead_for: Duration, now: Timestamp) -> Settled {
    let Some(record) = record else { return Settled::Superseded };
    if record.dead.contains(holder.nonce, now) {
        return Settled::AlreadyApplied;
    }
    match record.standing(now) {
        Standing::InFlight { .. } | Standing::LeaseEnded | Standing::InDoubt { .. }
            if record.is_held_by(holder.token, holder.nonce) =>
        {
            free(record, now);
            record.dead.add(holder.nonce, now.after(dead_for), now);
            Settled::Applied
        }
        _ => Settled::Superseded,
    }
}

/// Marks in doubt, with the answer that was sent if there was one.
#[must_use]
pub fn mark_in_doubt(
    record: Option<&mut Record>,
    holder: &Holder,
    response: Option<&Outcome>,
    now: Timestamp,
) -> Settled {
    let Some(record) = record else { return Settled::Superseded };
    if !record.is_held_by(holder.token, holder.nonce) {
        return Settled::Superseded;
    }
    let since = match record.standing(now) {
        Standing::InFlight { .. } | Standing::LeaseEnded => now,
        Standing::InDoubt { since, response: None } if response.is_some() || record.stored == Stored::InFlight => since,
        Standing::InDoubt { .. } => return Settled::AlreadyApplied,
        _ => return Settled::Superseded,
    };
    record.stored = Stored::InDoubt(response.cloned());
    record.since = since;
    Settled::Applied
}

/// Abandons a claim that its claimer never ran with: frees the record if it carries this nonce, and kills
/// the nonce in every case, on a stub if there is no record.
#[must_use]
pub fn abandon(record: Option<Record>, nonce: Nonce, dead_for: Duration, now: Timestamp) -> Record {
    // A record whose life is over stays as it is: it may still raise a floor, or be a possible escape.
    let mut record = record.unwrap_or_else(|| stub(now));
    let unfinished =
        matches!(record.standing(now), Standing::InFlight { .. } | Standing::LeaseEnded | Standing::InDoubt { .. });
    if unfinished && record.nonce == nonce {
        free(&mut record, now);
    }
    record.dead.add(nonce, now.after(dead_for), now);
    record
}

fn stub(now: Timestamp) -> Record {
    Record {
        fingerprint: Fingerprint::from_bytes([0; 33]),
        nonce: Nonce::from_bytes([0; 16]),
        token: None,
        attempt: 0,
        life: None,
        key_time: None,
        lease_until: now,
        stored: Stored::Released,
        since: now,
        dead: DeadNonces::default(),
        resolution: None,
    }
}

fn free(record: &mut Record, now: Timestamp) {
    record.stored = Stored::Released;
    record.since = now;
}

/// Resolves a record in doubt, if its token is the one the resolver saw. The old attempt's nonce is
/// replaced, so that a late completion cannot contradict the resolution.
pub fn resolve(record: Option<&mut Record>, resolve: &Resolve, now: Timestamp) -> Resolved {
    let Some(record) = record else { return Resolved::Missing };
    let Some(state) = record.state(now) else { return Resolved::Missing };
    if !matches!(record.standing(now), Standing::InDoubt { .. }) {
        return Resolved::NotInDoubt(state);
    }
    if record.token != Some(resolve.token_seen) {
        return Resolved::Superseded;
    }
    record.dead.add(record.nonce, now.after(RESOLVED_NONCE_DEAD_FOR), now);
    record.nonce = Nonce::random();
    record.since = now;
    record.resolution = Some((resolve.who.clone(), resolve.why.clone()));
    match &resolve.verdict {
        ResolveVerdict::Happened(outcome) => record.stored = Stored::Completed(outcome.clone()),
        ResolveVerdict::DidNotHappen { fence_token } => {
            record.stored = Stored::Released;
            record.token = record.token.max(*fence_token);
        }
    }
    Resolved::Applied
}

/// How long the nonce of a resolved attempt stays dead: [`dead_for`](crate::dead_for) of the longest store timeout
/// that makes sense, 30 s.
const RESOLVED_NONCE_DEAD_FOR: Duration = Duration::from_secs(120);

/// What a sweep does with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepStep {
    /// Nothing yet.
    Keep,
    /// Drop the payload: the response window is over.
    DropPayload,
    /// Delete the row.
    Purge {
        /// It was in doubt when it was forgotten: a possible escape.
        was_in_doubt: bool,
    },
}

/// Judges a record for a sweep.
#[must_use]
pub fn sweep(record: &Record, now: Timestamp) -> SweepStep {
    sweep_holding(record, now, TOKEN_HOLD)
}

/// The same with another hold of the token, for a store whose clock cannot step back so far.
#[must_use]
pub fn sweep_holding(record: &Record, now: Timestamp, hold: Duration) -> SweepStep {
    if now > record.kept_until_holding(hold) {
        let was_in_doubt = matches!(record.standing(now), Standing::Absent { was_in_doubt: true });
        return SweepStep::Purge { was_in_doubt };
    }
    match &record.stored {
        Stored::Completed(outcome) if outcome.payload().is_some() && now >= record.response_until() => {
            SweepStep::DropPayload
        }
        _ => SweepStep::Keep,
    }
}
