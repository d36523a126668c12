//! Sweeping: what goes, what stays, and what remains of it.

use idempotency::{Claim, Claimed, Store};

use crate::common::forgetting::{self, MAX_AGE, aged};
use crate::common::{Database, Server};
use crate::support::Place;
use idempotency_testbed::requests::{HOUR, duplicate, outcome, run};

forgetting::forgetting_tests!(Place);
forgetting::shared_forgetting_tests!(Place);

/// A plain read sees the record until the purge is committed, and the floor from then on: at no moment neither.
#[tokio::test]
async fn a_claim_beside_a_purge_of_its_key_is_too_old() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let request = aged(&place, "k", MAX_AGE);
    run(&store, &request, &outcome("answer")).await;
    let generous = Claim { key_time: request.key_time, ..duplicate(&aged(&place, "k", 900 * HOUR)) };
    // Its life is over, and the key still young enough for the claim's own settings.
    place.execute("UPDATE idempotency_records SET since = 0, max_age = 0, drift = 0, tombstone_window = 0;").await;
    place.clock.advance(HOUR);
    let mut sweeper = place.connection().await;
    let floor = request.key_time.unwrap().micros();
    let purge = format!(
        "BEGIN; INSERT INTO idempotency_floors (class, floor) VALUES ('uuid7', {floor}); DELETE FROM idempotency_records;"
    );
    Place::execute_on(&mut sweeper, &purge).await;
    assert_eq!(store.claim(&generous).await.unwrap(), Claimed::TooOld);
    Place::execute_on(&mut sweeper, "COMMIT;").await;
    assert_eq!(store.claim(&generous).await.unwrap(), Claimed::TooOld);
    assert_eq!(store.inspect(&request.id).await.unwrap(), None, "nothing of it stayed");
}
