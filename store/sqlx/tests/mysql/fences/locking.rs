//! Who waits for whom, and who deadlocks.

use idempotency_sqlx::Isolation;
use idempotency_sqlx::fence::Fences;
use sqlx::{Executor, MySql, Transaction};
use tokio::task::JoinSet;

use super::suite::{self, Rig as _, account, fresh, is_superseded, resource};
use super::{Rig, number_of};

const REPEATABLE_READ: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION";
const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION";
const LOOK: &str = "SELECT token FROM idempotency_fences WHERE resource = 'account/1' FOR UPDATE";
const INSERT: &str = "INSERT INTO idempotency_fences VALUES ('account/1', 7, 33, '0123456789abcdef', 1)";

/// A locking read, or an update, of a row that is not there takes the gap, which two can have at once; then neither may
/// insert.
#[tokio::test(flavor = "multi_thread")]
async fn looking_first_and_inserting_then_deadlocks_at_repeatable_read() {
    for look in [LOOK, "UPDATE idempotency_fences SET token = 33 WHERE resource = 'account/1'"] {
        let rig = Rig::new().await;
        let mut one = rig.begin_with(REPEATABLE_READ).await;
        let mut two = rig.begin_with(REPEATABLE_READ).await;
        for transaction in [&mut one, &mut two] {
            assert_eq!(transaction.execute(look).await.unwrap().rows_affected(), 0);
        }
        let (first, second) = tokio::join!(one.execute(INSERT), async {
            rig.until_waiting().await;
            two.execute(INSERT).await
        });
        let failed: Vec<_> = [first, second].into_iter().filter(Result::is_err).map(number_of).collect();
        assert_eq!(failed, [DEADLOCK]);
    }
}

/// At READ COMMITTED there is no gap, and the second one waits for the first to end, or for its own time.
#[tokio::test(flavor = "multi_thread")]
async fn looking_first_and_inserting_then_waits_at_read_committed() {
    let rig = Rig::new().await;
    let mut one = rig.begin_with(READ_COMMITTED).await;
    let mut two = rig.begin_with(READ_COMMITTED).await;
    assert!(one.fetch_optional(LOOK).await.unwrap().is_none());
    assert!(two.fetch_optional(LOOK).await.unwrap().is_none());
    one.execute(INSERT).await.unwrap();
    let waits = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR
        INSERT INTO idempotency_fences VALUES ('account/1', 7, 34, '0123456789abcdef', 1)";
    assert_eq!(number_of(two.execute(waits).await), LOCK_WAIT_TIMEOUT);
}

/// An insert that is ignored and an update after it are right, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_ignored_insert_and_an_update_admit() {
    let rig = Rig::new().await;
    let ignored = "INSERT IGNORE INTO idempotency_fences VALUES ('account/1', 7, 1, '0123456789abcdef', 1)";
    let update = "UPDATE idempotency_fences SET token = 34 WHERE resource = 'account/1' AND token < 34";
    let mut one = rig.begin_with(READ_COMMITTED).await;
    assert_eq!(one.execute(ignored).await.unwrap().rows_affected(), 1);
    let second = async {
        let mut two = rig.begin_with(READ_COMMITTED).await;
        let inserted = two.execute(ignored).await.unwrap().rows_affected();
        (inserted, two.execute(update).await.unwrap().rows_affected())
    };
    let (second, ()) = tokio::join!(second, async {
        rig.until_waiting().await;
        one.commit().await.unwrap();
    });
    assert_eq!(second, (0, 1));
}

/// Three that insert the same, and the first one rolls back: the other two both get the row's shared lock and want it
/// alone. One of them is rolled back, at either level, so whoever inserts must be ready to try again.
#[tokio::test(flavor = "multi_thread")]
async fn three_first_inserts_of_which_one_is_rolled_back_deadlock() {
    for begin in [REPEATABLE_READ, READ_COMMITTED] {
        let rig = Rig::new().await;
        let mut first = rig.begin_with(begin).await;
        first.execute(INSERT).await.unwrap();
        let (mut two, mut three) = (rig.begin_with(begin).await, rig.begin_with(begin).await);
        let insert = async |transaction: &mut Transaction<'static, MySql>| transaction.execute(INSERT).await;
        let (second, third, ()) = tokio::join!(insert(&mut two), insert(&mut three), async {
            rig.until_so_many_wait(2).await;
            first.rollback().await.unwrap();
        });
        let failed: Vec<_> = [second, third].into_iter().filter(Result::is_err).map(number_of).collect();
        assert_eq!(failed, [DEADLOCK], "{begin}");
    }
}

