//! Who waits for whom, what is seen afterwards, and what nobody gets to see.

use crate::common::{Database, races};
use crate::support::{Place, server};

races::races_tests!(Place);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_57_duplicates_at_read_committed_are_told_of_the_winner() {
    duplicates_at("read committed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_57_duplicates_at_repeatable_read_are_told_of_the_winner() {
    duplicates_at("repeatable read").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_57_duplicates_at_serializable_are_told_of_the_winner() {
    duplicates_at("serializable").await;
}

async fn duplicates_at(isolation: &str) {
    let database = format!("case_57_{}", isolation.replace(' ', "_"));
    let place = Place::at(server().create_database(&database));
    place.execute(&format!("ALTER DATABASE {database} SET default_transaction_isolation = '{isolation}';")).await;
    place.migrate().await.unwrap();
    races::duplicates_are_told_of_the_winner(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_go_away_leave_the_store_in_order() {
    let place = Place::at(server().create_database("callers"));
    place.migrate().await.unwrap();
    let open_transactions = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    races::callers_that_go_away_leave_the_store_in_order(&place, open_transactions).await;
}
