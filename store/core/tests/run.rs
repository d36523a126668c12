//! The same protection for plain functions.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use idempotency::faults::{Fault, FaultyStore, Op};
use idempotency::{
    Answer, Engine, Fingerprint, Key, Lease, Life, Operation, Outcome, Recovery, RunError, ScopeId, Settings, Windows,
    WorkError, run,
};
use idempotency_memory::MemoryStore;

type Faulty = FaultyStore<MemoryStore>;

fn engine(recovery: Recovery) -> (Engine<Faulty>, Faulty) {
    let store = FaultyStore::new(MemoryStore::new());
    let settings = Settings::default()
        .lease(Lease::new(Duration::from_millis(200)).unwrap())
        .life(Life::new(recovery, Windows::default()))
        .store_timeout(Duration::from_millis(100))
        .unwrap();
    (Engine::new(store.clone(), settings), store)
}

fn operation(body: &str) -> Operation {
    Operation::new(ScopeId::new(["queue"]), Key::parse("message-1").unwrap(), Fingerprint::of([body]))
}

fn failure() -> io::Error {
    io::Error::other("no")
}

#[derive(Default)]
struct Effects(AtomicU32);

impl Effects {
    fn happen(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
    async fn ok(&self, engine: &Engine<Faulty>) -> Result<idempotency::Ran<u32>, RunError<io::Error>> {
        run(engine, &operation("a"), async |_| Ok(self.happen())).await
    }
}

#[tokio::test]
async fn a_duplicate_gets_the_recorded_value() {
    let (engine, effects) = (engine(Recovery::Hold).0, Effects::default());
    let first = effects.ok(&engine).await.unwrap();
    let again = effects.ok(&engine).await.unwrap();
    assert_eq!((first.value, first.replayed), (1, false));
    assert_eq!((again.value, again.replayed), (1, true));
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn another_operation_under_the_key_is_a_mismatch() {
    let (engine, effects) = (engine(Recovery::Hold).0, Effects::default());
    effects.ok(&engine).await.unwrap();
    let other = run(&engine, &operation("b"), async |_| Ok::<_, WorkError<io::Error>>(effects.happen())).await;
    assert!(matches!(other, Err(RunError::Mismatch)));
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn nothing_done_frees_the_key_whatever_the_recovery() {
    for recovery in [Recovery::Hold, Recovery::Rerun] {
        let (engine, effects) = (engine(recovery).0, Effects::default());
        let failed = run(&engine, &operation("a"), async |_| Err::<u32, _>(WorkError::NothingDone(failure()))).await;
        assert!(matches!(failed, Err(RunError::Work(_))));
        assert_eq!(effects.ok(&engine).await.unwrap().value, 1);
    }
}

#[tokio::test]
async fn an_unknown_error_holds_under_hold_and_reruns_under_rerun() {
    for recovery in [Recovery::Hold, Recovery::Rerun] {
        let (engine, effects) = (engine(recovery).0, Effects::default());
        let failing = async |_| {
            effects.happen();
            Err::<u32, _>(failure())?; // `?` makes it unknown
            Ok(0)
        };
        assert!(matches!(run(&engine, &operation("a"), failing).await, Err(RunError::Work(_))));
        let again = effects.ok(&engine).await;
        match recovery {
            Recovery::Hold => assert!(matches!(again, Err(RunError::InDoubt(_)))),
            Recovery::Rerun => assert_eq!(again.unwrap().value, 2),
        }
    }
}

#[tokio::test]
async fn a_panic_is_passed_on_and_leaves_the_key_in_doubt() {
    let (engine, effects) = (engine(Recovery::Hold).0, Effects::default());
    let panicking = tokio::spawn({
        let engine = engine.clone();
        async move { run(&engine, &operation("a"), async |_| -> Result<u32, WorkError<io::Error>> { panic!("no") }).await }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    assert!(matches!(effects.ok(&engine).await, Err(RunError::InDoubt(_))));
    assert_eq!(effects.count(), 0);
}

/// Also where it panics before there is a future of it.
#[tokio::test]
async fn work_that_panics_as_it_is_called_frees_the_key_under_rerun() {
    let engine = engine(Recovery::Rerun).0;
    let panicking = tokio::spawn({
        let engine = engine.clone();
        let work = |_| -> std::future::Ready<Result<u32, WorkError<io::Error>>> { panic!("no") };
        async move { run(&engine, &operation("a"), work).await }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    let Answer::Run(next) = engine.claim(&operation("a")).await.unwrap() else { panic!("it is held") };
    assert_eq!(next.attempt().number(), 2);
}

#[tokio::test]
async fn dropped_work_is_left_to_its_lease() {
    let (engine, effects) = (engine(Recovery::Hold).0, Effects::default());
    let endless = async |_| {
        effects.happen();
        std::future::pending::<Result<u32, WorkError<io::Error>>>().await
    };
    let _ = tokio::time::timeout(Duration::from_millis(20), run(&engine, &operation("a"), endless)).await;
    assert!(matches!(effects.ok(&engine).await, Err(RunError::InFlight { .. })));
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert!(matches!(effects.ok(&engine).await, Err(RunError::InDoubt(_))));
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn a_value_that_is_not_recorded_in_time_is_given_under_hold_only() {
    for recovery in [Recovery::Hold, Recovery::Rerun] {
        let (engine, store) = engine(recovery);
        let effects = Effects::default();
        store.next(Op::Complete, Fault::Fail);
        let first = effects.ok(&engine).await;
        match recovery {
            Recovery::Hold => assert_eq!(first.unwrap().value, 1),
            Recovery::Rerun => assert!(matches!(first, Err(RunError::Store(_)))),
        }
        assert!(engine.drain(Duration::from_secs(5)).await);
        let again = effects.ok(&engine).await.unwrap();
        assert_eq!((again.value, again.replayed, effects.count()), (1, true, 1));
    }
}

#[tokio::test]
async fn a_superseded_run_answers_with_the_newer_value() {
    let (engine, store) = engine(Recovery::Rerun);
    store.always(Op::Renew, Fault::Stall);
    let operation_a = operation("a");
    let late = run(&engine, &operation_a, async |_| {
        tokio::time::sleep(Duration::from_millis(250)).await; // past the lease, as a paused process is
        let Answer::Run(newer) = engine.claim(&operation("a")).await? else { panic!("not taken over") };
        newer.complete(Outcome::new(0, Bytes::from_static(b"\x017"))).await;
        Ok::<u32, WorkError<idempotency::StoreError>>(1)
    });
    let late = late.await.unwrap();
    assert_eq!((late.value, late.replayed), (7, true));
}

#[tokio::test]
async fn a_value_of_an_unknown_format_is_refused_and_not_run() {
    let (engine, effects) = (engine(Recovery::Hold).0, Effects::default());
    let Answer::Run(held) = engine.claim(&operation("a")).await.unwrap() else { panic!("granted") };
    held.complete(Outcome::new(0, Bytes::from_static(b"\xff42"))).await;
    assert!(matches!(effects.ok(&engine).await, Err(RunError::Unreadable)));
    assert_eq!(effects.count(), 0);
}

#[tokio::test]
async fn sixty_four_runs_at_once_have_one_effect() {
    let (engine, effects) = (engine(Recovery::Hold).0, Effects::default());
    let runs = futures_util::future::join_all((0..64).map(|_| effects.ok(&engine))).await;
    assert_eq!(effects.count(), 1);
    assert!(runs.iter().all(|ran| matches!(ran, Ok(_) | Err(RunError::InFlight { .. }))));
}
