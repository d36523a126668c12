//! Who comes alone makes one trip, and writes what must be written.

use idempotency::{Claimed, Settled, Store};

use crate::support::{File, claim, duplicate, grant, outcome, run};

/// How many pages were written to the log: a commit writes each page that it changes.
fn pages_written(file: &File) -> u64 {
    const HEADER: u64 = 32;
    const PAGE_WITH_ITS_HEADER: u64 = 4096 + 24;
    let log = file.path().with_extension("sqlite-wal");
    std::fs::metadata(log).unwrap().len().saturating_sub(HEADER) / PAGE_WITH_ITS_HEADER
}

#[tokio::test]
async fn a_claim_changes_a_row_and_two_indexes_and_its_completion_the_row() {
    let file = File::migrated().await;
    let store = file.store().await;
    let first = grant(&store, &claim("first")).await;
    let before = pages_written(&file);
    let holder = grant(&store, &claim("k")).await;
    assert_eq!(pages_written(&file) - before, 3);
    for holder in [holder, first] {
        let before = pages_written(&file);
        assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
        assert_eq!(pages_written(&file) - before, 1);
    }
}

#[tokio::test]
async fn a_duplicate_writes_nothing() {
    let file = File::migrated().await;
    let store = file.store().await;
    let (done, running) = (claim("done"), claim("running"));
    run(&store, &done, &outcome("answer")).await;
    let holder = grant(&store, &running).await;
    let before = pages_written(&file);
    assert!(matches!(store.claim(&duplicate(&done)).await.unwrap(), Claimed::Replay { .. }));
    assert!(matches!(store.claim(&duplicate(&running)).await.unwrap(), Claimed::InFlight { .. }));
    assert!(matches!(store.claim(&running).await.unwrap(), Claimed::Granted(again) if again.token == holder.token));
    assert_eq!(pages_written(&file), before);
}
