//! Opening and migrating.

use std::error::Error;
use std::time::Duration;

use idempotency::{OpenError, Store, StoreErrorKind};
use idempotency_sqlx::MySqlStore;
use sqlx::mysql::MySqlPoolOptions;

use crate::common::{Database, opening};
use crate::support::{Place, server};
use idempotency_testbed::requests::{PATIENT, claim, duplicate, granted, outcome, replayed, run};

opening::opening_tests!(Place);

#[tokio::test]
async fn a_store_on_the_programs_own_pool_shares_the_records() {
    let place = Place::migrated().await;
    let request = claim("k");
    run(&place.real_options().open().await.unwrap(), &request, &outcome("answer")).await;
    let store = MySqlStore::from_pool(place.pool()).await.unwrap();
    assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
    run(&store, &claim("l"), &outcome("another")).await;
    let error = MySqlStore::from_pool(Place::empty().await.pool()).await.unwrap_err();
    assert!(matches!(error, OpenError::Schema { found: 0, .. }), "{error:?}");
}

/// What a claim writes would be rolled back, and what a read sees would be old.
#[tokio::test]
async fn a_pool_without_autocommit_is_refused() {
    let place = Place::migrated().await;
    let pool = MySqlPoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move { sqlx::raw_sql("SET SESSION autocommit = 0").execute(connection).await.map(drop) })
    });
    let error = MySqlStore::from_pool(pool.connect_lazy(place.url()).unwrap()).await.unwrap_err();
    assert!(matches!(&error, OpenError::Store(error) if error.kind() == StoreErrorKind::Refused), "{error:?}");
}

/// Whoever was cut off between two tables leaves the first ones and no version.
#[tokio::test]
async fn a_migration_that_was_cut_off_is_done_the_next_time() {
    let place = Place::migrated().await;
    place.execute("DELETE FROM idempotency_migrations; DROP TABLE idempotency_clock;").await;
    let Err(error) = place.open().await else { panic!("opened") };
    assert!(matches!(error, OpenError::Schema { found: 0, .. }), "{error:?}");
    place.migrate().await.unwrap();
    assert_eq!(place.texts(Place::DESCRIBE).await, Place::migrated().await.texts(Place::DESCRIBE).await);
    granted(place.store().await.claim(&claim("k")).await.unwrap());
}

#[tokio::test]
async fn no_server_is_unavailable_and_a_missing_database_or_a_wrong_password_is_refused() {
    server()
        .sql("", "CREATE USER guarded@'127.0.0.1' IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO guarded@'127.0.0.1';");
    let place = Place::migrated().await;
    let cases = [
        ("mysql://app@127.0.0.1:1/x".to_owned(), StoreErrorKind::Unavailable),
        (server().url("no_such_database"), StoreErrorKind::Refused),
        (place.url().replacen("app@", "guarded:wrong@", 1), StoreErrorKind::Refused),
    ];
    for (url, kind) in cases {
        let options = MySqlStore::options(&url).wait(Duration::from_secs(2));
        for error in [options.clone().open().await.map(drop), options.migrate().await] {
            let error = error.unwrap_err();
            assert!(matches!(&error, OpenError::Store(error) if error.kind() == kind), "{error:?}");
            assert!(error.source().is_some_and(|source| source.source().is_some()), "what sqlx said is kept");
        }
    }
    MySqlStore::open(&place.url().replacen("app@", "guarded:secret@", 1)).await.unwrap();
}

#[tokio::test]
async fn other_urls_are_refused() {
    for url in ["", "mysql:", "postgres://u:secret@h/d", "mysql://u:secret@h:x/d", "mysql://u:secret@h", "mariadb://h/"]
    {
        for error in [MySqlStore::open(url).await.map(drop), MySqlStore::migrate(url).await] {
            let error = error.unwrap_err();
            assert!(matches!(error, OpenError::Url(_)), "{url}: {error:?}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
    let options = MySqlStore::options("mysql://u:secret@h/d");
    assert!(!format!("{options:?}").contains("secret"));
}

#[tokio::test]
async fn the_scheme_of_a_url_chooses_the_store() {
    let place = Place::migrated().await;
    for (n, url) in [place.url().to_owned(), place.url().replacen("mysql:", "mariadb:", 1)].iter().enumerate() {
        let store = idempotency_sqlx::open(url).await.unwrap();
        granted(store.claim(&claim(&n.to_string())).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_no_question_is_given_up_in_time() {
    let place = Place::migrated().await;
    let options = |url: &str| MySqlStore::options(url).wait(PATIENT);
    let open = async |url: &str| options(url).open().await.map(drop);
    let migrate = async |url: &str| options(url).migrate().await;
    opening::a_server_that_answers_no_question_is_given_up_in_time(place.url(), open, migrate).await;
}
