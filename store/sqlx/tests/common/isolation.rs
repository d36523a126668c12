//! Transactions with effects above READ COMMITTED that outlive the lease of their claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use idempotency::{Answer, Attempt, Claimed, Engine, Held, Lease, Settings, Store as _};
use idempotency_sqlx::Isolation;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::transactions::{Effects, Transaction, operation, settings};
use idempotency_testbed::requests::outcome;

const LEASE: Duration = Duration::from_millis(300);

/// A database with a choice of isolation.
pub(crate) trait Isolated: Effects {
    fn begin_with(
        store: &Self::Store,
        attempt: &Attempt,
        isolation: Isolation,
    ) -> impl Future<Output = Transaction<Self>> + Send;
    /// What the server says of the transaction's isolation.
    fn shown(transaction: &mut Transaction<Self>) -> impl Future<Output = String> + Send;
    fn commit(
        store: &Self::Store,
        attempt: &Attempt,
        transaction: Transaction<Self>,
    ) -> impl Future<Output = ()> + Send {
        async { drop(idempotency::transaction::commit(store, attempt, transaction, outcome("answer")).await.unwrap()) }
    }
}

pub(crate) struct Bench<D: Isolated> {
    pub(crate) place: D,
    pub(crate) store: D::Store,
    pub(crate) engine: Engine<D::Store>,
}

impl<D: Isolated> Bench<D> {
    pub(crate) async fn new() -> Self {
        let place = D::with_effects().await;
        let store = place.real_stores().await.remove(0);
        let engine = Engine::new(store.clone(), renewing());
        Self { place, store, engine }
    }

    pub(crate) async fn claim(&self) -> Held<D::Store> {
        match self.engine.claim(&operation("k")).await.unwrap() {
            Answer::Run(held) => held,
            Answer::DoNot(claimed) => panic!("not granted: {claimed:?}"),
        }
    }

    /// Begins, and takes the snapshot by an effect.
    pub(crate) async fn begin(&self, held: &Held<D::Store>, isolation: Isolation) -> Transaction<D> {
        let mut transaction = D::begin_with(&self.store, held.attempt(), isolation).await;
        D::effect(&mut transaction, "k").await;
        transaction
    }
}

fn renewing() -> Settings {
    let lease = Lease::new(LEASE).unwrap();
    let limit = Lease::new(Duration::from_secs(20)).unwrap();
    settings().lease(lease).transaction_limit(limit).store_timeout(Duration::from_secs(20)).unwrap()
}

pub(crate) async fn each_isolation_is_the_one_that_was_asked_for<D: Isolated>() {
    let bench = Bench::<D>::new().await;
    let held = bench.claim().await;
    for (isolation, name) in [
        (Isolation::ReadCommitted, "read committed"),
        (Isolation::RepeatableRead, "repeatable read"),
        (Isolation::Serializable, "serializable"),
    ] {
        let mut transaction = bench.begin(&held, isolation).await;
        let shown = D::shown(&mut transaction).await;
        assert_eq!(shown.to_ascii_lowercase().replace('-', " "), name);
    }
}

pub(crate) async fn a_handler_at_repeatable_read_that_outlives_its_lease_commits<D: Isolated>() {
    outlives_its_lease::<D>(Isolation::RepeatableRead).await;
}

pub(crate) async fn a_handler_at_serializable_that_outlives_its_lease_commits<D: Isolated>() {
    outlives_its_lease::<D>(Isolation::Serializable).await;
}

/// Duplicates come meanwhile, and sweepers run.
async fn outlives_its_lease<D: Isolated>(isolation: Isolation) {
    let bench = Bench::<D>::new().await;
    let held = bench.claim().await;
    // As long as it is renewed, before it begins.
    sleep(LEASE * 2).await;
    let transaction = bench.begin(&held, isolation).await;
    let (over, duplicates) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut others = JoinSet::new();
    for sweeps in [false, true] {
        let (over, duplicates) = (Arc::clone(&over), Arc::clone(&duplicates));
        let (engine, store) = (Engine::new(bench.store.clone(), renewing()), bench.store.clone());
        others.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                if sweeps {
                    store.sweep(100).await.unwrap();
                } else {
                    match engine.claim(&operation("k")).await.unwrap() {
                        Answer::DoNot(Claimed::InFlight { .. }) => {}
                        // The commit was quicker than this one.
                        Answer::DoNot(Claimed::Replay { .. }) => return,
                        told => panic!("{told:?}"),
                    }
                    duplicates.fetch_add(1, Ordering::SeqCst);
                }
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    sleep(LEASE * 4).await;
    assert!(duplicates.load(Ordering::SeqCst) >= 10, "this proves nothing");
    D::commit(&bench.store, held.attempt(), transaction).await;
    over.store(true, Ordering::SeqCst);
    others.join_all().await;
    assert_eq!(bench.place.effects("k").await, 1);
    let told = bench.engine.claim(&operation("k")).await.unwrap();
    assert!(matches!(told, Answer::DoNot(Claimed::Replay { .. })), "{told:?}");
}

/// Makes tests of all behaviours above, over a place.
macro_rules! isolation_tests {
    ($place:ty) => {
        $crate::common::isolation::isolation_tests! { @
            $place,
            each_isolation_is_the_one_that_was_asked_for,
            a_handler_at_repeatable_read_that_outlives_its_lease_commits,
            a_handler_at_serializable_that_outlives_its_lease_commits,
        }
    };
    (@ $place:ty, $($behaviour:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                $crate::common::isolation::$behaviour::<$place>().await;
            }
        )*
    };
}
pub(crate) use isolation_tests;
