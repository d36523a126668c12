//! Operations that meet in one process are one transaction, and each is answered as if it were alone.

use std::sync::Arc;
use std::time::Duration;

use idempotency::{Claim, Claimed, FencingToken, Holder, Settled, State, Store, StoreErrorKind};
use idempotency_sqlx::SqliteStore;
use sqlx::SqliteConnection;
use tokio::task::JoinSet;

use crate::support::{DEAD_FOR, File, PATIENT, claim, duplicate, grant, granted, id, outcome};

/// Somebody else who writes, so that whoever comes meanwhile meets.
struct Foreign(SqliteConnection);

impl Foreign {
    async fn writing(file: &File) -> Self {
        let mut connection = file.connection().await;
        execute(&mut connection, "BEGIN IMMEDIATE").await;
        Self(connection)
    }

    async fn end(mut self) {
        tokio::time::sleep(MEETING).await;
        execute(&mut self.0, "ROLLBACK").await;
    }
}

async fn execute(connection: &mut SqliteConnection, statement: &'static str) {
    sqlx::raw_sql(statement).execute(connection).await.unwrap();
}

/// How many pages were written to the log: a commit writes each page that it changes.
fn pages_written(file: &File) -> u64 {
    let log = file.path().with_extension("sqlite-wal");
    std::fs::metadata(log).unwrap().len() / 4096
}

#[tokio::test]
async fn claims_and_completions_that_meet_are_few_commits() {
    let file = File::migrated().await;
    let store = file.store().await;
    let claims: Vec<_> = (0..40).map(|n| claim(&format!("k{n}"))).collect();

    let before = pages_written(&file);
    let foreign = Foreign::writing(&file).await;
    let mut asked = JoinSet::new();
    for claim in claims.clone() {
        let store = store.clone();
        asked.spawn(async move {
            let token = granted(store.claim(&claim).await.unwrap()).token;
            Holder { id: claim.id, token, nonce: claim.nonce }
        });
    }
    foreign.end().await;
    let holders = asked.join_all().await;
    assert!(pages_written(&file) - before < 40, "{} pages", pages_written(&file) - before);

    let before = pages_written(&file);
    let foreign = Foreign::writing(&file).await;
    let mut asked = JoinSet::new();
    for holder in holders {
        let store = store.clone();
        asked.spawn(async move { store.complete(&holder, &outcome("answer")).await.unwrap() });
    }
    foreign.end().await;
    assert!(asked.join_all().await.iter().all(|settled| *settled == Settled::Applied));
    assert!(pages_written(&file) - before < 40, "{} pages", pages_written(&file) - before);

    for claim in &claims {
        assert!(matches!(store.claim(&duplicate(claim)).await.unwrap(), Claimed::Replay { .. }));
    }
}

#[tokio::test]
async fn each_is_answered_as_if_it_were_alone() {
    let file = File::migrated().await;
    let store = file.store().await;
    let holders =
        [grant(&store, &claim("a")).await, grant(&store, &claim("b")).await, grant(&store, &claim("c")).await];
    let [completes, releases, stale] = holders;
    let stale = Holder { token: FencingToken::new(1).unwrap(), ..stale };
    let missing = Holder { id: id("nobody's"), ..completes };

    let foreign = Foreign::writing(&file).await;
    let answer = outcome("answer");
    let (fresh, one, other) = (claim("fresh"), claim("same"), claim("same"));
    let meet = async {
        tokio::join!(
            store.complete(&completes, &answer),
            store.release(&releases, DEAD_FOR),
            store.complete(&stale, &answer),
            store.complete(&missing, &answer),
            store.complete(&completes, &answer),
            store.claim(&fresh),
            store.claim(&one),
            store.claim(&other),
        )
    };
    let (answers, ()) = tokio::join!(meet, foreign.end());
    let (completed, released, superseded, unknown, again, fresh, one, other) = answers;
    let (completed, again) = (completed.unwrap(), again.unwrap());
    assert!(
        [(completed, again), (again, completed)].contains(&(Settled::Applied, Settled::AlreadyApplied)),
        "one of two"
    );
    assert_eq!(released.unwrap(), Settled::Applied);
    assert_eq!(superseded.unwrap(), Settled::Superseded);
    assert_eq!(unknown.unwrap(), Settled::Superseded);
    granted(fresh.unwrap());
    granted(one.unwrap());
    assert!(matches!(other.unwrap(), Claimed::InFlight { .. }), "one of two about one record");
    assert_eq!(store.inspect(&stale.id).await.unwrap().unwrap().state, State::InFlight);
}

