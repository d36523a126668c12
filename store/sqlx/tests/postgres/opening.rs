//! Opening and migrating.

use std::error::Error;
use std::time::Duration;

use idempotency::{OpenError, Store, StoreErrorKind};
use idempotency_sqlx::PostgresStore;

use crate::common::{Database as _, opening};
use crate::support::{PATIENT, Place, claim, execute, granted, server};

opening::opening_tests!(Place);

#[tokio::test]
async fn a_missing_server_is_unavailable_and_a_missing_database_is_refused() {
    let nobody = "postgres://postgres@127.0.0.1:1/x".to_owned();
    let missing = server().url("no_such_database");
    for (url, kind) in [(nobody, StoreErrorKind::Unavailable), (missing, StoreErrorKind::Refused)] {
        let options = PostgresStore::options(&url).wait(Duration::from_secs(2));
        for error in [options.clone().open().await.map(drop), options.migrate().await] {
            let error = error.unwrap_err();
            assert!(matches!(&error, OpenError::Store(error) if error.kind() == kind), "{error:?}");
            assert!(error.source().is_some_and(|source| source.source().is_some()), "what sqlx said is kept");
        }
    }
}

/// Whoever waits for a table has all who use it wait behind him, so a migration that changes one does not wait for long.
#[tokio::test]
async fn a_migration_does_not_queue_behind_whoever_has_the_table() {
    let place = Place::empty().await;
    place.execute(Place::FIXTURE).await;
    let mut reader = place.connection().await;
    execute(&mut reader, "BEGIN; SELECT count(*) FROM idempotency_records;").await;
    let error = place.migrate().await.unwrap_err();
    assert!(matches!(&error, OpenError::Store(error) if error.kind() == StoreErrorKind::Busy), "{error:?}");
    execute(&mut reader, "ROLLBACK").await;
    place.migrate().await.unwrap();
    place.store().await;
}

#[tokio::test]
async fn other_urls_are_refused() {
    for url in ["", "postgres:", "mysql://u:secret@h/d", "host=h password=secret", "postgres://u:secret@h:x/d"] {
        for error in [PostgresStore::open(url).await.map(drop), PostgresStore::migrate(url).await] {
            let error = error.unwrap_err();
            assert!(matches!(error, OpenError::Url(_)), "{url}: {error:?}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
    let options = PostgresStore::options("postgres://u:secret@h/d");
    assert!(!format!("{options:?}").contains("secret"));
}

#[tokio::test]
async fn the_scheme_of_a_url_chooses_the_store() {
    let place = Place::migrated().await;
    for (n, url) in [place.url().to_owned(), place.url().replacen("postgres:", "postgresql:", 1)].iter().enumerate() {
        let store = idempotency_sqlx::open(url).await.unwrap();
        granted(store.claim(&claim(&n.to_string())).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_no_question_is_given_up_in_time() {
    let place = Place::migrated().await;
    let options = |url: &str| PostgresStore::options(url).wait(PATIENT);
    let open = async |url: &str| options(url).open().await.map(drop);
    let migrate = async |url: &str| options(url).migrate().await;
    opening::a_server_that_answers_no_question_is_given_up_in_time(place.url(), open, migrate).await;
}
