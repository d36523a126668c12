//! Group commit: what meets in one process goes to the database in one transaction.
//!
//! A commit waits for the disk, and one wait serves any number of records. No two members of a group are about one record, so each
//! is decided as if it were alone; what a member is told, and what goes wrong with it, is its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use idempotency::{KeyClass, Record, RecordId, StoreError, StoreErrorKind, Timestamp};
use sqlx::sqlite::SqliteRow;
use tokio::sync::oneshot;

use super::connections::Deadline;
use super::db::{Db, End, Query, Writing, cached};
use super::short::{self, Short};
use super::{many, row, sql, steps};
use crate::queue::{GROUP_SIZE, Member, Serving, cut_off, shared};
use crate::row::Judged;

impl Db {
    /// What a record is judged by, as of the last commit, whoever is writing meanwhile.
    pub(super) async fn look(self: &Arc<Self>, id: RecordId, class: Option<KeyClass>) -> Result<Judged, StoreError> {
        let (reply, answer) = oneshot::channel();
        if self.looks.push(Look { id, class, reply }) {
            let mut serving = Serving::new(self, |db: &Db| &db.looks);
            tokio::spawn(async move {
                while let Some(looks) = serving.next() {
                    look(&serving.db, looks).await;
                }
            });
        }
        answer.await.unwrap_or_else(|_| Err(cut_off()))
    }

    /// Changes a record: by one statement where that is known to do, else `decide` is given what is there and the clock, both under the write lock, and gives its answer and what to
    /// write, if anything. It may be asked again when nothing came of a group. Carried out whole, or not at all, whether or not
    /// anybody waits for the answer.
    pub(super) async fn change<T, D>(
        self: &Arc<Self>,
        id: RecordId,
        class: Option<KeyClass>,
        shortly: Option<Shortly<T>>,
        decide: D,
    ) -> Result<T, StoreError>
    where
        T: Send + Sync + 'static,
        D: Fn(Judged) -> Result<(T, Option<Written>), StoreError> + Send + Sync + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let deadline = Deadline::after(self.busy_timeout);
        let change = Change { id, class, deadline, shortly, decide, decided: None, reply };
        if self.changes.push(Box::new(change)) {
            let mut serving = Serving::new(self, |db: &Db| &db.changes);
            tokio::spawn(async move {
                while let Some(group) = serving.next() {
                    carry_out(&serving.db, group).await;
                }
            });
        }
        answer.await.unwrap_or_else(|_| Err(cut_off()))
    }
}

/// Somebody who wants to know.
pub(super) struct Look {
    id: RecordId,
    class: Option<KeyClass>,
    reply: oneshot::Sender<Result<Judged, StoreError>>,
}

impl Member for Look {
    fn alone_about(&self) -> Option<&RecordId> {
        None
    }
}

/// Reads for all at once; what goes wrong then is found out for each alone.
async fn look(db: &Db, looks: Vec<Look>) {
    let Err((looks, error)) = look_together(db, looks).await else { return };
    if let [_] = looks.as_slice() {
        return looks.into_iter().for_each(|look| drop(look.reply.send(Err(shared(&error)))));
    }
    for look in looks {
        if let Err((alone, error)) = look_together(db, vec![look]).await {
            alone.into_iter().for_each(|look| drop(look.reply.send(Err(shared(&error)))));
        }
    }
}

async fn look_together(db: &Db, looks: Vec<Look>) -> Result<(), (Vec<Look>, Arc<StoreError>)> {
    let read = || {
        let asked: Vec<row::Asked<'_>> = looks.iter().map(|look| (&look.id, look.class.as_ref())).collect();
        row::read(&asked, db.given_now())
    };
    match db.read(read).await {
        Ok(rows) => {
            let judged = row::all_judged(&rows, looks.len());
            // Whoever does not wait any more does not hear it.
            looks.into_iter().zip(judged).for_each(|(look, judged)| drop(look.reply.send(judged)));
            Ok(())
        }
        Err(error) => Err((looks, Arc::new(error))),
    }
}

/// What a change writes.
pub(super) struct Written {
    pub(super) record: Record,
    /// The class and time of a key whose record is forgotten by it.
    pub(super) floor: Option<(KeyClass, Timestamp)>,
    /// Whether the steps of the record's last life are.
    pub(super) forgets_steps: bool,
}

