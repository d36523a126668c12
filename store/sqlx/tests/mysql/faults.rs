//! The server dies, or stands still; somebody stands still in the middle of something.

use std::time::{Duration, Instant};

use idempotency::{Settled, Store, StoreErrorKind};

use crate::common::{Database, Server, faults};
use crate::support::Place;
use idempotency_testbed::requests::{claim, grant, outcome};

faults::faults_tests!(Place);

/// As a process does that is stopped between two statements. Its connection stays open.
#[tokio::test]
async fn whoever_stands_still_in_a_transaction_does_not_hold_its_row_for_ever() {
    let place = Place::migrated().await;
    let store = place.real_options().open().await.unwrap();
    let holder = grant(&store, &claim("k")).await;
    // A session like those of the store's own pool.
    let mut other = place.connection().await;
    Place::execute_on(&mut other, include_str!("../../sql/mysql/connect.sql")).await;
    Place::execute_on(&mut other, "BEGIN; SELECT 1 FROM idempotency_records FOR UPDATE;").await;
    let begun = Instant::now();
    loop {
        match store.complete(&holder, &outcome("answer")).await {
            Ok(settled) => break assert_eq!(settled, Settled::Applied),
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Busy),
        }
        assert!(begun.elapsed() < Duration::from_secs(25), "it holds the row still");
    }
    assert!(begun.elapsed() > Duration::from_secs(5), "{:?}", begun.elapsed());
}
