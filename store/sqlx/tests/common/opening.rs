//! Opening and migrating.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotency::{OpenError, Store, StoreErrorKind};
use idempotency_testbed::Fate;

use super::{Database, proxied};
use idempotency_testbed::requests::{claim, duplicate, granted, outcome, replayed, run};

pub(crate) async fn missing_tables_are_a_missing_schema_and_are_not_made<D: Database>() {
    let place = D::empty().await;
    place.execute("CREATE TABLE other (x INTEGER);").await;
    for _ in 0..2 {
        let Err(error) = place.open().await else { panic!("opened") };
        assert!(matches!(error, OpenError::Schema { found: 0, needed } if needed == D::VERSION), "{error:?}");
    }
}

pub(crate) async fn tables_of_an_older_release_are_brought_up_to_date_when_asked<D: Database>() {
    let place = D::empty().await;
    place.execute(D::FIXTURE).await;
    let Err(error) = place.open().await else { panic!("opened") };
    assert!(matches!(error, OpenError::Schema { found: 1, needed } if needed == D::VERSION), "{error:?}");
    place.migrate().await.unwrap();
    let migrated = D::migrated().await;
    assert_eq!(place.texts(D::DESCRIBE).await, migrated.texts(D::DESCRIBE).await);
}

pub(crate) async fn tables_of_a_newer_release_are_refused_by_open_and_migrate<D: Database>() {
    let place = D::migrated().await;
    place.execute("INSERT INTO idempotency_migrations (version, applied_at) VALUES (99, 0);").await;
    for result in [place.open().await.map(drop), place.migrate().await] {
        let error = result.unwrap_err();
        assert!(matches!(error, OpenError::SchemaTooNew { found: 99, needed } if needed == D::VERSION), "{error:?}");
    }
}

pub(crate) async fn migrating_again_keeps_what_is_there<D: Database>() {
    let place = D::migrated().await;
    let request = claim("k");
    run(&place.store().await, &request, &outcome("answer")).await;
    place.migrate().await.unwrap();
    assert_eq!(replayed(place.store().await.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
}

pub(crate) async fn many_may_migrate_at_once<D: Database>() {
    let place = Arc::new(D::empty().await);
    let migrations: Vec<_> = (0..8)
        .map(|_| {
            let place = Arc::clone(&place);
            tokio::spawn(async move {
                place.migrate().await?;
                place.open().await.map(drop)
            })
        })
        .collect();
    for migration in migrations {
        migration.await.unwrap().unwrap();
    }
    granted(place.store().await.claim(&claim("k")).await.unwrap());
}

pub(crate) async fn the_plain_schema_is_what_migrate_makes<D: Database>() {
    let (migrated, plain) = (D::migrated().await, D::empty().await);
    plain.execute(D::SCHEMA).await;
    let lines = migrated.texts(D::DESCRIBE).await;
    assert!(lines.len() > 10, "{lines:?}");
    assert_eq!(lines, plain.texts(D::DESCRIBE).await);
    granted(plain.store().await.claim(&claim("k")).await.unwrap());
    plain.migrate().await.unwrap();
}

/// A link to the server of this URL that loses what it carries without a word, from the first question on. The stores are opened and their
/// tables made at the URL of the link.
pub(crate) async fn a_server_that_answers_no_question_is_given_up_in_time(
    url: &str,
    open: impl AsyncFn(&str) -> Result<(), OpenError>,
    migrate: impl AsyncFn(&str) -> Result<(), OpenError>,
) {
    let (proxy, url) = proxied(url);
    for migrates in [false, true] {
        let lost = proxy.on_request("idempotency_migrations", 1, Fate::Silence);
        let since = Instant::now();
        let ended = if migrates { migrate(&url).await } else { open(&url).await };
        let error = ended.unwrap_err();
        assert!(matches!(&error, OpenError::Store(error) if error.kind() == StoreErrorKind::Timeout), "{error:?}");
        assert!(lost.has_fired() && since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        proxy.heal();
    }
    migrate(&url).await.unwrap();
    open(&url).await.unwrap();
}

macro_rules! opening_tests {
    ($database:ty) => {
        crate::common::tests_of! { $database, opening:
            missing_tables_are_a_missing_schema_and_are_not_made
            tables_of_an_older_release_are_brought_up_to_date_when_asked
            tables_of_a_newer_release_are_refused_by_open_and_migrate
            migrating_again_keeps_what_is_there
            many_may_migrate_at_once
            the_plain_schema_is_what_migrate_makes
        }
    };
}
pub(crate) use opening_tests;