/// What the program does is tried again until both are admitted.
#[tokio::test(flavor = "multi_thread")]
async fn three_first_openings_of_which_one_is_rolled_back_are_admitted_one_after_the_other() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let rig = Rig::new().await;
        let fences = rig.fences().isolation(isolation);
        let first = fences.open(&account()).await.unwrap();
        let open = async || fences.open(&account()).await.unwrap().commit().await.unwrap().ticket().token;
        let (second, third, ()) = tokio::join!(open(), open(), async {
            rig.until_so_many_wait(2).await;
            first.rollback().await;
        });
        assert_ne!(second, third);
    }
}

/// Neighbours by name lock each other's gaps above READ COMMITTED, and are all admitted in the end.
#[tokio::test(flavor = "multi_thread")]
async fn first_openings_of_neighbours_are_all_admitted_at_repeatable_read() {
    let rig = Rig::new().await;
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let fences = rig.fences().isolation(Isolation::RepeatableRead);
        tasks.spawn(async move {
            fences.open(&resource(&format!("account/{number}"))).await.unwrap().commit().await.unwrap();
        });
    }
    tasks.join_all().await;
    assert_eq!(suite::number(&rig, "SELECT COUNT(*) FROM idempotency_fences").await, 8);
}

/// With rows that are there, upserts queue.
#[tokio::test(flavor = "multi_thread")]
async fn many_upserts_on_few_rows_do_not_deadlock() {
    let rig = Rig::new().await;
    let mut tasks = JoinSet::new();
    for worker in 0..8 {
        let pool = rig.pool.clone();
        tasks.spawn(async move {
            let upsert = "INSERT INTO idempotency_fences VALUES (?, 7, ?, '0123456789abcdef', 1)
                ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))";
            for turn in 1..=150 {
                let statement = sqlx::query(upsert).bind(format!("fence/{}", (worker + turn) % 3)).bind(turn);
                statement.execute(&pool).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

/// Transactions of one tenure run beside each other, and a new holder waits until they have ended.
#[tokio::test(flavor = "multi_thread")]
async fn verified_transactions_run_in_parallel_and_hold_a_new_holder_up() {
    let rig = Rig::new().await;
    let fences = rig.fences();
    let opened = fences.open_with(&account(), &fresh(33)).await.unwrap().commit().await.unwrap();
    let mut one = fences.verify(&opened).await.unwrap();
    let mut two = fences.verify(&opened).await.unwrap();
    one.execute("UPDATE accounts SET balance = 101 WHERE id = 1").await.unwrap();
    two.execute("UPDATE accounts SET balance = 201 WHERE id = 2").await.unwrap();
    let (resource, newer) = (account(), fresh(34));
    let (answer, ()) = tokio::join!(fences.open_with(&resource, &newer), async {
        rig.until_waiting().await;
        one.commit().await.unwrap();
        rig.until_waiting().await;
        two.commit().await.unwrap();
    });
    answer.unwrap().commit().await.unwrap();
    is_superseded(fences.verify(&opened).await.unwrap_err(), 34);
}

/// The fence before the rows, everywhere: the other order beside it deadlocks.
#[tokio::test(flavor = "multi_thread")]
async fn rows_before_the_fence_deadlock_with_the_fence_before_rows() {
    let rig = Rig::new().await;
    let fences = rig.fences();
    suite::admitted(&fences, &account(), &fresh(33)).await;
    let mut right = fences.open_with(&account(), &fresh(34)).await.unwrap();
    let mut wrong = rig.begin().await;
    wrong.execute("UPDATE accounts SET balance = 0 WHERE id = 1").await.unwrap();
    let (theirs, ours) = tokio::join!(
        async {
            let answer = wrong.execute(LOOK).await;
            wrong.rollback().await.unwrap();
            answer
        },
        async {
            rig.until_waiting().await;
            let answer = right.execute("UPDATE accounts SET balance = 1 WHERE id = 1").await;
            right.rollback().await;
            answer
        }
    );
    let failed: Vec<_> = [theirs, ours].into_iter().filter(Result::is_err).map(number_of).collect();
    assert_eq!(failed, [DEADLOCK]);
}

const DEADLOCK: u16 = 1213;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
