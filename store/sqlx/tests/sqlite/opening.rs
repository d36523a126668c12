//! Opening and migrating.

use std::error::Error;

use idempotency::{Claimed, OpenError, Store, StoreErrorKind};
use idempotency_sqlx::SqliteStore;

use crate::common::opening;
use crate::support::{File, claim, duplicate, granted, outcome, run};

opening::opening_tests!(File);

#[tokio::test]
async fn a_missing_file_is_a_missing_schema_and_is_not_made() {
    let file = File::missing();
    for url in [file.url(), format!("{}?mode=rwc", file.url())] {
        let error = SqliteStore::open(&url).await.unwrap_err();
        assert!(matches!(error, OpenError::Schema { found: 0, needed: 3 }), "{error:?}");
    }
    assert!(!file.path().exists());
}

#[tokio::test]
async fn a_missing_folder_is_no_store() {
    let url = format!("sqlite:{}/nowhere/store.sqlite", File::missing().path().display());
    for error in [SqliteStore::open(&url).await.map(drop), SqliteStore::migrate(&url).await] {
        let error = error.unwrap_err();
        assert!(matches!(&error, OpenError::Store(error) if error.kind() == StoreErrorKind::Unavailable), "{error:?}");
        assert!(error.source().is_some_and(|source| source.source().is_some()), "what SQLite said is kept");
    }
}

#[tokio::test]
async fn what_cannot_be_written_is_no_store() {
    let file = File::migrated().await;
    let error = SqliteStore::open(&format!("{}?mode=ro", file.url())).await.unwrap_err();
    assert!(matches!(&error, OpenError::Store(error) if error.kind() == StoreErrorKind::Unavailable), "{error:?}");
}

#[tokio::test]
async fn what_is_no_database_is_no_store() {
    let file = File::missing();
    std::fs::write(file.path(), [b'x'; 8192]).unwrap();
    let error = SqliteStore::open(&file.url()).await.unwrap_err();
    assert!(matches!(&error, OpenError::Store(error) if error.kind() == StoreErrorKind::Unreadable), "{error:?}");
}

#[tokio::test]
async fn a_database_in_memory_and_other_urls_are_refused() {
    let in_memory = ["sqlite::memory:", "sqlite://:memory:", "sqlite:x?mode=memory", "sqlite:file::memory:"];
    let unusable = ["sqlite:", "sqlite://", "sqlite:x?y=z", "store.sqlite", "postgres://u:secret@h/d"];
    for url in in_memory.into_iter().chain(unusable) {
        for error in [SqliteStore::open(url).await.map(drop), SqliteStore::migrate(url).await] {
            let error = error.unwrap_err();
            assert!(matches!(error, OpenError::Url(_)), "{url}: {error:?}");
            assert!(!error.to_string().contains("secret"));
        }
    }
}

#[tokio::test]
async fn the_scheme_of_a_url_chooses_the_store() {
    let file = File::migrated().await;
    let store = idempotency_sqlx::open(&file.url()).await.unwrap();
    granted(store.claim(&claim("k")).await.unwrap());
    let error = idempotency_sqlx::open("odd://u:secret@h/d").await.unwrap_err();
    assert!(matches!(error, OpenError::Url(_)), "{error:?}");
    assert!(error.to_string().contains("`odd`") && !error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_url_with_slashes_names_the_same_file() {
    let file = File::migrated().await;
    let url = file.url().replacen("sqlite:", "sqlite://", 1);
    granted(SqliteStore::open(&url).await.unwrap().claim(&claim("k")).await.unwrap());
}

#[tokio::test]
async fn open_waits_for_nobody_who_is_writing() {
    let file = File::migrated().await;
    let mut other = file.connection().await;
    sqlx::raw_sql("BEGIN IMMEDIATE;").execute(&mut other).await.unwrap();
    let store = file.store().await;
    assert_eq!(store.inspect(&claim("k").id).await.unwrap(), None);
}

#[tokio::test]
async fn a_closed_store_leaves_no_log_and_opens_again_when_asked() {
    let file = File::migrated().await;
    let store = file.store().await;
    let request = claim("k");
    run(&store, &request, &outcome("answer")).await;
    store.close().await.unwrap();
    assert!(!file.path().with_extension("sqlite-wal").exists());
    let again = store.claim(&duplicate(&request)).await.unwrap();
    assert!(matches!(again, Claimed::Replay { .. }));
}
