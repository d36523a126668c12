//! Opening and migrating.

use std::error::Error;

use idempotency::{Claimed, OpenError, Store, StoreErrorKind};
use idempotency_sqlx::SqliteStore;
use sqlx::Row;

use crate::support::{File, PATIENT, claim, duplicate, granted, outcome, replayed, run};

#[tokio::test]
async fn a_missing_file_is_a_missing_schema_and_is_not_made() {
    let file = File::missing();
    for url in [file.url(), format!("{}?mode=rwc", file.url())] {
        let error = SqliteStore::open(&url).await.unwrap_err();
        assert!(matches!(error, OpenError::Schema { found: 0, needed: 2 }), "{error:?}");
    }
    assert!(!file.path().exists());
}

#[tokio::test]
async fn missing_tables_are_a_missing_schema_and_are_not_made() {
    let file = File::missing();
    file.execute("CREATE TABLE other (x INTEGER);").await;
    for _ in 0..2 {
        let error = SqliteStore::open(&file.url()).await.unwrap_err();
        assert!(matches!(error, OpenError::Schema { found: 0, needed: 2 }), "{error:?}");
    }
}

#[tokio::test]
async fn tables_of_a_newer_release_are_refused_by_open_and_migrate() {
    let file = File::migrated().await;
    file.execute("INSERT INTO idempotency_migrations (version, applied_at) VALUES (3, 0);").await;
    for error in [SqliteStore::open(&file.url()).await.map(drop), SqliteStore::migrate(&file.url()).await] {
        let error = error.unwrap_err();
        assert!(matches!(error, OpenError::SchemaTooNew { found: 3, needed: 2 }), "{error:?}");
    }
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
    for (url, missing) in [("mysql://u:secret@h/d", "`mysql`"), ("odd://u:secret@h/d", "`odd`")] {
        let error = idempotency_sqlx::open(url).await.unwrap_err();
        assert!(matches!(error, OpenError::Url(_)), "{error:?}");
        assert!(error.to_string().contains(missing) && !error.to_string().contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn a_url_with_slashes_names_the_same_file() {
    let file = File::migrated().await;
    let url = file.url().replacen("sqlite:", "sqlite://", 1);
    granted(SqliteStore::open(&url).await.unwrap().claim(&claim("k")).await.unwrap());
}

#[tokio::test]
async fn migrating_again_keeps_what_is_there() {
    let file = File::migrated().await;
    let request = claim("k");
    run(&file.store().await, &request, &outcome("answer")).await;
    SqliteStore::migrate(&file.url()).await.unwrap();
    let again = file.store().await.claim(&duplicate(&request)).await.unwrap();
    assert_eq!(replayed(again), outcome("answer"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_migrate_at_once() {
    let file = File::missing();
    let url = file.url();
    let migrations: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move {
                SqliteStore::options(&url).busy_timeout(PATIENT).migrate().await?;
                SqliteStore::options(&url).busy_timeout(PATIENT).open().await.map(drop)
            })
        })
        .collect();
    for migration in migrations {
        migration.await.unwrap().unwrap();
    }
    granted(SqliteStore::open(&url).await.unwrap().claim(&claim("k")).await.unwrap());
}

#[tokio::test]
async fn the_plain_schema_is_what_migrate_makes() {
    let (migrated, plain) = (File::migrated().await, File::missing());
    plain.execute(SqliteStore::SCHEMA).await;
    assert_eq!(schema(&migrated).await, schema(&plain).await);
    granted(plain.store().await.claim(&claim("k")).await.unwrap());
    SqliteStore::migrate(&plain.url()).await.unwrap();
}

async fn schema(file: &File) -> Vec<String> {
    let statement = "SELECT type || ' ' || name || ' ' || tbl_name || ' ' || coalesce(sql, '') AS line \
        FROM sqlite_schema UNION ALL SELECT version FROM idempotency_migrations ORDER BY 1";
    let rows = sqlx::query(statement).fetch_all(&mut file.connection().await).await.unwrap();
    rows.iter().map(|row| row.get_unchecked("line")).collect()
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
