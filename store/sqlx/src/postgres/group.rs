//! Claims and completions that meet in one process go to the database in one statement.
//!
//! A statement has its own cost, beside that of the rows that it writes, and a commit waits for the disk: both are shared. A statement names no record
//! twice: of several claims of one key the first one asks, and the others read along. What a member is told is its own, and so is what goes wrong with
//! it: a group that fails, or that waits for somebody else's row, is carried out one by one. What takes long leaves its place to others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use idempotency::time::micros;
use idempotency::{Claim, Grant, Holder, Outcome, RecordId, StoreError, StoreErrorKind, TOKEN_HOLD, Timestamp};
use sqlx::Row;
use sqlx::postgres::PgRow;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::db::{Db, Query};
use super::error::Failure;
use super::sql;
use crate::queue::{GROUP_SIZE, Member, Queue, Serving, cut_off, shared};
use crate::row::{self, Judged};

/// Something that many can be asked for in one statement.
pub(super) trait Joint: Send + Sync + Sized + 'static {
    type Answer: Send;

    /// Whether no two may be about one record.
    const IS_ALONE: bool;

    fn id(&self) -> &RecordId;
    /// How many bytes it brings, about.
    fn weight(&self) -> usize {
        0
    }
    fn queue(db: &Db) -> &Queue<Waiting<Self>>;
    /// The statement for one.
    fn alone(&self, db: &Db) -> Query;
    /// The statement for all of them, in which each row is waited for so long.
    fn all(db: &Db, all: &[Self], wait: &'static str) -> Query;
    /// An answer each, in their order.
    fn answers(all: &[Self], rows: &[PgRow]) -> Vec<Result<Self::Answer, Failure>>;
}

/// Somebody who waits for an answer.
pub(super) struct Waiting<J: Joint> {
    asked: J,
    since: Instant,
    reply: oneshot::Sender<Result<J::Answer, Failure>>,
}

impl<J: Joint> Member for Waiting<J> {
    fn alone_about(&self) -> Option<&RecordId> {
        J::IS_ALONE.then(|| self.asked.id())
    }

    fn weight(&self) -> usize {
        self.asked.weight()
    }
}

impl Db {
    /// Asks, together with whoever else asks meanwhile. [`Failure::Again`] is to be asked alone. To be called in a task of its own, which
    /// nobody drops.
    pub(super) async fn together<J: Joint>(self: &Arc<Self>, asked: J) -> Result<J::Answer, Failure> {
        let (reply, answer) = oneshot::channel();
        if J::queue(self).push(Waiting { asked, since: Instant::now(), reply }) {
            let mut serving = Serving::new(self, J::queue);
            // Here, without the way to another task and back.
            if let Some(group) = serving.next() {
                serve(self, group).await;
            }
            let mut next = serving.next();
            if next.is_some() {
                tokio::spawn(async move {
                    while let Some(group) = next {
                        serve(&serving.db, group).await;
                        next = serving.next();
                    }
                });
            }
        }
        answer.await.unwrap_or_else(|_| Err(cut_off().into()))
    }
}

/// Carries out a group, or sees to it that it is, if it takes long: it waits for a row, or for a connection, and others need not.
async fn serve<J: Joint>(db: &Arc<Db>, group: Vec<Waiting<J>>) {
    let db = Arc::clone(db);
    let mut work = Box::pin(async move { carry_out(&db, group).await });
    if timeout(LONG, &mut work).await.is_err() {
        tokio::spawn(work);
    }
}

async fn carry_out<J: Joint>(db: &Db, mut group: Vec<Waiting<J>>) {
    for late in group.extract_if(.., |waiting| waiting.since.elapsed() > db.patience) {
        // What is late may be given up by now; it must not come after that is forgotten.
        drop(late.reply.send(Err(StoreError::new(StoreErrorKind::Unavailable, "no connection in time").into())));
    }
    if group.is_empty() {
        return;
    }
    metrics::histogram!(GROUP_SIZE).record(u32::try_from(group.len()).unwrap_or(u32::MAX));
    // In one order in all processes, so that two groups do not wait for each other.
    group.sort_unstable_by_key(|waiting| *waiting.asked.id());
    let (all, replies): (Vec<J>, Vec<_>) = group.into_iter().map(|waiting| (waiting.asked, waiting.reply)).unzip();
    let statement = if let [one] = all.as_slice() { one.alone(db) } else { J::all(db, &all, SHORT_WAIT) };
    let answers = match db.alone(0, statement).await {
        Ok(rows) => J::answers(&all, &rows),
        Err(failure) => failed(failure, all.len()),
    };
    // Whoever does not wait any more does not hear it.
    replies.into_iter().zip(answers).for_each(|(reply, answer)| drop(reply.send(answer)));
}

