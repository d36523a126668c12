//! Opening and migrating.

use std::error::Error;
use std::time::Duration;

use idempotency::{OpenError, Store, StoreErrorKind};
use idempotency_sqlx::PostgresStore;
use sqlx::PgPool;

use crate::support::{Place, claim, duplicate, granted, outcome, replayed, run, server};

#[tokio::test]
async fn missing_tables_are_a_missing_schema_and_are_not_made() {
    let place = Place::empty().await;
    place.execute("CREATE TABLE other (x INTEGER);").await;
    for _ in 0..2 {
        let pool = PgPool::connect(place.url()).await.unwrap();
        for opened in [PostgresStore::open(place.url()).await, PostgresStore::from_pool(pool).await] {
            let error = opened.unwrap_err();
            assert!(matches!(error, OpenError::Schema { found: 0, needed: 2 }), "{error:?}");
        }
    }
}

#[tokio::test]
async fn tables_of_a_newer_release_are_refused_by_open_and_migrate() {
    let place = Place::migrated().await;
    place.execute("INSERT INTO idempotency_migrations (version, applied_at) VALUES (3, 0);").await;
    for error in [PostgresStore::open(place.url()).await.map(drop), PostgresStore::migrate(place.url()).await] {
        let error = error.unwrap_err();
        assert!(matches!(error, OpenError::SchemaTooNew { found: 3, needed: 2 }), "{error:?}");
    }
}

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

#[tokio::test]
async fn migrating_again_keeps_what_is_there() {
    let place = Place::migrated().await;
    let request = claim("k");
    run(&place.store().await, &request, &outcome("answer")).await;
    place.options().migrate().await.unwrap();
    assert_eq!(replayed(place.store().await.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_migrate_at_once() {
    let place = Place::empty().await;
    let migrations: Vec<_> = (0..8)
        .map(|_| {
            let options = place.options();
            tokio::spawn(async move {
                options.clone().migrate().await?;
                options.open().await.map(drop)
            })
        })
        .collect();
    for migration in migrations {
        migration.await.unwrap().unwrap();
    }
    granted(place.store().await.claim(&claim("k")).await.unwrap());
}

#[tokio::test]
async fn the_plain_schema_is_what_migrate_makes() {
    let (migrated, plain) = (Place::migrated().await, Place::empty().await);
    plain.execute(PostgresStore::SCHEMA).await;
    assert_eq!(schema(&migrated).await, schema(&plain).await);
    granted(plain.store().await.claim(&claim("k")).await.unwrap());
    plain.options().migrate().await.unwrap();
}

/// Columns, indexes and constraints, and the versions.
async fn schema(place: &Place) -> Vec<String> {
    let statement = "
        SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable) FROM information_schema.columns
            WHERE table_schema = current_schema
        UNION ALL
        SELECT replace(indexdef, current_schema, '') FROM pg_indexes WHERE schemaname = current_schema
        UNION ALL
        SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = current_schema::regnamespace
        UNION ALL
        SELECT version::text FROM idempotency_migrations
        ORDER BY 1";
    let lines: Vec<String> = sqlx::query_scalar(statement).fetch_all(&mut place.connection().await).await.unwrap();
    assert!(lines.len() > 30, "{lines:?}");
    lines
}
