//! A store that misbehaves on command, for testing whatever stands on a store, of records or of leases.
//!
//! ```
//! use idempotency::faults::{Fault, FaultyStore, Op};
//! use idempotency_memory::MemoryStore;
//!
//! let store = FaultyStore::new(MemoryStore::new());
//! store.next(Op::Complete, Fault::LoseReply); // the next completion is applied, and answers with an error
//! assert_eq!(store.calls(Op::Complete), 0);
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::outbound::{
    BeginCall, Begun, EndCall, Ended, ListSteps, ResolveStep, StepLabel, StepPage, StepResolved, StepView, Steps,
};
use crate::transaction::{CommitFailure, Fate, Opening, TransactionalStore};
use crate::watch::{Watch, Watchers};
use crate::{
    Acquired, Ask, Claim, Claimed, Entry, Holder, Lease, LeaseEntry, LeaseHolder, Leases, List, Nonce, Outcome, Page,
    RecordId, Resolve, Resolved, Resource, Settled, Store, StoreError, StoreErrorKind, Swept,
};

/// An operation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the operations of `Store`, `Leases`, `TransactionalStore` and `Steps`")]
#[non_exhaustive]
pub enum Op {
    Claim,
    TryAcquire,
    Renew,
    Complete,
    Release,
    MarkInDoubt,
    Abandon,
    Resolve,
    Watch,
    Inspect,
    List,
    Sweep,
    OpenTransaction,
    RecordIn,
    CommitTransaction,
    Fate,
    BeginCall,
    EndCall,
    ResolveStep,
    InspectStep,
    ListSteps,
}

/// What goes wrong with one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is not carried out and fails at once.
    Fail,
    /// It is not carried out, and fails at once with an error of this kind.
    FailAs(StoreErrorKind),
    /// The connection turns out to be broken: it is not carried out, and fails as a pool does whose server went away.
    Disconnect,
    /// The same, but what was sent arrives so much later and is carried out then.
    DisconnectLate(Duration),
    /// It is carried out, and its reply is lost to an error.
    LoseReply,
    /// It is not carried out and never answers.
    Stall,
    /// It is carried out, and its reply never comes.
    StallReply,
    /// It is carried out so much later, whatever became of its caller, and its reply comes then.
    Late(Duration),
    /// It is carried out now, and its reply comes so much later.
    LateReply(Duration),
}

/// A store that misbehaves on command. Clones share the store and the plan.
#[derive(Debug)]
pub struct FaultyStore<S> {
    store: Arc<S>,
    plan: Arc<Mutex<Plan>>,
    /// Where those sit that are told of nothing.
    deaf: Watchers<()>,
}

#[derive(Debug, Default)]
struct Plan {
    next: HashMap<Op, VecDeque<Fault>>,
    always: HashMap<Op, Fault>,
    calls: HashMap<Op, usize>,
}

impl<S> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), plan: Arc::clone(&self.plan), deaf: self.deaf.clone() }
    }
}