/// What so many are told of a failure that may be of one of them.
fn failed<T>(failure: Failure, members: usize) -> Vec<Result<T, Failure>> {
    if members == 1 {
        return vec![Err(failure)];
    }
    let is_of_all = matches!(&failure, Failure::Store(error) if error.kind() == StoreErrorKind::Unavailable);
    let error = Arc::new(failure.into_store_error());
    tracing::debug!(error = &error as &dyn std::error::Error, members, "a group failed");
    let told = || if is_of_all { shared(&error).into() } else { Failure::Again(shared(&error).into()) };
    (0..members).map(|_| Err(told())).collect()
}

/// A claim of a key that nobody may have yet.
pub(super) struct Asked(pub(super) Claim);

/// What a claim finds.
pub(super) enum Found {
    /// Nobody had the key: now it has.
    Granted(Grant),
    /// The record as it is.
    Record(Box<Judged>),
    /// The key is too old, whatever the clock says.
    TooOld,
    /// Nothing of these: the age of the key does not allow it, or somebody else has just claimed it.
    Nothing,
}

impl Joint for Asked {
    type Answer = Found;

    /// The first one asks, and the others read along.
    const IS_ALONE: bool = false;

    fn id(&self) -> &RecordId {
        &self.0.id
    }

    fn queue(db: &Db) -> &Queue<Waiting<Self>> {
        &db.claims
    }

    fn alone(&self, db: &Db) -> Query {
        let Self(claim) = self;
        let windows = claim.life.windows();
        db.timed(sql::CLAIM)
            .bind(row::FORMAT)
            .bind(micros(TOKEN_HOLD))
            .bind(claim.id.as_bytes().as_slice())
            .bind(claim.fingerprint.to_bytes().as_slice())
            .bind(claim.nonce.as_bytes().as_slice())
            .bind(micros(claim.lease.length()))
            .bind(row::recovery_name(claim.life.recovery()))
            .bind(micros(windows.response()))
            .bind(micros(windows.tombstone()))
            .bind(row::early(&claim.life).map(micros))
    }

    fn all(db: &Db, all: &[Self], wait: &'static str) -> Query {
        let columns = db.timed(sql::CLAIM_ALL).bind(row::FORMAT).bind(micros(TOKEN_HOLD)).bind(wait);
        let first: Vec<&Claim> = all.chunk_by(|one, next| one.id() == next.id()).map(|same| &same[0].0).collect();
        let column = |blob: fn(&Claim) -> Vec<u8>| first.iter().map(|claim| blob(claim)).collect::<Vec<_>>();
        let number = |number: fn(&Claim) -> Option<i64>| first.iter().map(|claim| number(claim)).collect::<Vec<_>>();
        let recoveries: Vec<_> = first.iter().map(|claim| row::recovery_name(claim.life.recovery())).collect();
        let classes: Vec<_> = first.iter().map(|claim| Some(claim.life.age()?.class.as_str())).collect();
        columns
            .bind(column(|claim| claim.id.as_bytes().to_vec()))
            .bind(column(|claim| claim.fingerprint.to_bytes().to_vec()))
            .bind(column(|claim| claim.nonce.as_bytes().to_vec()))
            .bind(number(|claim| Some(micros(claim.lease.length()))))
            .bind(recoveries)
            .bind(number(|claim| Some(micros(claim.life.windows().response()))))
            .bind(number(|claim| Some(micros(claim.life.windows().tombstone()))))
            .bind(number(|claim| row::early(&claim.life).map(micros)))
            .bind(number(|claim| Some(micros(claim.life.age()?.max_age))))
            .bind(number(|claim| Some(micros(claim.life.age()?.drift))))
            .bind(classes)
            .bind(number(|claim| claim.key_time.map(Timestamp::micros)))
    }

    fn answers(all: &[Self], rows: &[PgRow]) -> Vec<Result<Found, Failure>> {
        let rows: HashMap<&[u8], &PgRow> =
            rows.iter().filter_map(|row| Some((row.try_get::<&[u8], _>("asked").ok()?, row))).collect();
        let found = |asked: &Self| match rows.get(asked.id().as_bytes().as_slice()) {
            Some(row) => asked.found(row),
            None => Ok(Found::Nothing),
        };
        all.iter().map(found).collect()
    }
}

