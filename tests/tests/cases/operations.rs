//! How it is run.

use futures_util::future::join_all;
use idempotency_testbed::rig;

use crate::ten;

#[tokio::test]
async fn case_98_instances_need_a_shared_store() {
    let rig = rig!();
    for shared in [true, false] {
        let start = async || if shared { rig.start_on_sqlite(&[]).await } else { rig.start(&[]).await };
        let (one, two) = (start().await, start().await);
        let key = if shared { "shared" } else { "apart" };
        let body = ten();
        // As behind a round robin.
        join_all((0..10).map(|n| if n % 2 == 0 { &one } else { &two }).map(|one| one.post("/charge", key, &body)))
            .await;
        let (a, b) = (one.post("/charge", key, &body).await, two.post("/charge", key, &body).await);
        assert!(a.is_replayed() && b.is_replayed());
        assert_eq!(a.json()["id"] == b.json()["id"], shared, "one history behind one address needs one store");
        assert_eq!(one.effects(key).await, if shared { 1 } else { 2 });
        let warned = one.stderr().contains("memory");
        assert_eq!(warned, !shared, "a volatile store is said aloud at start: {}", one.stderr());
    }
}

#[tokio::test]
async fn case_02_twenty_duplicates_within_moments_meet_no_server_error() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let body = ten();
    let replies = join_all((0..21).map(|_| testbed.post("/charge?after=1000", "k", &body))).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 201 && !reply.is_replayed()).count(), 1);
    let losers = replies.iter().filter(|reply| reply.status != 201);
    assert_eq!(losers.filter(|reply| reply.is_in_flight()).count(), 20);
    assert_eq!(testbed.effects("k").await, 1);
}
