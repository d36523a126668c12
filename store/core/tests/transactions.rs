//! What an attempt does before its transaction, and what is concluded after a commit whose answer was lost.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::time::Duration;

use bytes::Bytes;
use idempotency::faults::{Fault, FaultyStore, Op};
use idempotency::transaction::{BeginError, Fate, TransactionState, begin};
use idempotency::{
    Answer, Claim, Engine, Fingerprint, Held, Holder, Key, Lease, Life, Nonce, Operation, Outcome, Record, RecordId,
    Recovery, Resolve, ResolveVerdict, Resolved, ScopeId, Settings, Settled, Timestamp, Windows, protocol,
};
use idempotency_memory::MemoryStore;
use tokio::time::{Instant, sleep, timeout};

type Faulty = FaultyStore<MemoryStore>;

const LEASE: Duration = Duration::from_millis(300);

fn engine(lease: Duration) -> (Engine<Faulty>, Faulty) {
    let store = FaultyStore::new(MemoryStore::new());
    let settings = Settings::default().lease(Lease::new(lease).unwrap()).store_timeout(Duration::from_secs(5)).unwrap();
    (Engine::new(store.clone(), settings), store)
}

async fn claim(engine: &Engine<Faulty>) -> Held<Faulty> {
    let operation = Operation::new(ScopeId::global(), Key::parse("k").unwrap(), Fingerprint::of(["body"]));
    match engine.claim(&operation).await.unwrap() {
        Answer::Run(held) => held,
        Answer::DoNot(claimed) => panic!("not granted: {claimed:?}"),
    }
}

async fn until_renewing(store: &Faulty) {
    while store.calls(Op::Renew) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
}

/// It could come after the snapshot, and then the commit would fail.
#[tokio::test]
async fn a_renewal_that_is_under_way_is_waited_for() {
    const TOOK: Duration = Duration::from_millis(400);
    for fault in [Fault::Late(TOOK), Fault::LateReply(TOOK)] {
        let (engine, store) = engine(LEASE * 5);
        store.next(Op::Renew, fault);
        let held = claim(&engine).await;
        until_renewing(&store).await;
        let renewing = Instant::now();
        let begun = begin(&store, held.attempt(), async |_| {
            assert_eq!(store.calls(Op::Renew), 2, "the lease was lengthened before");
            Ok(renewing.elapsed())
        });
        let waited = begun.await.unwrap();
        assert!(waited >= TOOK - Duration::from_millis(20), "{fault:?}: {waited:?}");
    }
}

#[tokio::test]
async fn nothing_renews_after_the_beginning() {
    let (engine, store) = engine(LEASE);
    let held = claim(&engine).await;
    until_renewing(&store).await;
    begin(&store, held.attempt(), async |opening| {
        assert_eq!(opening.limit, Duration::from_secs(30));
        Ok(())
    })
    .await
    .unwrap();
    let renewed = store.calls(Op::Renew);
    sleep(LEASE * 3).await;
    assert_eq!(store.calls(Op::Renew), renewed);
    assert!(!held.attempt().is_lost(), "it lasts for the transaction limit");
    assert_eq!(held.attempt().transaction(), TransactionState::Open);
}

#[tokio::test]
async fn a_store_that_cannot_say_begins_nothing() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Stall] {
        let store = FaultyStore::new(MemoryStore::new());
        let settings = Settings::default().store_timeout(Duration::from_millis(100)).unwrap();
        let held = claim(&Engine::new(store.clone(), settings)).await;
        store.next(Op::Renew, fault);
        let begun = begin(&store, held.attempt(), async |_| -> Result<(), _> { unreachable!("not opened") });
        let begun = timeout(Duration::from_secs(10), begun).await.unwrap();
        assert!(matches!(begun, Err(BeginError::Store(_))), "{fault:?}");
    }
}

