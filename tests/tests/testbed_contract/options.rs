//! What is wrong is said in one line, before anything is served.

use idempotency_testbed::{Ended, rig};

/// Ends with an error, one line on standard error that names `part`, and nothing on standard output.
fn refused(arguments: &[&str], ended: &Ended, part: &str) {
    let Ended { status, stdout, stderr } = ended;
    assert!(!status.success(), "{arguments:?} is taken");
    assert!(status.code().is_some(), "{arguments:?} ends by a signal: {status}");
    assert_eq!(stdout, "", "{arguments:?}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?} says more than a line: {stderr}");
    assert!(stderr.contains(part), "{arguments:?} says nothing of {part:?}: {stderr}");
}

async fn each_is_refused(cases: &[(&[&str], &str)]) {
    let rig = rig!();
    for (arguments, part) in cases {
        refused(arguments, &rig.run(arguments).await, part);
    }
}

#[tokio::test]
async fn zero_negative_and_endless_durations_are_refused() {
    let rig = rig!();
    let options = ["--lease", "--response-window", "--tombstone-window", "--sweep", "--store-timeout", "--max-run"];
    for option in options {
        for wrong in ["0s", "0", "-1s", "36501d", "5", "soon", "100us"] {
            let arguments = [option, wrong];
            refused(&arguments, &rig.run(&arguments).await, option);
        }
    }
    each_is_refused(&[
        (&["--in-flight", "wait:0s"], "--in-flight"),
        (&["--in-flight", "wait:-1s"], "--in-flight"),
        (&["--keys", "uuid7:0s"], "--keys"),
        (&["--keys", "uuid7:60s,40000d"], "--keys"),
    ])
    .await;
}

#[tokio::test]
async fn unknown_words_and_options_are_refused() {
    each_is_refused(&[
        (&["--recovery", "maybe"], "--recovery"),
        (&["--record", "all"], "--record"),
        (&["--scope", "tenant"], "--scope"),
        (&["--scope", "header:a b"], "--scope"),
        (&["--keys", "ulid:60s"], "--keys"),
        (&["--on-store-error", "ignore"], "--on-store-error"),
        (&["--max-request", "much"], "--max-request"),
        (&["--max-response", "-1"], "--max-response"),
        (&["--max-records", "1.5"], "--max-records"),
        (&["--listen", "nowhere"], "--listen"),
        (&["--no-such-option"], "--no-such-option"),
        (&["no-such-command"], "no-such-command"),
    ])
    .await;
}

#[tokio::test]
async fn settings_that_do_not_fit_together_are_refused() {
    each_is_refused(&[
        (&["--response-window", "2m", "--tombstone-window", "1m"], "--tombstone-window"),
        // 60 s drift and a lease of 2 s on top of it do not fit into 180 s.
        (&["--keys", "uuid7:119s"], "--keys"),
        (&["--store", "sqlite:a.sqlite", "--migrate", "--max-records", "5"], "--max-records"),
    ])
    .await;
}

#[tokio::test]
async fn stores_that_cannot_be_used_are_refused() {
    each_is_refused(&[
        (&["--store", "etcd://somewhere"], "--store"),
        (&["--store", "memory:big"], "--store"),
        (&["--store", ""], "--store"),
        (&["--store", "sqlite:"], "--store"),
        (&["--store", "sqlite::memory:"], "--store"),
        (&["--store", "sqlite:no-such-folder/store.sqlite", "--migrate"], "--store"),
        (&["--store", "sqlite:no-such-folder/store.sqlite"], "--store"),
        (&["--store", "postgres://u:s3cret@127.0.0.1:1/db"], "--store"),
        (&["--store", "mysql://u:s3cret@127.0.0.1:1/db"], "--store"),
        (&["--store", "redis://u:s3cret@127.0.0.1:1/0"], "--store"),
        (&["--ledger", "memory:"], "--ledger"),
        (&["--ledger", "sqlite::memory:"], "--ledger"),
        (&["--ledger", "sqlite:no-such-folder/ledger.sqlite"], "--ledger"),
        (&["--ledger", "postgres://u:s3cret@127.0.0.1:1/db"], "--ledger"),
        (&["--ledger", "mysql://u:s3cret@127.0.0.1:1/db"], "--ledger"),
        (&["--ledger", "etcd://somewhere"], "--ledger"),
        (&["bank", "--ledger", "no-such-folder/bank.sqlite"], "--ledger"),
    ])
    .await;
}

#[tokio::test]
async fn no_password_of_a_store_is_repeated() {
    let rig = rig!();
    for url in ["postgres://u:s3cret@127.0.0.1:1/db", "mysql://u:s3cret@127.0.0.1:1/db", "etcd://u:s3cret@localhost/db"]
    {
        for option in ["--store", "--ledger"] {
            let ended = rig.run(&[option, url]).await;
            assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
        }
    }
}

#[tokio::test]
async fn tables_are_made_only_when_asked_for() {
    let rig = rig!();
    let store = rig.sqlite_store();
    let without = ["--store", store.as_str()];
    refused(&without, &rig.run(&without).await, "--migrate");
    let testbed = rig.start_on_sqlite(&[]).await;
    assert_eq!(testbed.get("/health").await.status, 200);
    drop(testbed);
    let testbed = rig.start(&without).await;
    assert_eq!(testbed.get("/health").await.status, 200);
}

#[tokio::test]
async fn store_and_ledger_may_be_one_file() {
    let rig = rig!();
    let url = rig.sqlite_store();
    let options = ["--store", url.as_str(), "--ledger", url.as_str(), "--migrate"];
    let (one, two) = (rig.start_alone(&options).await, rig.start_alone(&options).await);
    let first = one.post("/charge", "k", &serde_json::json!({ "amount": 1 })).await;
    assert!(two.post("/charge", "k", &serde_json::json!({ "amount": 1 })).await.is_replay_of(&first));
    assert_eq!(two.effects("k").await, 1);
}

#[tokio::test]
async fn a_taken_address_is_refused() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let taken = testbed.addr().to_string();
    let arguments = ["--listen", taken.as_str()];
    refused(&arguments, &rig.run(&arguments).await, "--listen");
}

#[tokio::test]
async fn all_options_of_the_contract_are_taken() {
    let rig = rig!();
    #[rustfmt::skip]
    let testbed = rig.start(&[
        "--listen", "127.0.0.1:0", "--store", "memory:", "--migrate", "--lease", "500ms", "--response-window", "24h",
        "--tombstone-window", "30d", "--sweep", "off", "--recovery", "rerun", "--in-flight", "wait:3s", "--record", "stripe",
        "--scope", "header:X-Tenant", "--keys", "uuid7:5m,30s", "--on-store-error", "pass", "--store-timeout", "2s",
        "--max-request", "1000", "--max-response", "1000", "--max-run", "5m", "--max-records", "100", "--no-renew",
        "--unprotected", "--bank", "http://127.0.0.1:9",
    ]).await;
    assert_eq!(testbed.get("/health").await.status, 200);
    let ended = testbed.terminate().await;
    assert!(ended.status.success(), "{ended:?}");
}

#[tokio::test]
async fn without_options_it_serves_from_memory_and_a_ledger_of_its_own() {
    let rig = rig!();
    let (one, two) = (rig.start_alone(&[]).await, rig.start_alone(&[]).await);
    one.post("/charge", "a", &serde_json::json!({ "amount": 1 })).await;
    assert_eq!((one.all_effects().await, two.all_effects().await), (1, 0));
}
