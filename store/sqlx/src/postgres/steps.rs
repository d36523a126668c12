//! Steps in PostgreSQL.

use idempotency::outbound::{
    BeginCall, Begun, EndCall, Ended, ListSteps, ResolveStep, StepLabel, StepPage, StepResolved, StepView, Steps,
};
use idempotency::{RecordId, StoreError};
use sqlx::postgres::PgRow;

use super::db::{Db, Tries, Writing};
use super::error::Failure;
use super::{PostgresStore, listing, operations, sql};
use crate::step_row::{self, ListedSteps, StepOperation};

/// Each operation is one short transaction that locks the record's row, reads record, step and call, lets the protocol decide, and
/// writes step and call. The record's row is not written: a handler's own transaction at REPEATABLE READ does not notice.
impl Steps for PostgresStore {
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
            let step = listing::read(&db, || step_row::key(db.timed(sql::STEP_INSPECT), &id, &label)).await?;
            let calls = listing::read(&db, || step_row::key(db.query(sql::CALL_LIST), &id, &label)).await?;
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
    let mut tries = Tries::default();
    loop {
        let answer = change_once(db, operation).await;
        if let Some(answer) = tries.judge(answer).await? {
            return Ok(answer);
        }
    }
}

async fn change_once<O: StepOperation>(db: &Db, operation: &O) -> Result<O::Answer, Failure> {
    let (id, label) = (operation.id(), operation.label());
    let (mut writing, judged) = operations::lock(db, id, None).await?;
    let now = judged.now;
    let record = judged.record()?;
    let step = step_row::step(&writing.fetch_all(step_row::key(db.query(sql::STEP_READ), id, label)).await?)?;
    let call = match operation.nonce() {
        Some(nonce) => {
            let read = step_row::key(db.query(sql::CALL_READ), id, label).bind(nonce.as_bytes().to_vec());
            step_row::call(&writing.fetch_all(read).await?)?
        }
        None => None,
    };
    let (answer, written) = operation.decide(record.as_ref(), step.as_ref(), call.as_ref(), now);
    if written.is_nothing() {
        writing.rollback().await?;
        return Ok(answer);
    }
    if let Some(step) = &written.step {
        writing.execute(step_row::write_step(db.query(sql::STEP_WRITE), id, label, step)).await?;
    }
    if let (Some(call), Some(nonce)) = (&written.call, operation.nonce()) {
        writing.execute(step_row::write_call(db.query(sql::CALL_WRITE), id, label, nonce, call)).await?;
    }
    writing.commit().await?;
    Ok(answer)
}

/// Forgets the steps of records, with them or when a new life of a key begins.
pub(super) async fn forget(writing: &mut Writing<'_>, ids: Vec<Vec<u8>>) -> Result<(), Failure> {
    writing.execute(writing.db.query(sql::STEP_DELETE).bind(ids.clone())).await?;
    writing.execute(writing.db.query(sql::CALL_DELETE).bind(ids)).await.map(drop)
}

impl ListedSteps for Db {
    type Row = PgRow;

    async fn steps_after(
        &self,
        id: Option<RecordId>,
        after: Option<&(RecordId, StepLabel)>,
        limit: usize,
    ) -> Result<Vec<PgRow>, StoreError> {
        let (after, label) =
            after.map_or((Vec::new(), Vec::new()), |(id, label)| (id.as_bytes().to_vec(), label.as_str().into()));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let read = || {
            self.timed(sql::STEP_LIST)
                .bind(after.clone())
                .bind(label.clone())
                .bind(id.map(|id| id.as_bytes().to_vec()))
                .bind(limit)
        };
        listing::read(self, read).await
    }
}