/// Whoever gives up its beginning may go another way, and answers for that.
#[tokio::test]
async fn a_beginning_that_is_given_up_began_nothing() {
    for stalls in [true, false] {
        let (engine, store) = engine(LEASE);
        let held = claim(&engine).await;
        if stalls {
            store.next(Op::Renew, Fault::Stall);
        }
        let begun = begin(&store, held.attempt(), async |_| std::future::pending::<Result<(), _>>().await);
        assert!(timeout(Duration::from_millis(50), begun).await.is_err());
        assert_eq!(held.attempt().transaction(), TransactionState::NotBegun);
    }
    // One that stands beside it is rolled back with it.
    let (engine, store) = engine(LEASE);
    let held = claim(&engine).await;
    begin(&store, held.attempt(), async |_| Ok(())).await.unwrap();
    let second = begin(&store, held.attempt(), async |_| std::future::pending::<Result<(), _>>().await);
    assert!(timeout(Duration::from_millis(50), second).await.is_err());
    assert_eq!(held.attempt().transaction(), TransactionState::Open);
}

const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

/// An attempt under way, and who holds it.
fn granted(recovery: Recovery, from: Option<Record>, now: Timestamp) -> (Record, Holder) {
    let claim = Claim {
        id: RecordId::from_bytes([7; 32]),
        fingerprint: Fingerprint::of(["body"]),
        nonce: Nonce::random(),
        lease: Lease::new(LEASE).unwrap(),
        life: Life::new(recovery, Windows::new(HOUR, 2 * HOUR).unwrap()),
        key_time: None,
        room: 100,
    };
    let (record, grant) = protocol::grant(from, &claim, now);
    (record, Holder { id: claim.id, token: grant.token, nonce: claim.nonce })
}

/// The locking read says of a commit what a completion would meet in its place.
#[test]
fn fate_is_what_a_completion_would_be_told() {
    let outcome = Outcome::new(201, Bytes::from_static(b"done"));
    for recovery in [Recovery::Hold, Recovery::Rerun] {
        let (in_flight, holder) = granted(recovery, None, NOW);
        let changed = |change: &dyn Fn(&mut Record)| {
            let mut record = in_flight.clone();
            change(&mut record);
            Some(record)
        };
        let resolve = Resolve {
            id: holder.id,
            token_seen: holder.token,
            verdict: ResolveVerdict::Happened(outcome.clone()),
            who: "ops".into(),
            why: "looked it up".into(),
        };
        let (newer, _) = granted(recovery, Some(in_flight.clone()), NOW.after(LEASE));
        let records = [
            None,
            Some(in_flight.clone()),
            changed(&|r| assert_eq!(protocol::mark_in_doubt(Some(r), &holder, None, NOW), Settled::Applied)),
            changed(&|r| assert_eq!(protocol::complete(Some(r), &holder, &outcome, NOW), Settled::Applied)),
            changed(&|r| assert_eq!(protocol::release(Some(r), &holder, HOUR, NOW), Settled::Applied)),
            changed(&|r| {
                assert_eq!(protocol::mark_in_doubt(Some(r), &holder, None, NOW), Settled::Applied);
                assert_eq!(protocol::resolve(Some(r), &resolve, NOW), Resolved::Applied);
            }),
            Some(newer),
        ];
        let stranger = Holder { nonce: Nonce::random(), ..holder };
        for (n, record) in records.into_iter().enumerate() {
            for later in [Duration::ZERO, LEASE, HOUR, 2 * HOUR, 3 * HOUR] {
                for asks in [holder, stranger] {
                    let now = NOW.after(later);
                    let told = protocol::complete(record.clone().as_mut(), &asks, &outcome, now);
                    let expected = match told {
                        Settled::Applied => Fate::NotCommitted,
                        Settled::AlreadyApplied => Fate::Committed,
                        Settled::Superseded => Fate::Superseded,
                    };
                    assert_eq!(protocol::fate(record.as_ref(), &asks, now), expected, "record {n}, {later:?} later");
                }
            }
        }
    }
}
