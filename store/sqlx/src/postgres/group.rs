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
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Executor, Row};
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
    /// An answer each, in their order: they are ordered by their ids. Several are asked for in one statement, in which each row is waited for only shortly.
    fn ask(
        db: &Db,
        connection: &mut PgConnection,
        all: &[Self],
    ) -> impl Future<Output = Result<Vec<Result<Self::Answer, Failure>>, Failure>> + Send;
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
    let answers = ask(db, &all).await.unwrap_or_else(|failure| failed(failure, all.len()));
    // Whoever does not wait any more does not hear it.
    replies.into_iter().zip(answers).for_each(|(reply, answer)| drop(reply.send(answer)));
}

/// On one connection, and in one transaction if statements may not stand alone.
async fn ask<J: Joint>(db: &Db, all: &[J]) -> Result<Vec<Result<J::Answer, Failure>>, Failure> {
    let mut lent = db.connections.lend().await?;
    let mut session = lent.session(db.beginning(0)).await?;
    let answers = J::ask(db, session.connection(), all).await?;
    session.end().await?;
    if answers.iter().all(Result::is_ok) {
        db.connections.take_back(lent);
    }
    Ok(answers)
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
    /// The record as it is, or none: the age of the key does not allow it, or it was purged at that moment.
    Record(Box<Judged>),
    /// The key is too old, whatever the clock says.
    TooOld,
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

    async fn ask(db: &Db, connection: &mut PgConnection, all: &[Self]) -> Result<Vec<Result<Found, Failure>>, Failure> {
        let statement = if let [one] = all { one.alone(db) } else { claims(db, all, SHORT_WAIT) };
        let rows = connection.fetch_all(statement).await?;
        let granted = by_id(&rows);
        let found = |asked: &Self| asked.grant_in(&granted).map(|grant| grant.map(Found::Granted)).transpose();
        let mut found: Vec<Option<Result<Found, Failure>>> = all.iter().map(found).collect();
        let others = all.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(asked, _)| asked);
        let mut ids: Vec<&[u8]> = others.map(|asked| asked.id().as_bytes().as_slice()).collect();
        ids.dedup();
        if !ids.is_empty() {
            // Somebody has them. Only now: a statement that did both would cost every first request what it costs a duplicate.
            let others = found.iter_mut().zip(all).filter(|(found, _)| found.is_none());
            match connection.fetch_all(db.timed(sql::READ_RECORDS).bind(ids)).await {
                Ok(rows) => {
                    let records = by_id(&rows);
                    others.for_each(|(found, asked)| *found = Some(asked.record_in(&records)));
                }
                // What a statement that stands alone has granted is granted.
                Err(error) if db.may_stand_alone(0) => {
                    let others: Vec<_> = others.collect();
                    let told = failed(error.into(), others.len());
                    others.into_iter().zip(told).for_each(|((found, _), failure)| *found = Some(failure));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}

/// The statement for any number of claims, ordered by their ids; of several about one record the first one is asked for.
fn claims(db: &Db, all: &[Asked], wait: &'static str) -> Query {
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

fn by_id(rows: &[PgRow]) -> HashMap<&[u8], &PgRow> {
    rows.iter().filter_map(|row| Some((row.try_get::<&[u8], _>("asked").ok()?, row))).collect()
}

impl Asked {
    /// The statement for this one, and nothing about its age.
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

    /// The statement for this one, of any age.
    pub(super) fn aged(&self, db: &Db) -> Query {
        claims(db, std::slice::from_ref(self), WAIT)
    }

    /// What one of these rows grants it.
    pub(super) fn granted(&self, rows: &[PgRow]) -> Result<Option<Grant>, Failure> {
        self.grant_in(&by_id(rows))
    }

    /// None: it is not granted, or to somebody else of the group.
    fn grant_in(&self, granted: &HashMap<&[u8], &PgRow>) -> Result<Option<Grant>, Failure> {
        let Self(claim) = self;
        let Some(row) = granted.get(claim.id.as_bytes().as_slice()) else { return Ok(None) };
        if row.try_get::<&[u8], _>("granted_to")? != claim.nonce.as_bytes() {
            return Ok(None);
        }
        let token = row::token(row.try_get("granted")?)
            .ok_or_else(|| StoreError::new(StoreErrorKind::Refused, "the server's clock is beyond all tokens"))?;
        Ok(Some(Grant {
            token,
            attempt: 1,
            lease_left: claim.lease.length(),
            recovery: claim.life.recovery(),
            possible_escape: false,
        }))
    }

    /// Its record among these.
    fn record_in(&self, records: &HashMap<&[u8], &PgRow>) -> Result<Found, Failure> {
        let row = records.get(self.id().as_bytes().as_slice()).ok_or_else(Failure::changed)?;
        Ok(Found::Record(row::judged(std::slice::from_ref(*row))?.into()))
    }
}

/// A completion by whoever holds the record.
pub(super) struct Completion {
    pub(super) holder: Holder,
    pub(super) outcome: Outcome,
}

impl Completion {
    /// The statement for this one.
    pub(super) fn alone(&self, db: &Db) -> Query {
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

    async fn ask(db: &Db, connection: &mut PgConnection, all: &[Self]) -> Result<Vec<Result<bool, Failure>>, Failure> {
        let statement = match all {
            [one] => one.alone(db),
            all => completions(db, &all.iter().collect::<Vec<_>>(), Some(SHORT_WAIT), false),
        };
        let rows = connection.fetch_all(statement).await?;
        let completed: HashSet<&[u8]> = rows.iter().filter_map(|row| row.try_get("id").ok()).collect();
        Ok(all.iter().map(|one| Ok(completed.contains(one.id().as_bytes().as_slice()))).collect())
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