impl<S> FaultyStore<S> {
    /// Behaves until told otherwise.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store), plan: Arc::default(), deaf: Watchers::new() }
    }

    /// The store inside.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// The next `op` for which nothing is planned yet goes wrong like this.
    pub fn next(&self, op: Op, fault: Fault) {
        self.plan.lock().next.entry(op).or_default().push_back(fault);
    }

    /// Every `op` for which nothing else is planned goes wrong like this, until `heal`.
    pub fn always(&self, op: Op, fault: Fault) {
        self.plan.lock().always.insert(op, fault);
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        let mut plan = self.plan.lock();
        plan.next.clear();
        plan.always.clear();
    }

    /// How often `op` was asked for, whatever came of it.
    #[must_use]
    pub fn calls(&self, op: Op) -> usize {
        self.plan.lock().calls.get(&op).copied().unwrap_or(0)
    }

    /// How often any operation was asked for.
    #[must_use]
    pub fn all_calls(&self) -> usize {
        self.plan.lock().calls.values().sum()
    }

    fn fault(&self, op: Op) -> Option<Fault> {
        let mut plan = self.plan.lock();
        *plan.calls.entry(op).or_default() += 1;
        let next = plan.next.get_mut(&op).and_then(VecDeque::pop_front);
        next.or_else(|| plan.always.get(&op).copied())
    }

    /// One that fails is told that there are no hints; whatever else goes wrong, hints are promised and never come.
    fn watch(&self, watch: impl FnOnce(&S) -> Watch) -> Watch {
        match self.fault(Op::Watch) {
            None => watch(&self.store),
            Some(Fault::Fail | Fault::FailAs(_) | Fault::Disconnect) => Watch::none(),
            Some(_) => self.deaf.watch(&()),
        }
    }

    async fn run<T, F>(&self, op: Op, call: impl FnOnce(Arc<S>) -> F + Send) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let fault = self.fault(op);
        // Boxed: each of the arms below would have room for it on the stack.
        let work = Box::pin(call(Arc::clone(&self.store)));
        match fault {
            None => work.await,
            Some(Fault::Disconnect) => Err(cut_off()),
            Some(Fault::DisconnectLate(delay)) => {
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    work.await
                });
                Err(cut_off())
            }
            Some(Fault::Fail) => Err(failed("the operation was made to fail")),
            Some(Fault::FailAs(kind)) => Err(StoreError::new(kind, "the operation was made to fail")),
            Some(Fault::LoseReply) => {
                work.await?;
                Err(StoreError::new(StoreErrorKind::Timeout, "the reply was made to be lost"))
            }
            Some(Fault::Stall) => std::future::pending().await,
            Some(Fault::StallReply) => {
                work.await?;
                std::future::pending().await
            }
            Some(Fault::LateReply(delay)) => {
                let answer = work.await;
                tokio::time::sleep(delay).await;
                answer
            }
            Some(Fault::Late(delay)) => {
                let late = tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    work.await
                });
                late.await
                    .unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout, "the late operation was cut off")))
            }
        }
    }
}

fn cut_off() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "made to be cut off")
}

fn failed(what: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Busy, what)
}

impl<S: Store> Store for FaultyStore<S> {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let claim = claim.clone();
        self.run(Op::Claim, |store| async move { store.claim(&claim).await }).await
    }

    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        let holder = *holder;
        self.run(Op::Renew, move |store| async move { store.renew(&holder, lease).await }).await
    }

    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        let (holder, outcome) = (*holder, outcome.clone());
        self.run(Op::Complete, move |store| async move { store.complete(&holder, &outcome).await }).await
    }

    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        let holder = *holder;
        self.run(Op::Release, move |store| async move { store.release(&holder, dead_for).await }).await
    }

    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        let (holder, response) = (*holder, response.cloned());
        let call = move |store: Arc<S>| async move { store.mark_in_doubt(&holder, response.as_ref()).await };
        self.run(Op::MarkInDoubt, call).await
    }

    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        let id = *id;
        self.run(Op::Abandon, move |store| async move { store.abandon(&id, nonce, dead_for).await }).await
    }

    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        let resolve = resolve.clone();
        self.run(Op::Resolve, move |store| async move { store.resolve(&resolve).await }).await
    }

    fn watch(&self, id: &RecordId) -> Watch {
        self.watch(|store| store.watch(id))
    }

    async fn inspect(&self, id: &RecordId) -> Result<Option<Entry>, StoreError> {
        let id = *id;
        self.run(Op::Inspect, move |store| async move { store.inspect(&id).await }).await
    }

    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        let list = list.clone();
        self.run(Op::List, move |store| async move { store.list(&list).await }).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.run(Op::Sweep, move |store| async move { store.sweep(limit).await }).await
    }
}

impl<S: Leases> Leases for FaultyStore<S> {
    async fn try_acquire(&self, ask: &Ask) -> Result<Acquired, StoreError> {
        let ask = ask.clone();
        self.run(Op::TryAcquire, |leases| async move { leases.try_acquire(&ask).await }).await
    }

    async fn renew(&self, holder: &LeaseHolder, lease: Lease) -> Result<Settled, StoreError> {
        let holder = holder.clone();
        self.run(Op::Renew, move |leases| async move { leases.renew(&holder, lease).await }).await
    }

    async fn release(&self, holder: &LeaseHolder, dead_for: Duration) -> Result<Settled, StoreError> {
        let holder = holder.clone();
        self.run(Op::Release, move |leases| async move { leases.release(&holder, dead_for).await }).await
    }

