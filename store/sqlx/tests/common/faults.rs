//! The server dies, or stands still.

use std::time::{Duration, Instant};

use idempotency::{Claimed, Settled, Store, StoreError, StoreErrorKind};

use super::{Harm, Server};
use idempotency_testbed::requests::{PATIENT, claim, duplicate, grant, outcome, replayed, run};

pub(crate) async fn a_server_that_was_killed_and_restarted_still_replays<S: Server>() {
    let mut machine = S::start();
    let place = S::on(&machine);
    place.migrate().await.unwrap();
    let kinds = place.stores_that_wait(Duration::from_secs(2)).await.len();
    for kind in 0..kinds {
        // Opened anew: the connections of the others broke in the round before.
        let store = place.stores_that_wait(Duration::from_secs(2)).await.swap_remove(kind);
        let (done, running) = (claim(&format!("done-{kind}")), claim(&format!("running-{kind}")));
        run(&store, &done, &outcome("answer")).await;
        let holder = grant(&store, &running).await;

        S::harm(&mut machine, Harm::Kill);
        for _ in 0..3 {
            let error = store.claim(&duplicate(&done)).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
        }
        S::harm(&mut machine, Harm::Restart);
        assert_eq!(replayed(answered(async || store.claim(&duplicate(&done)).await).await), outcome("answer"));
        let again = answered(async || store.claim(&duplicate(&running)).await).await;
        assert!(matches!(again, Claimed::InFlight { .. }), "{again:?}");
        let settled = answered(async || store.complete(&holder, &outcome("late")).await).await;
        assert_eq!(settled, Settled::Applied);
    }
}

/// Asks until the store can say: of the connections that broke, each may fail one operation.
async fn answered<T>(operation: impl AsyncFn() -> Result<T, StoreError>) -> T {
    let give_up = Instant::now() + Duration::from_secs(20);
    loop {
        match operation().await {
            Ok(answer) => return answer,
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
                assert!(Instant::now() < give_up, "it never answers: {error:?}");
            }
        }
    }
}

pub(crate) async fn a_server_that_stood_still_answers_when_it_goes_on<S: Server>() {
    let mut machine = S::start();
    let place = S::on(&machine);
    place.migrate().await.unwrap();
    for (n, store) in place.stores_that_wait(PATIENT).await.into_iter().enumerate() {
        let request = claim(&n.to_string());
        let holder = grant(&store, &request).await;
        S::harm(&mut machine, Harm::Pause);
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.complete(&holder, &outcome("answer")).await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!waiting.is_finished());
        S::harm(&mut machine, Harm::Resume);
        assert_eq!(waiting.await.unwrap().unwrap(), Settled::Applied);
        assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
    }
}

macro_rules! faults_tests {
    ($server:ty) => {
        crate::common::tests_of! { $server, faults:
            a_server_that_was_killed_and_restarted_still_replays
            a_server_that_stood_still_answers_when_it_goes_on
        }
    };
}
pub(crate) use faults_tests;
