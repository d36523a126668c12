//! What the near cache keeps, and that everything else is asked of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use idempotency::time::ManualClock;
use idempotency::{
    Claim, Claimed, Entry, Fingerprint, Holder, Lease, Life, List, Nonce, Outcome, Page, RecordId, Recovery, Resolve,
    Resolved, Settled, Store, StoreError, Swept, Timestamp, Windows,
};
use idempotency_memory::{MemoryStore, NearCache};

use crate::harness::{Memory, boot_clock};

const SECOND: Duration = Duration::from_secs(1);
const RESPONSE: Duration = Duration::from_secs(100);

/// Counts the claims that reach the store.
#[derive(Clone)]
struct Counting {
    store: MemoryStore<ManualClock>,
    claims: Arc<AtomicUsize>,
    /// The near clock, and how much of it passes while the store answers.
    way: (ManualClock, Duration),
}

impl Store for Counting {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.claims.fetch_add(1, Ordering::Relaxed);
        let claimed = self.store.claim(claim).await;
        self.way.0.advance(self.way.1);
        claimed
    }
    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        self.store.renew(holder, lease).await
    }
    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        self.store.complete(holder, outcome).await
    }
    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        self.store.release(holder, dead_for).await
    }
    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        self.store.mark_in_doubt(holder, response).await
    }
    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        self.store.abandon(id, nonce, dead_for).await
    }
    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        self.store.resolve(resolve).await
    }
    async fn inspect(&self, id: &RecordId) -> Result<Option<Entry>, StoreError> {
        self.store.inspect(id).await
    }
    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        self.store.list(list).await
    }
    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.store.sweep(limit).await
    }
}

struct Bench {
    store_clock: ManualClock,
    near_clock: ManualClock,
    claims: Arc<AtomicUsize>,
    near: NearCache<Counting>,
}

impl Bench {
    fn new() -> Self {
        Self::with(Duration::ZERO, 1 << 20)
    }

    fn with(way: Duration, max_bytes: u64) -> Self {
        let memory = Memory::empty();
        let near_clock = ManualClock::new(Timestamp::from_micros(0));
        let claims = Arc::new(AtomicUsize::new(0));
        let store = Counting { store: memory.store, claims: Arc::clone(&claims), way: (near_clock.clone(), way) };
        let near = NearCache::builder(store).max_bytes(max_bytes).clock(boot_clock(&near_clock)).build();
        Self { store_clock: memory.clock, near_clock, claims, near }
    }

    async fn claim(&self, claim: &Claim) -> Claimed {
        self.near.claim(&Claim { nonce: Nonce::random(), ..claim.clone() }).await.unwrap()
    }

    async fn grant(&self, claim: &Claim) -> Holder {
        match self.near.claim(claim).await.unwrap() {
            Claimed::Granted(grant) => Holder { id: claim.id, token: grant.token, nonce: claim.nonce },
            claimed => panic!("not granted: {claimed:?}"),
        }
    }

    async fn completed(&self, claim: &Claim, outcome: &Outcome) {
        let holder = self.grant(claim).await;
        assert_eq!(self.near.complete(&holder, outcome).await.unwrap(), Settled::Applied);
    }

    /// Lets time go by, on both clocks.
    fn advance(&self, by: Duration) {
        self.store_clock.advance(by);
        self.near_clock.advance(by);
    }

    /// How many claims reached the store since the last time.
    fn asked(&self) -> usize {
        self.claims.swap(0, Ordering::Relaxed)
    }
}

fn claim(n: u8) -> Claim {
    Claim {
        id: RecordId::from_bytes([n; 32]),
        fingerprint: Fingerprint::of(["the request"]),
        nonce: Nonce::random(),
        lease: Lease::default(),
        life: Life::new(Recovery::Hold, Windows::new(RESPONSE, 2 * RESPONSE).unwrap()),
        key_time: None,
        room: 1000,
    }
}

fn outcome() -> Outcome {
    Outcome::new(201, Bytes::from("the first answer")).with_location(Some("/1"))
}

#[tokio::test]
async fn a_hot_key_is_replayed_without_asking_the_store() {
    let bench = Bench::new();
    bench.completed(&claim(1), &outcome()).await;
    let first = bench.claim(&claim(1)).await;
    assert!(matches!(&first, Claimed::Replay { outcome: replayed, .. } if *replayed == outcome()));
    bench.asked();
    for _ in 0..1000 {
        assert_eq!(bench.claim(&claim(1)).await, first);
    }
    assert_eq!(bench.asked(), 0);
}

#[tokio::test]
async fn another_request_with_the_key_is_the_stores_to_answer() {
    let bench = Bench::new();
    bench.completed(&claim(1), &outcome()).await;
    bench.claim(&claim(1)).await;
    bench.asked();
    let other = Claim { fingerprint: Fingerprint::of(["another request"]), ..claim(1) };
    assert_eq!(bench.claim(&other).await, Claimed::Mismatch);
    let mut version = claim(1).fingerprint.to_bytes();
    version[0] += 1;
    let unreadable = Claim { fingerprint: Fingerprint::from_bytes(version), ..claim(1) };
    assert_eq!(bench.claim(&unreadable).await, Claimed::Unreadable);
    assert_eq!(bench.asked(), 2);
    assert!(matches!(bench.claim(&claim(1)).await, Claimed::Replay { .. }));
    assert_eq!(bench.asked(), 0, "the first request's answer is still near");
}

