//! What is in the tables: who sees it, and what is not taken for something else.

use std::time::{Duration, Instant};

use idempotency::{AgeLimit, Claim, Claimed, KeyClass, Lease, Life, List, Recovery, Store, Timestamp, Windows};
use idempotency_sqlx::MySqlStore;
use sqlx::mysql::MySqlPoolOptions;

use crate::common::{Database, Server, contents};
use crate::support::Place;
use idempotency_testbed::requests::{HOUR, claim, duplicate, grant, granted, outcome, replayed, run};
use idempotency_testbed::servers::MariaDb;

contents::contents_tests!(Place);

/// Not even a no-op, which would be counted as one row by the driver (case 61) and make it wait for the row.
#[tokio::test]
async fn a_duplicate_neither_writes_nor_locks_the_row() {
    let place = Place::migrated().await;
    let (done, running) = (claim("done"), claim("running"));
    let stores = place.real_stores().await;
    run(&stores[0], &done, &outcome("answer")).await;
    grant(&stores[0], &running).await;
    // Whoever wanted to write or lock a row would wait for this one.
    let mut other = place.connection().await;
    Place::execute_on(&mut other, "BEGIN; SELECT 1 FROM idempotency_records FOR UPDATE;").await;
    let begun = Instant::now();
    for store in &stores {
        for request in [&done, &running] {
            store.claim(&duplicate(request)).await.unwrap();
            let mismatch = Claim { fingerprint: claim("other").fingerprint, ..duplicate(request) };
            assert_eq!(store.claim(&mismatch).await.unwrap(), Claimed::Mismatch);
        }
        store.claim(&running).await.unwrap();
        store.inspect(&done.id).await.unwrap();
        store.list(&List::default()).await.unwrap();
        store.sweep(10).await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "somebody waited");
    Place::execute_on(&mut other, "ROLLBACK;").await;
}

/// What a statement keeps aside while it writes goes to the disk if it holds a payload, in a file of its own, which takes longer than the write.
#[tokio::test]
async fn a_claim_and_its_completion_keep_nothing_aside_on_disk() {
    let server = MariaDb::start();
    let url = server.create_database("aside");
    MySqlStore::migrate(&url).await.unwrap();
    let store = MySqlStore::open(&url).await.unwrap();
    let kept_aside = || {
        let count = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Created_tmp_disk_tables'";
        server.sql("aside", count).trim().parse::<u64>().unwrap()
    };
    run(&store, &claim("before"), &outcome("answer")).await;
    let before = kept_aside();
    for n in 0..20 {
        run(&store, &claim(&format!("{n}")), &outcome("answer")).await;
    }
    // The count itself may be read out of such a table.
    assert!(kept_aside() - before < 20);
}

/// A collation takes `a`, `A` and `a ` for one.
#[tokio::test]
async fn classes_that_differ_in_case_or_trailing_blanks_stay_apart() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let aged = |class: &str| {
        let age = AgeLimit { max_age: HOUR, drift: HOUR, class: KeyClass::new(class) };
        let windows = Windows::new(HOUR, 4 * HOUR).unwrap();
        let life = Life::new(Recovery::Hold, windows).with_age(age, Lease::default()).unwrap();
        let key_time = Some(Timestamp::from_micros(1_800_000_000_000_000));
        Claim { life, key_time, ..claim("k") }
    };
    let request = aged("uuid7");
    run(&store, &request, &outcome("answer")).await;
    place.execute("INSERT INTO idempotency_floors (class, floor) VALUES ('uuid7', 1800000000000001);").await;
    assert_eq!(store.claim(&Claim { id: claim("another").id, ..duplicate(&request) }).await.unwrap(), Claimed::TooOld);
    for (key, other) in [("l", "UUID7"), ("m", "uuid7 "), ("n", "üuid7")] {
        granted(store.claim(&Claim { id: claim(key).id, ..aged(other) }).await.unwrap());
    }
    let classes = place.texts("SELECT key_class FROM idempotency_records ORDER BY key_class").await;
    assert_eq!(classes, ["UUID7", "uuid7", "uuid7 ", "üuid7"]);
    let too_long = aged(&"x".repeat(256));
    assert!(store.claim(&Claim { id: claim("long").id, ..too_long }).await.is_err(), "it is not cut off");
}

/// The isolation level, the time zone, no strictness, double quotes for names: none of it is the store's.
#[tokio::test]
async fn settings_of_the_programs_sessions_do_not_matter() {
    let place = Place::migrated().await;
    const SETTINGS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; \
        SET SESSION time_zone = '+05:30', sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES';";
    let pool = MySqlPoolOptions::new()
        .after_connect(|connection, _| {
            Box::pin(async move { sqlx::raw_sql(SETTINGS).execute(connection).await.map(drop) })
        })
        .connect_lazy(place.url())
        .unwrap();
    let odd = MySqlStore::from_pool(pool.clone()).await.unwrap();
    let plain = place.real_options().open().await.unwrap();
    let request = claim("k");
    let first = granted(odd.claim(&request).await.unwrap()).token;
    let holder = idempotency::Holder { id: request.id, token: first, nonce: request.nonce };
    assert_eq!(plain.complete(&holder, &outcome("answer")).await.unwrap(), idempotency::Settled::Applied);
    assert_eq!(replayed(odd.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
    let second = granted(plain.claim(&claim("l")).await.unwrap()).token;
    assert!(second > first && second.get() - first.get() < 60_000_000, "{first} and then {second}: one clock, in UTC");
    // And the store has left them as they were.
    let level: String =
        sqlx::query_scalar("SELECT CONCAT(@@tx_isolation, ' ', @@time_zone)").fetch_one(&pool).await.unwrap();
    assert_eq!(level, "SERIALIZABLE +05:30");
}