#[tokio::test]
async fn what_goes_wrong_with_one_is_its_own() {
    let file = File::migrated().await;
    let store = file.store().await;
    let unreadable = grant(&store, &claim("unreadable")).await;
    let mut other = file.connection().await;
    execute(&mut other, "UPDATE idempotency_records SET format = 99").await;
    let bad = refused_by_a_trigger(&mut other, "refused").await;

    let foreign = Foreign::writing(&file).await;
    let answer = outcome("answer");
    let (good, better) = (claim("good"), claim("better"));
    let meet = async {
        tokio::join!(store.claim(&good), store.complete(&unreadable, &answer), store.claim(&bad), store.claim(&better),)
    };
    let ((good, unread, bad, better), ()) = tokio::join!(meet, foreign.end());
    granted(good.unwrap());
    granted(better.unwrap());
    assert_eq!(unread.unwrap_err().kind(), StoreErrorKind::Unreadable);
    assert_eq!(bad.unwrap_err().kind(), StoreErrorKind::Refused);
}

/// A claim of this key, whose row a trigger does not let in.
async fn refused_by_a_trigger(connection: &mut SqliteConnection, key: &str) -> Claim {
    let statement = format!(
        "CREATE TRIGGER refused BEFORE INSERT ON idempotency_records WHEN NEW.id = x'{}'
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
        id(key)
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await.unwrap();
    claim(key)
}

#[tokio::test]
async fn whoever_leaves_does_not_take_the_operation_along() {
    let file = File::migrated().await;
    let store = Arc::new(file.store().await);
    let (one, two) = (grant(&*store, &claim("one")).await, grant(&*store, &claim("two")).await);
    let foreign = Foreign::writing(&file).await;
    for holder in [one, two] {
        let store = Arc::clone(&store);
        let leaver = tokio::spawn(async move { store.complete(&holder, &outcome("answer")).await });
        tokio::time::sleep(MEETING / 4).await;
        leaver.abort();
    }
    foreign.end().await;
    for holder in [one, two] {
        assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::AlreadyApplied);
    }
}

/// A store outlives the runtime in which somebody was just served.
#[test]
fn serving_goes_on_after_a_runtime_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (file, store, foreign): (File, SqliteStore, Foreign) = first.block_on(async {
        let file = File::migrated().await;
        let store = file.store().await;
        let foreign = Foreign::writing(&file).await;
        let asked = tokio::time::timeout(MEETING / 4, store.claim(&claim("cut off"))).await;
        assert!(asked.is_err(), "{asked:?}");
        (file, store, foreign)
    });
    drop(first);
    runtime().block_on(async {
        drop(foreign);
        is_granted(&store, "k").await;
    });
    drop(file);
}

/// The runtime ends before whoever was to serve has begun.
#[test]
fn serving_goes_on_after_a_runtime_that_never_began_to_serve() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (file, store) = first.block_on(async {
        let file = File::migrated().await;
        let store = file.store().await;
        let asked = claim("cut off");
        let mut asked = Box::pin(store.claim(&asked));
        assert!(futures_util::poll!(&mut asked).is_pending());
        drop(asked);
        (file, store)
    });
    drop(first);
    runtime().block_on(is_granted(&store, "k"));
    drop(file);
}

#[tokio::test]
async fn a_claim_outside_a_runtime_panics_and_harms_nobody() {
    let file = File::migrated().await;
    let store = file.store().await;
    let outside = store.clone();
    let panicked = std::thread::spawn(move || {
        let asked = claim("outside");
        let mut asked = std::pin::pin!(outside.claim(&asked));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = asked.as_mut().poll(&mut context);
    });
    assert!(panicked.join().is_err());
    is_granted(&store, "k").await;
}

async fn is_granted(store: &SqliteStore, key: &str) {
    let answer = tokio::time::timeout(PATIENT, store.claim(&claim(key))).await.expect("somebody serves");
    granted(answer.unwrap());
}

/// Those who wait are told when whoever was to serve them is gone.
#[test]
fn nobody_waits_for_a_runtime_that_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (file, store, foreign) = first.block_on(async {
        let file = File::migrated().await;
        let store = file.store().await;
        let foreign = Foreign::writing(&file).await;
        let asked = tokio::time::timeout(MEETING / 4, store.claim(&claim("served"))).await;
        assert!(asked.is_err(), "{asked:?}");
        (file, store, foreign)
    });
    second.block_on(async {
        // An abandon looks at nothing first: asked once, it waits.
        let waiting = claim("waiting");
        let waiting = store.abandon(&waiting.id, waiting.nonce, DEAD_FOR);
        let end = async {
            tokio::task::spawn_blocking(move || drop(first)).await.unwrap();
        };
        let told = tokio::time::timeout(PATIENT, async { tokio::join!(waiting, end) }).await.expect("it is told");
        assert_eq!(told.0.unwrap_err().kind(), StoreErrorKind::Unavailable);
        drop(foreign);
        is_granted(&store, "k").await;
    });
    drop(file);
}

/// Long enough for everybody to have come.
const MEETING: Duration = Duration::from_millis(300);