impl From<Record> for Written {
    fn from(record: Record) -> Self {
        Self { record, floor: None, forgets_steps: false }
    }
}

/// A change that may come to one statement, and the answer when a row came back for it.
pub(super) struct Shortly<T> {
    pub(super) short: Short,
    pub(super) answer: Answer<T>,
}

/// Reads an answer from its row.
type Answer<T> = Box<dyn Fn(&SqliteRow) -> Result<T, StoreError> + Send + Sync>;

/// A change, whatever its answer is.
pub(super) trait AnyChange: Send + Sync {
    fn id(&self) -> &RecordId;
    fn class(&self) -> Option<&KeyClass>;
    fn deadline(&self) -> Deadline;
    fn short(&self) -> Option<&Short>;
    /// Its one statement has carried it out.
    fn carried_out(self: Box<Self>, row: &SqliteRow);
    fn decide(&mut self, judged: Result<Judged, StoreError>) -> Option<Written>;
    /// Says what came of it: what was decided, if its transaction came to its end.
    fn end(self: Box<Self>, ended: Result<(), StoreError>);
}

struct Change<T, D> {
    id: RecordId,
    class: Option<KeyClass>,
    deadline: Deadline,
    shortly: Option<Shortly<T>>,
    decide: D,
    decided: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, D> AnyChange for Change<T, D>
where
    T: Send + Sync,
    D: Fn(Judged) -> Result<(T, Option<Written>), StoreError> + Send + Sync,
{
    fn id(&self) -> &RecordId {
        &self.id
    }

    fn class(&self) -> Option<&KeyClass> {
        self.class.as_ref()
    }

    fn deadline(&self) -> Deadline {
        self.deadline
    }

    fn short(&self) -> Option<&Short> {
        self.shortly.as_ref().map(|shortly| &shortly.short)
    }

    fn carried_out(self: Box<Self>, row: &SqliteRow) {
        let Self { shortly, reply, .. } = *self;
        // Whoever does not wait any more does not hear it.
        drop(reply.send(shortly.map_or_else(|| Err(cut_off()), |shortly| (shortly.answer)(row))));
    }

    fn decide(&mut self, judged: Result<Judged, StoreError>) -> Option<Written> {
        match judged.and_then(&self.decide) {
            Ok((answer, written)) => {
                self.decided = Some(Ok(answer));
                written
            }
            Err(error) => {
                self.decided = Some(Err(error));
                None
            }
        }
    }

    fn end(self: Box<Self>, ended: Result<(), StoreError>) {
        let Self { decided, reply, .. } = *self;
        let answer = ended.and_then(|()| decided.unwrap_or_else(|| Err(cut_off())));
        // Whoever does not wait any more does not hear it.
        drop(reply.send(answer));
    }
}

impl Member for Box<dyn AnyChange> {
    fn alone_about(&self) -> Option<&RecordId> {
        Some(self.id())
    }
}

async fn carry_out(db: &Db, group: Vec<Box<dyn AnyChange>>) {
    metrics::histogram!(GROUP_SIZE).record(u32::try_from(group.len()).unwrap_or(u32::MAX));
    db.met.store(group.len() > 1, Ordering::Relaxed);
    let mut group = shortly(db, group).await;
    match together(db, &mut group).await {
        Err(Failure::NothingHappened(error)) if group.len() > 1 => {
            tracing::debug!(error = &error as &dyn std::error::Error, "a group is carried out one by one");
            for change in group {
                let mut alone = vec![change];
                let ended = together(db, &mut alone).await;
                end(alone, ended);
            }
        }
        ended => end(group, ended),
    }
}

/// Carries out in one trip whatever can be, and gives back those for whom more is to be done.
async fn shortly(db: &Db, mut group: Vec<Box<dyn AnyChange>>) -> Vec<Box<dyn AnyChange>> {
    let mut shorts: Vec<_> = group.extract_if(.., |change| change.short().is_some()).collect();
    let statements = |shorts: &[Box<dyn AnyChange>], given_now| {
        short::transaction(shorts.iter().filter_map(|change| change.short()), given_now)
    };
    match begin(db, &mut shorts, statements).await {
        Ok(Some((transaction, rows))) => {
            transaction.has_ended();
            let carried_out: HashMap<RecordId, &SqliteRow> =
                rows.iter().filter_map(|row| Some((row::id(row).ok()?, row))).collect();
            for change in shorts {
                match carried_out.get(change.id()) {
                    Some(row) => change.carried_out(row),
                    None => group.push(change),
                }
            }
        }
        Ok(None) => {}
        // Nothing came of it; or something did that nobody was told, and then each is told when it is asked again, by its nonce.
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "a group is decided record by record");
            group.append(&mut shorts);
        }
    }
    group
}