impl Asked {
    fn found(&self, row: &PgRow) -> Result<Found, Failure> {
        let Self(claim) = self;
        let Some(token) = row.try_get::<Option<i64>, _>("granted")? else {
            let judged = row::judged(std::slice::from_ref(row))?;
            return Ok(if judged.is_there() { Found::Record(judged.into()) } else { Found::Nothing });
        };
        if row.try_get::<&[u8], _>("granted_to")? != claim.nonce.as_bytes() {
            // To somebody else of the group.
            return Ok(Found::Nothing);
        }
        let token = row::token(token)
            .ok_or_else(|| StoreError::new(StoreErrorKind::Refused, "the server's clock is beyond all tokens"))?;
        Ok(Found::Granted(Grant {
            token,
            attempt: 1,
            lease_left: claim.lease.length(),
            recovery: claim.life.recovery(),
            possible_escape: false,
        }))
    }
}

/// A completion by whoever holds the record.
pub(super) struct Completion {
    pub(super) holder: Holder,
    pub(super) outcome: Outcome,
}

impl Completion {
    /// The statement in the transaction that was begun for the effect, and in no other.
    pub(super) fn within(&self, db: &Db) -> Query {
        completions(db, &[self], None, true)
    }
}

impl Joint for Completion {
    /// Whether it held it.
    type Answer = bool;

    const IS_ALONE: bool = true;

    fn id(&self) -> &RecordId {
        &self.holder.id
    }

    fn weight(&self) -> usize {
        self.outcome.payload().map_or(0, |payload| payload.len())
    }

    fn queue(db: &Db) -> &Queue<Waiting<Self>> {
        &db.completions
    }

    fn alone(&self, db: &Db) -> Query {
        let Self { holder, outcome } = self;
        db.timed(sql::COMPLETE)
            .bind(row::FORMAT)
            .bind(holder.id.as_bytes().as_slice())
            .bind(holder.nonce.as_bytes().as_slice())
            .bind(row::token_number(holder.token))
            .bind(i64::from(outcome.status()))
            .bind(outcome.location())
            .bind(outcome.payload().map(AsRef::<[u8]>::as_ref))
    }

    fn all(db: &Db, all: &[Self], wait: &'static str) -> Query {
        completions(db, &all.iter().collect::<Vec<_>>(), Some(wait), false)
    }

    fn answers(all: &[Self], rows: &[PgRow]) -> Vec<Result<bool, Failure>> {
        let completed: HashSet<&[u8]> = rows.iter().filter_map(|row| row.try_get("id").ok()).collect();
        all.iter().map(|one| Ok(completed.contains(one.id().as_bytes().as_slice()))).collect()
    }
}

fn completions(db: &Db, all: &[&Completion], wait: Option<&'static str>, in_begun: bool) -> Query {
    let ids: Vec<_> = all.iter().map(|one| one.holder.id.as_bytes().as_slice()).collect();
    let nonces: Vec<_> = all.iter().map(|one| one.holder.nonce.as_bytes().as_slice()).collect();
    let tokens: Vec<_> = all.iter().map(|one| row::token_number(one.holder.token)).collect();
    let statuses: Vec<_> = all.iter().map(|one| i64::from(one.outcome.status())).collect();
    let locations: Vec<_> = all.iter().map(|one| one.outcome.location()).collect();
    let payloads: Vec<_> = all.iter().map(|one| one.outcome.payload().map(AsRef::<[u8]>::as_ref)).collect();
    let columns = db.timed(sql::COMPLETE_ALL).bind(row::FORMAT).bind(wait).bind(in_begun);
    columns.bind(ids).bind(nonces).bind(tokens).bind(statuses).bind(locations).bind(payloads)
}

/// How many groups of a kind are under way at once.
pub(super) const SERVERS: usize = 2;

/// The most members of a group.
pub(super) const MOST: usize = 32;

/// For somebody else's row: what `begin.sql` has, and what connections of our own begin with.
pub(super) const WAIT: &str = "5s";

/// The same where others would wait along.
const SHORT_WAIT: &str = "100ms";

/// How long a group keeps its place.
const LONG: Duration = Duration::from_millis(100);
