//! Steps in MySQL and MariaDB.

use idempotency::outbound::{
    BeginCall, Begun, EndCall, Ended, ListSteps, ResolveStep, StepLabel, StepPage, StepResolved, StepView, Steps,
};
use idempotency::{RecordId, StoreError};
use sqlx::mysql::MySqlRow;

use super::db::{Db, Tries, Writing};
use super::error::Failure;
use super::{MySqlStore, operations, sql};
use crate::step_row::{self, ListedSteps, StepOperation};

/// Each operation is one short READ COMMITTED transaction that locks the record's row, reads record, step and call, lets the protocol
/// decide, and writes step and call. The record's row is not written.
impl Steps for MySqlStore {
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
            let inspect = step_row::key(db.timed(sql::STEP_INSPECT), &id, &label);
            let step = db.read(inspect).await.map_err(Failure::into_store_error)?;
            let calls = db.read(step_row::key(sqlx::query(sql::CALL_LIST), &id, &label)).await;
            step_row::view(&step, &calls.map_err(Failure::into_store_error)?)
        })
        .await
    }

    async fn list_steps(&self, list: &ListSteps) -> Result<StepPage, StoreError> {
        let list = list.clone();
        self.run(move |db| async move { step_row::list(&*db, &list).await }).await
    }
}

async fn change<O: StepOperation>(db: &Db, operation: &O) -> Result<O::Answer, StoreError> {
    let mut tries = Tries::new();
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
    let step = step_row::step(&writing.fetch_all(step_row::key(sqlx::query(sql::STEP_READ), id, label)).await?)?;
    let call = match operation.nonce() {
        Some(nonce) => {
            let read = step_row::key(sqlx::query(sql::CALL_READ), id, label).bind(nonce.as_bytes().to_vec());
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
        writing.execute(step_row::write_step(sqlx::query(sql::STEP_WRITE), id, label, step)).await?;
    }
    if let (Some(call), Some(nonce)) = (&written.call, operation.nonce()) {
        writing.execute(step_row::write_call(sqlx::query(sql::CALL_WRITE), id, label, nonce, call)).await?;
    }
    writing.commit().await?;
    Ok(answer)
}

/// Forgets the steps of a record, with it or when a new life of its key begins.
pub(super) async fn forget(writing: &mut Writing, id: &RecordId) -> Result<(), Failure> {
    writing.execute(sqlx::query(sql::STEP_DELETE).bind(id.as_bytes().to_vec())).await?;
    writing.execute(sqlx::query(sql::CALL_DELETE).bind(id.as_bytes().to_vec())).await.map(drop)
}

impl ListedSteps for Db {
    type Row = MySqlRow;

    async fn steps_after(
        &self,
        id: Option<RecordId>,
        after: Option<&(RecordId, StepLabel)>,
        limit: usize,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        let (after, label) =
            after.map_or((Vec::new(), Vec::new()), |(id, label)| (id.as_bytes().to_vec(), label.as_str().into()));
        let id = id.map(|id| id.as_bytes().to_vec());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let read = self.timed(sql::STEP_LIST).bind(after).bind(label).bind(id.clone()).bind(id).bind(limit);
        self.read(read).await.map_err(Failure::into_store_error)
    }
}
