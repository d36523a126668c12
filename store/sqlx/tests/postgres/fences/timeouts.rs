//! A holder that stands still, and a server that was failed over.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use idempotency_sqlx::Isolation;
use idempotency_sqlx::fence::{FenceError, Fences, Once, PostgresFences, once};
use idempotency_testbed::servers::{PgBouncer, Postgres};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor, Row};
use tokio::task::JoinSet;

use super::Rig;
use super::suite::{self, Rig as _, account, fresh, is_superseded};
use crate::support::server;

/// A process that is stopped inside a transaction has the fence's lock, and no lease of it ends. The server does.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_holder_keeps_its_successor_out_no_longer_than_the_idle_timeout() {
    let rig = Rig::new().await;
    let idle = Duration::from_millis(500);
    let fences = rig.fences().idle_timeout(idle);
    let mut stopped = fences.open_with(&account(), &fresh(33)).await.unwrap();
    stopped.execute("UPDATE accounts SET balance = 0 WHERE id = 1").await.unwrap();
    let since = Instant::now();
    let mut successor = fences.open_with(&account(), &fresh(34)).await.unwrap();
    assert!((idle / 2..suite::PATIENT).contains(&since.elapsed()), "{:?}", since.elapsed());
    assert_eq!(successor.fetch_one(suite::BALANCE).await.unwrap().get::<i64, _>(0), 100);
    successor.commit().await.unwrap();

    // It wakes into an error.
    stopped.execute("UPDATE accounts SET balance = 1 WHERE id = 1").await.unwrap_err();
    stopped.commit().await.unwrap_err();
    is_superseded(suite::refused(&fences, &account(), &fresh(33)).await, 34);
    assert_eq!(suite::balance(&rig).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_of_the_transaction_alone() {
    let rig = Rig::new().await;
    let settings = "SELECT current_setting('transaction_isolation') || ' ' || current_setting('lock_timeout')
        || ' ' || current_setting('idle_in_transaction_session_timeout')";
    let mut connection = rig.pool.acquire().await.unwrap();
    let before: String = connection.fetch_one(settings).await.unwrap().get(0);
    drop(connection);
    let fences = rig.fences().lock_timeout(Duration::from_secs(7)).idle_timeout(Duration::from_secs(9));
    for (isolation, name) in [
        (Isolation::ReadCommitted, "read committed 7s 9s"),
        (Isolation::RepeatableRead, "repeatable read 7s 9s"),
        (Isolation::Serializable, "serializable 7s 9s"),
    ] {
        let mut opened = fences.clone().isolation(isolation).open(&account()).await.unwrap();
        assert_eq!(opened.fetch_one(settings).await.unwrap().get::<String, _>(0), name);
        opened.commit().await.unwrap();
    }
    let after: String = rig.pool.fetch_one(settings).await.unwrap().get(0);
    assert_eq!(before, after);
}

/// Nothing is kept in a session, so a proxy may give every transaction another one.
#[tokio::test(flavor = "multi_thread")]
async fn fences_work_through_a_proxy_that_pools_transactions() {
    let _ = server().create_database("proxied_fences");
    // Alone in its database: its tables are where everybody looks.
    let direct = Rig::at(&server().url("proxied_fences"), "public_of_one".to_owned()).await;
    direct.run("ALTER DATABASE proxied_fences SET search_path = public_of_one").await;
    let proxy = PgBouncer::start(server());
    let pool = PgPoolOptions::new().max_connections(8).connect(&proxy.url("proxied_fences")).await.unwrap();
    let fences = PostgresFences::new(pool).lock_timeout(suite::PATIENT);
    let mut tasks = JoinSet::new();
    for worker in 0..6 {
        let fences = fences.clone();
        tasks.spawn(async move {
            for turn in 0..10 {
                let mut opened = fences.open(&account()).await.unwrap();
                let marker = suite::id(&format!("{worker}-{turn}"));
                assert_eq!(once(&mut opened, &marker).await.unwrap(), Once::First);
                let balance: i64 =
                    opened.fetch_one(sqlx::query(suite::BALANCE).persistent(false)).await.unwrap().get(0);
                let write = sqlx::query("UPDATE accounts SET balance = $1 WHERE id = 1").bind(balance + 1);
                opened.execute(write.persistent(false)).await.unwrap();
                let tenure = opened.commit().await.unwrap();
                match fences.verify(&tenure).await {
                    Ok(beside) => drop(beside.commit().await.unwrap()),
                    Err(answer) => assert!(matches!(answer, FenceError::Superseded { .. }), "{answer:?}"),
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(suite::balance(&direct).await, 160);
}

/// The number of the timeline changes at once when a server is promoted, although nothing that was committed is missing
/// here: the next one may have lost what it read. A whole tenure in one transaction is right all the same, since fence
/// and data fall back together.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenure_does_not_go_on_after_a_promotion() {
    let mut server = Postgres::start();
    let rig = Rig::at(&server.create_database("promoted"), "place".to_owned()).await;
    let (checked, unchecked) = (rig.fences(), rig.fences().without_timeline());
    let opened = checked.open(&account()).await.unwrap().commit().await.unwrap();
    checked.reopen(&opened).await.unwrap().commit().await.unwrap();
    let unlooked = unchecked.open(&suite::resource("unlooked")).await.unwrap().commit().await.unwrap();

    let data: String = rig.pool.fetch_one("SHOW data_directory").await.unwrap().get(0);
    let number = |row: sqlx::postgres::PgRow| row.get::<String, _>(0);
    let timeline = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";
    assert_eq!(rig.pool.fetch_one(timeline).await.map(number).unwrap(), "00000001");
    rig.run("ALTER SYSTEM SET restore_command = 'false'").await;
    server.stop();
    // Recovery from an archive that has nothing, at the end of which a server takes over.
    let signal = Path::new(&data).join("recovery.signal");
    std::fs::write(&signal, "").unwrap();
    let owner = std::fs::metadata(&data).unwrap();
    chown(&signal, Some(owner.uid()), Some(owner.gid())).unwrap();
    server.restart();

    let patience = Instant::now() + suite::PATIENT;
    let promoted = loop {
        // Connections that are cut, and then one that may be too early.
        match rig.pool.fetch_one(timeline).await.map(number) {
            Ok(promoted) => break promoted,
            Err(error) => assert!(Instant::now() < patience, "{error:?}"),
        }
    };
    assert_eq!(promoted, "00000002");
    for answer in [checked.reopen(&opened).await, checked.verify(&opened).await] {
        let answer = answer.unwrap_err();
        assert!(matches!(answer, FenceError::Rewound), "{answer:?}");
    }
    unchecked.reopen(&unlooked).await.unwrap().commit().await.unwrap();
    let anew = checked.open(&account()).await.unwrap().commit().await.unwrap();
    assert!(anew.ticket().token > opened.ticket().token);
    checked.reopen(&anew).await.unwrap().commit().await.unwrap();
}
