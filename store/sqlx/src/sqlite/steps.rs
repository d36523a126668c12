//! Steps in SQLite.

use idempotency::outbound::{
    BeginCall, Begun, EndCall, Ended, ListSteps, ResolveStep, StepLabel, StepPage, StepResolved, StepView, Steps,
};
use idempotency::{RecordId, StoreError};
use sqlx::sqlite::SqliteRow;

use super::db::{Db, End, Query, Writing, cached};
use super::{SqliteStore, row, sql};
use crate::step_row::{self, ListedSteps, StepOperation};

/// Each operation is one `BEGIN IMMEDIATE` transaction: read record, step and call, let the protocol decide, write step and call back.
impl Steps for SqliteStore {
    async fn begin_call(&self, ask: &BeginCall) -> Result<Begun, StoreError> {
        let ask = ask.clone();
        self.run(move |db| async move { change(&db, &ask).await }).await
    }

    async fn end_call(&self, report: &EndCall) -> Result<Ended, StoreError> {
        let report = report.clone();
        self.run(move |db| async move { change(&db, &report).await }).await
    }

    async fn resolve_step(&self, resolve: &ResolveStep) -> Result<StepResolved, StoreError> {
        let resolve = resolve.clone();
        self.run(move |db| async move { change(&db, &resolve).await }).await
    }

    async fn inspect_step(&self, id: &RecordId, label: &StepLabel) -> Result<Option<StepView>, StoreError> {
        let (id, label) = (*id, label.clone());
        self.run(move |db| async move {
            let inspect = || step_row::key(cached(sql::STEP_INSPECT).bind(db.given_now()), &id, &label);
            let step = db.read(inspect).await?;
            let calls = db.read(|| step_row::key(cached(sql::CALL_LIST), &id, &label)).await?;
            step_row::view(&step, &calls)
        })
        .await
    }

    async fn list_steps(&self, list: &ListSteps) -> Result<StepPage, StoreError> {
        let list = list.clone();
        self.run(move |db| async move { step_row::list(&*db, &list).await }).await
    }
}

async fn change<O: StepOperation>(db: &Db, operation: &O) -> Result<O::Answer, StoreError> {
    let (mut writing, rows) = db.begin(|given_now| row::begin_and_read(&[(operation.id(), None)], given_now)).await?;
    let end = decide(&mut writing, &rows, operation).await;
    writing.finish(end).await
}

async fn decide<O: StepOperation>(
    writing: &mut Writing<'_>,
    rows: &[SqliteRow],
    operation: &O,
) -> Result<End<O::Answer>, StoreError> {
    let judged = row::judged(rows)?;
    let now = judged.now;
    let record = judged.record()?;
    let (id, label) = (operation.id(), operation.label());
    let step = step_row::step(&writing.fetch_all(step_row::key(cached(sql::STEP_READ), id, label)).await?)?;
    let call = match operation.nonce() {
        Some(nonce) => {
            let read: Query = step_row::key(cached(sql::CALL_READ), id, label).bind(nonce.as_bytes().to_vec());
            step_row::call(&writing.fetch_all(read).await?)?
        }
        None => None,
    };
    let (answer, written) = operation.decide(record.as_ref(), step.as_ref(), call.as_ref(), now);
    if written.is_nothing() {
        return Ok(End::Rollback(answer));
    }
    if let Some(step) = &written.step {
        writing.execute(step_row::write_step(cached(sql::STEP_WRITE), id, label, step)).await?;
    }
    if let (Some(call), Some(nonce)) = (&written.call, operation.nonce()) {
        writing.execute(step_row::write_call(cached(sql::CALL_WRITE), id, label, nonce, call)).await?;
    }
    Ok(End::Commit(cached(sql::COMMIT), answer))
}

/// Forgets the steps of a record, with it or when a new life of its key begins.
pub(super) async fn forget(writing: &mut Writing<'_>, id: &RecordId) -> Result<(), StoreError> {
    writing.execute(cached(sql::STEP_DELETE).bind(id.as_bytes().to_vec())).await?;
    writing.execute(cached(sql::CALL_DELETE).bind(id.as_bytes().to_vec())).await
}

impl ListedSteps for Db {
    type Row = SqliteRow;

    async fn steps_after(
        &self,
        id: Option<RecordId>,
        after: Option<&(RecordId, StepLabel)>,
        limit: usize,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let (after, label) =
            after.map_or((Vec::new(), Vec::new()), |(id, label)| (id.as_bytes().to_vec(), label.as_str().into()));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let read = || {
            cached(sql::STEP_LIST)
                .bind(self.given_now())
                .bind(after.clone())
                .bind(label.clone())
                .bind(id.map(|id| id.as_bytes().to_vec()))
                .bind(limit)
        };
        self.read(read).await
    }
}