fn end(group: Vec<Box<dyn AnyChange>>, ended: Result<(), Failure>) {
    match ended {
        Ok(()) => group.into_iter().for_each(|change| change.end(Ok(()))),
        Err(Failure::NothingHappened(error) | Failure::Unknown(error)) => {
            let error = Arc::new(error);
            group.into_iter().for_each(|change| change.end(Err(shared(&error))));
        }
    }
}

/// Why a transaction did not come to its end.
enum Failure {
    /// It was not begun, or rolled back.
    NothingHappened(StoreError),
    /// Its end failed: it may have been committed.
    Unknown(StoreError),
}

/// Carries out a group in one transaction.
async fn together(db: &Db, group: &mut Vec<Box<dyn AnyChange>>) -> Result<(), Failure> {
    let read = |group: &[Box<dyn AnyChange>], given_now| {
        let asked: Vec<row::Asked<'_>> = group.iter().map(|change| (change.id(), change.class())).collect();
        row::begin_and_read(&asked, given_now)
    };
    let begun = begin(db, group, read).await.map_err(Failure::NothingHappened)?;
    let Some((mut writing, rows)) = begun else { return Ok(()) };
    let judged = row::all_judged(&rows, group.len());
    let decided: Vec<(RecordId, Written)> = group
        .iter_mut()
        .zip(judged)
        .filter_map(|(change, judged)| change.decide(judged).map(|written| (*change.id(), written)))
        .collect();
    match write(&mut writing, &decided).await {
        Ok(end) => writing.finish(Ok(end)).await.map_err(Failure::Unknown),
        Err(error) => writing.finish(Err(error)).await.map_err(Failure::NothingHappened),
    }
}

/// The write lock, and what came of the statements under it. Those whose time is over before it can be had are told so and leave the group; none
/// when all have.
async fn begin<'d>(
    db: &'d Db,
    group: &mut Vec<Box<dyn AnyChange>>,
    statements: impl Fn(&[Box<dyn AnyChange>], Option<i64>) -> Query,
) -> Result<Option<(Writing<'d>, Vec<SqliteRow>)>, StoreError> {
    loop {
        let Some(earliest) = group.iter().map(|change| change.deadline()).min() else { return Ok(None) };
        match db.begin_by(earliest, |given_now| statements(group, given_now)).await {
            Err(error) if error.kind() == StoreErrorKind::Busy && earliest.is_over() => {
                let error = Arc::new(error);
                let over = group.extract_if(.., |change| change.deadline().is_over());
                over.for_each(|change| change.end(Err(shared(&error))));
            }
            begun => return begun.map(Some),
        }
    }
}

/// Everything but the statement that ends the transaction.
async fn write(writing: &mut Writing<'_>, decided: &[(RecordId, Written)]) -> Result<End<()>, StoreError> {
    for (id, written) in decided {
        if let Some((class, key_time)) = &written.floor {
            writing.raise_floor(class, *key_time).await?;
        }
        if written.forgets_steps {
            steps::forget(writing, id).await?;
        }
    }
    let records: Vec<(&RecordId, &Record)> = decided.iter().map(|(id, written)| (id, &written.record)).collect();
    let mut left = match records.as_slice() {
        [] => return Ok(End::Rollback(())),
        [(id, record)] => return Ok(End::Commit(row::write_and_commit(id, record), ())),
        several => several,
    };
    while !left.is_empty() {
        let (now, later) = left.split_at(many::filled_by(left.len()));
        writing.execute(row::write_all(now)).await?;
        left = later;
    }
    Ok(End::Commit(cached(sql::COMMIT), ()))
}