    async fn abandon(&self, resource: &Resource, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        let resource = resource.clone();
        self.run(Op::Abandon, move |leases| async move { leases.abandon(&resource, nonce, dead_for).await }).await
    }

    fn watch(&self, resource: &Resource) -> Watch {
        self.watch(|leases| leases.watch(resource))
    }

    async fn inspect(&self, resource: &Resource) -> Result<Option<LeaseEntry>, StoreError> {
        let resource = resource.clone();
        self.run(Op::Inspect, move |leases| async move { leases.inspect(&resource).await }).await
    }

    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.run(Op::Sweep, move |leases| async move { leases.sweep(limit).await }).await
    }
}

impl<S: Steps> Steps for FaultyStore<S> {
    async fn begin_call(&self, ask: &BeginCall) -> Result<Begun, StoreError> {
        let ask = ask.clone();
        self.run(Op::BeginCall, |steps| async move { steps.begin_call(&ask).await }).await
    }

    async fn end_call(&self, report: &EndCall) -> Result<Ended, StoreError> {
        let report = report.clone();
        self.run(Op::EndCall, |steps| async move { steps.end_call(&report).await }).await
    }

    async fn resolve_step(&self, resolve: &ResolveStep) -> Result<StepResolved, StoreError> {
        let resolve = resolve.clone();
        self.run(Op::ResolveStep, |steps| async move { steps.resolve_step(&resolve).await }).await
    }

    async fn inspect_step(&self, id: &RecordId, label: &StepLabel) -> Result<Option<StepView>, StoreError> {
        let (id, label) = (*id, label.clone());
        self.run(Op::InspectStep, move |steps| async move { steps.inspect_step(&id, &label).await }).await
    }

    async fn list_steps(&self, list: &ListSteps) -> Result<StepPage, StoreError> {
        let list = list.clone();
        self.run(Op::ListSteps, move |steps| async move { steps.list_steps(&list).await }).await
    }
}

/// What a [`Fault`] makes of a commit: [`Fault::Fail`] is certain, every other answer that is not the store's own is lost.
impl<S: TransactionalStore> TransactionalStore for FaultyStore<S> {
    type Transaction = S::Transaction;

    async fn open_transaction(&self, opening: Opening) -> Result<Self::Transaction, StoreError> {
        self.run(Op::OpenTransaction, move |store| async move { store.open_transaction(opening).await }).await
    }

    fn opened_for(transaction: &Self::Transaction) -> Nonce {
        S::opened_for(transaction)
    }

    async fn record_in(
        &self,
        transaction: &mut Self::Transaction,
        holder: &Holder,
        outcome: &Outcome,
    ) -> Result<bool, StoreError> {
        // In the caller's transaction: what is late goes with its caller.
        let fault = self.fault(Op::RecordIn);
        match fault {
            Some(Fault::Fail | Fault::Disconnect) => return Err(failed("the operation was made to fail")),
            Some(Fault::Stall) => std::future::pending().await,
            Some(Fault::Late(delay)) => tokio::time::sleep(delay).await,
            _ => {}
        }
        let recorded = self.store.record_in(transaction, holder, outcome).await;
        match fault {
            Some(Fault::LoseReply) => Err(StoreError::new(StoreErrorKind::Timeout, "the reply was made to be lost")),
            Some(Fault::StallReply) => std::future::pending().await,
            Some(Fault::LateReply(delay)) => {
                tokio::time::sleep(delay).await;
                recorded
            }
            _ => recorded,
        }
    }

    async fn commit_transaction(&self, transaction: Self::Transaction) -> Result<(), CommitFailure> {
        let commit = move |store: Arc<S>| async move { Ok(store.commit_transaction(transaction).await) };
        match self.run(Op::CommitTransaction, commit).await {
            Ok(committed) => committed,
            Err(error) if error.kind() == StoreErrorKind::Busy => Err(CommitFailure::NotCommitted(error)),
            Err(error) => Err(CommitFailure::Unknown(error)),
        }
    }

    async fn roll_back(&self, transaction: Self::Transaction) {
        self.store.roll_back(transaction).await;
    }

    async fn fate(&self, holder: &Holder) -> Result<Fate, StoreError> {
        let holder = *holder;
        self.run(Op::Fate, move |store| async move { store.fate(&holder).await }).await
    }
}
