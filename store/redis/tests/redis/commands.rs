//! How many commands an operation takes.

use futures_util::StreamExt as _;
use idempotency::{Claim, Claimed, Lease, List, Nonce, Settled, Store};
use idempotency_testbed::servers::Redis;

use crate::support::{DEAD_FOR, Place, claim, duplicate, grant, outcome, run};

/// The names of the commands that clients send while `work` is done. What scripts call is not among them.
pub(crate) async fn sent(server: &Redis, work: impl Future<Output = ()>) -> Vec<String> {
    let client = redis::Client::open(server.url()).unwrap();
    let monitor = client.get_async_monitor().await.unwrap();
    work.await;
    server.cli(&["ECHO", "done"]);
    let mut names = Vec::new();
    let mut lines = monitor.into_on_message::<String>();
    while let Some(line) = lines.next().await {
        // `TIME [DATABASE ADDRESS] "NAME" "ARGUMENT"…`, the address of a script being `lua`.
        let (source, command) = line.split_once(']').unwrap();
        let name = command.split('"').nth(1).unwrap().to_lowercase();
        match name.as_str() {
            "echo" => return names,
            _ if source.ends_with(" lua") => {}
            _ => names.push(name),
        }
    }
    panic!("the server is gone")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_request_takes_two_commands_and_every_other_operation_one() {
    let server = Redis::start();
    let store = Place::at(server.url()).real_store().await;
    let (warm, request) = (claim("warm"), claim("k"));
    // The server gets to know the scripts.
    let holder = grant(&store, &warm).await;
    store.renew(&holder, Lease::default()).await.unwrap();
    store.release(&holder, DEAD_FOR).await.unwrap();
    store.abandon(&warm.id, Nonce::random(), DEAD_FOR).await.unwrap();
    store.sweep(10).await.unwrap();
    let doubtful = grant(&store, &claim("doubtful")).await;
    store.mark_in_doubt(&doubtful, Some(&outcome("sorry"))).await.unwrap();
    run(&store, &claim("done"), &outcome("answer")).await;

    let fresh = sent(&server, async {
        run(&store, &request, &outcome("answer")).await;
    })
    .await;
    assert_eq!(fresh, ["evalsha", "evalsha"]);
    let replay = sent(&server, async {
        assert!(matches!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Replay { .. }));
    });
    assert_eq!(replay.await, ["evalsha"]);
    let mismatch = Claim { fingerprint: claim("other").fingerprint, ..duplicate(&request) };
    let mismatch = sent(&server, async { assert_eq!(store.claim(&mismatch).await.unwrap(), Claimed::Mismatch) });
    assert_eq!(mismatch.await, ["evalsha"]);

    let running = claim("running");
    let holder = grant(&store, &running).await;
    let conflict = sent(&server, async {
        assert!(matches!(store.claim(&duplicate(&running)).await.unwrap(), Claimed::InFlight { .. }));
    });
    assert_eq!(conflict.await, ["evalsha"]);
    let renewal = sent(&server, async {
        assert_eq!(store.renew(&holder, Lease::default()).await.unwrap(), Settled::Applied);
    });
    assert_eq!(renewal.await, ["evalsha"]);
    let release = sent(&server, async {
        assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
    });
    assert_eq!(release.await, ["evalsha"]);
    let abandon = sent(&server, async { store.abandon(&running.id, Nonce::random(), DEAD_FOR).await.unwrap() });
    assert_eq!(abandon.await, ["evalsha"]);
    let inspect = sent(&server, async { drop(store.inspect(&running.id).await.unwrap()) });
    assert_eq!(inspect.await, ["evalsha"]);
    let list = sent(&server, async { drop(store.list(&List::default()).await.unwrap()) }).await;
    assert_eq!(list.iter().filter(|name| *name == "scan").count(), 1);
    assert_eq!(list.iter().filter(|name| *name == "evalsha").count(), 5);
}

#[tokio::test]
async fn a_server_that_has_lost_its_scripts_is_sent_the_code_once() {
    let server = Redis::start();
    let place = Place::at(server.url());
    let store = place.real_store().await;
    run(&store, &claim("warm"), &outcome("answer")).await;
    let names = sent(&server, async {
        server.cli(&["SCRIPT", "FLUSH"]);
        run(&store, &claim("k"), &outcome("answer")).await;
        run(&store, &claim("l"), &outcome("answer")).await;
    });
    let expected = ["script", "evalsha", "eval", "evalsha", "eval", "evalsha", "evalsha"];
    assert_eq!(names.await, expected);
}
