//! Sweeping: what goes, what stays, and what remains of it.

use std::time::Duration;

use idempotency::{Claim, Claimed, Store};

use crate::common::forgetting::{self, MAX_AGE, aged};
use crate::support::{HOUR, Place, duplicate, execute, outcome, run};

forgetting::forgetting_tests!(Place);
forgetting::shared_forgetting_tests!(Place);

/// The claim's statement began before the purge was committed, waited for it, and so does not see its floor.
#[tokio::test]
async fn a_claim_that_waits_for_a_purge_of_its_key_sees_the_floor_of_it() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let request = aged(&place, "k", MAX_AGE);
    run(&store, &request, &outcome("answer")).await;
    let generous = Claim { key_time: request.key_time, ..duplicate(&aged(&place, "k", 900 * HOUR)) };
    let mut sweeper = place.connection().await;
    let floor = request.key_time.unwrap().micros();
    let purge =
        format!("BEGIN; INSERT INTO idempotency_floors VALUES ('uuid7', {floor}); DELETE FROM idempotency_records;");
    execute(&mut sweeper, &purge).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&generous).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "it waits for the purge");
    execute(&mut sweeper, "COMMIT;").await;
    assert_eq!(waiting.await.unwrap().unwrap(), Claimed::TooOld);
    assert_eq!(store.inspect(&request.id).await.unwrap(), None, "nothing of it stayed");
}