#[tokio::test]
async fn a_replay_grows_older_while_it_is_kept() {
    let bench = Bench::new();
    bench.completed(&claim(1), &outcome()).await;
    bench.advance(SECOND);
    let Claimed::Replay { completed_at, .. } = bench.claim(&claim(1)).await else { panic!("not a replay") };
    bench.advance(30 * SECOND);
    bench.asked();
    let Claimed::Replay { completed_at: still, age, time_left, .. } = bench.claim(&claim(1)).await else {
        panic!("not a replay")
    };
    assert_eq!((still, age, time_left), (completed_at, 31 * SECOND, RESPONSE - 31 * SECOND));
    assert_eq!(bench.asked(), 0);
}

#[tokio::test]
async fn an_outcome_is_not_served_past_the_time_the_store_gave_it() {
    let bench = Bench::new();
    bench.completed(&claim(1), &outcome()).await;
    bench.claim(&claim(1)).await;
    bench.asked();
    bench.advance(RESPONSE - Duration::from_micros(1));
    assert!(matches!(bench.claim(&claim(1)).await, Claimed::Replay { .. }));
    assert_eq!(bench.asked(), 0);
    bench.advance(Duration::from_micros(1));
    assert!(matches!(bench.claim(&claim(1)).await, Claimed::Executed(_)));
    assert_eq!(bench.asked(), 1);
}

#[tokio::test]
async fn the_time_left_counts_from_before_the_store_was_asked() {
    let way = 10 * SECOND;
    let bench = Bench::with(way, 1 << 20);
    bench.completed(&claim(1), &outcome()).await;
    bench.claim(&claim(1)).await;
    bench.asked();
    // The answer took its time, so that much less is left of what it said.
    bench.near_clock.advance(RESPONSE - way - Duration::from_micros(1));
    let Claimed::Replay { time_left, .. } = bench.claim(&claim(1)).await else { panic!("not a replay") };
    assert_eq!((time_left, bench.asked()), (Duration::from_micros(1), 0));
    bench.near_clock.advance(Duration::from_micros(1));
    bench.claim(&claim(1)).await;
    assert_eq!(bench.asked(), 1);
}

#[tokio::test]
async fn nothing_but_a_replay_is_kept() {
    let bench = Bench::new();
    let doubtful = bench.grant(&claim(1)).await;
    assert_eq!(bench.near.mark_in_doubt(&doubtful, Some(&outcome())).await.unwrap(), Settled::Applied);
    bench.completed(&claim(2), &Outcome::not_kept(204)).await;
    bench.grant(&claim(3)).await;
    bench.asked();
    for _ in 0..10 {
        assert!(matches!(bench.claim(&claim(1)).await, Claimed::InDoubt(_)));
        assert!(matches!(bench.claim(&claim(2)).await, Claimed::Executed(_)));
        assert!(matches!(bench.claim(&claim(3)).await, Claimed::InFlight { .. }));
    }
    assert_eq!(bench.asked(), 30);
    // Once it is known what happened, that is kept.
    let verdict = idempotency::ResolveVerdict::Happened(outcome());
    let resolve = Resolve {
        id: doubtful.id,
        token_seen: doubtful.token,
        verdict,
        who: "ops".to_owned(),
        why: "looked".to_owned(),
    };
    assert_eq!(bench.near.resolve(&resolve).await.unwrap(), Resolved::Applied);
    for _ in 0..10 {
        assert!(matches!(bench.claim(&claim(1)).await, Claimed::Replay { .. }));
    }
    assert_eq!(bench.asked(), 1);
}

#[tokio::test]
async fn a_completion_alone_keeps_nothing_near() {
    let bench = Bench::new();
    bench.completed(&claim(1), &outcome()).await;
    bench.asked();
    bench.claim(&claim(1)).await;
    assert_eq!(bench.asked(), 1, "only what the store itself replayed has its time left");
}

#[tokio::test]
async fn an_abandoned_nonce_is_refused_although_the_outcome_was_near() {
    let bench = Bench::new();
    bench.completed(&claim(1), &outcome()).await;
    bench.claim(&claim(1)).await;
    let late = claim(1);
    bench.near.abandon(&late.id, late.nonce, 60 * SECOND).await.unwrap();
    assert_eq!(bench.near.claim(&late).await.unwrap(), Claimed::Refused);
}

#[tokio::test]
async fn what_does_not_fit_is_asked_of_the_store_again() {
    let bench = Bench::with(Duration::ZERO, 8 * 1024);
    for n in 0..100 {
        bench.completed(&claim(n), &Outcome::new(200, Bytes::from(vec![n; 900]))).await;
    }
    for _ in 0..3 {
        for n in 0..100 {
            let Claimed::Replay { outcome, .. } = bench.claim(&claim(n)).await else { panic!("not a replay") };
            assert_eq!(outcome.payload(), Some(&Bytes::from(vec![n; 900])));
        }
    }
    assert!(bench.asked() > 250, "a cache for six outcomes answered for a hundred");
}
