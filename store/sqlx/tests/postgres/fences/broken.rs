//! Checks of a token that look right and are broken at READ COMMITTED, and what repairs them.

use sqlx::{Executor, Row};

use super::suite::{self, Rig as _, account, admitted, fresh, is_superseded, refused};
use super::{Rig, sqlstate};
use idempotency_sqlx::fence::Fences;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// The holder of 34 has the fence open and has written; the stale one writes with 33. What is the balance then, and how
/// many rows was the stale one told to have written?
async fn stale_write(statements: &[&'static str]) -> (u64, i64) {
    let rig = Rig::new().await;
    let fences = rig.fences();
    admitted(&fences, &account(), &fresh(33)).await;
    let mut newer = fences.open_with(&account(), &fresh(34)).await.unwrap();
    newer.execute("UPDATE accounts SET balance = 134 WHERE id = 1").await.unwrap();

    let mut stale = rig.begin_with(BEGIN).await;
    let write = async {
        let mut changed = 0;
        for statement in statements {
            changed = stale.execute(*statement).await.unwrap().rows_affected();
        }
        stale.commit().await.unwrap();
        changed
    };
    let (changed, ()) = tokio::join!(write, async {
        rig.until_waiting().await;
        newer.commit().await.unwrap();
    });
    (changed, suite::balance(&rig).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlocked_exists_lets_a_stale_token_overwrite() {
    let write = "UPDATE accounts SET balance = 133 WHERE id = 1
        AND EXISTS (SELECT FROM idempotency_fences WHERE resource = 'account/1' AND token <= 33)";
    assert_eq!(stale_write(&[write]).await, (1, 133));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlocked_sub_select_lets_a_stale_token_overwrite() {
    let write = "UPDATE accounts SET balance = 133 WHERE id = 1
        AND (SELECT token FROM idempotency_fences WHERE resource = 'account/1') <= 33";
    assert_eq!(stale_write(&[write]).await, (1, 133));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_with_the_fence_lets_a_stale_token_overwrite() {
    let write = "UPDATE accounts SET balance = 133 FROM idempotency_fences AS fence
        WHERE id = 1 AND fence.resource = 'account/1' AND fence.token <= 33";
    assert_eq!(stale_write(&[write]).await, (1, 133));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_look_before_the_write_lets_a_stale_token_overwrite() {
    let look = "SELECT 1 / (token <= 33)::INT FROM idempotency_fences WHERE resource = 'account/1'";
    let write = "UPDATE accounts SET balance = 133 WHERE id = 1";
    assert_eq!(stale_write(&[look, write]).await, (1, 133));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_look_in_the_same_statement_refuses_it() {
    let write = "WITH fence AS (
            SELECT FROM idempotency_fences WHERE resource = 'account/1' AND token <= 33 FOR SHARE
        )
        UPDATE accounts SET balance = 133 FROM fence WHERE id = 1";
    assert_eq!(stale_write(&[write]).await, (0, 134));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upsert_alone_refuses_it() {
    let open = "INSERT INTO idempotency_fences AS fence (resource, source, token, holder, opened_at)
        VALUES ('account/1', 7, 33, '0123456789abcdef', 1)
        ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token, holder = EXCLUDED.holder
        WHERE fence.token < EXCLUDED.token OR (fence.token = EXCLUDED.token AND fence.holder = EXCLUDED.holder)";
    assert_eq!(stale_write(&[open]).await, (0, 134));
}

/// Whoever opened the fence before has moved 101 to account 2. `copy` copies it to account 1.
async fn copied(copy: impl AsyncFnOnce(&Rig)) -> i64 {
    let rig = Rig::new().await;
    let fences = rig.fences();
    let mut before = fences.open_with(&account(), &fresh(33)).await.unwrap();
    before.execute("UPDATE accounts SET balance = 101 WHERE id = 2").await.unwrap();
    let ((), ()) = tokio::join!(copy(&rig), async {
        rig.until_waiting().await;
        before.commit().await.unwrap();
    });
    suite::balance(&rig).await
}

const COPY: &str = "UPDATE accounts SET balance = (SELECT balance FROM accounts WHERE id = 2) WHERE id = 1";

/// Any one statement sees what was there when it began, also when it then waits for the fence.
#[tokio::test(flavor = "multi_thread")]
async fn one_statement_that_opens_and_writes_reads_what_was_before_it_waited() {
    let open_and_copy = "WITH opened AS (
            INSERT INTO idempotency_fences AS fence (resource, source, token, holder, opened_at)
            VALUES ('account/1', 7, 34, '0123456789abcdef', 1)
            ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token RETURNING token
        )
        UPDATE accounts SET balance = (SELECT balance FROM accounts WHERE id = 2) FROM opened WHERE id = 1";
    let stale = copied(async |rig| {
        assert_eq!(rig.pool.execute(open_and_copy).await.unwrap().rows_affected(), 1);
    });
    assert_eq!(stale.await, 200);
    let fresh = copied(async |rig| {
        let mut opened = rig.fences().open_with(&account(), &fresh(34)).await.unwrap();
        opened.execute(COPY).await.unwrap();
        opened.commit().await.unwrap();
    });
    assert_eq!(fresh.await, 101);
}

const COLUMN: &str = "UPDATE accounts SET balance = 133, fencing_token = 33 WHERE id = 1 AND fencing_token < 33";

/// The token in the row itself: a statement that waited judges the row as it is then, or fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_column_check_is_refused_or_fails_to_serialise() {
    for (begin, refused) in [
        (BEGIN, None),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", Some("40001")),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE", Some("40001")),
    ] {
        let rig = Rig::new().await;
        rig.run("UPDATE accounts SET fencing_token = 32").await;
        let mut newer = rig.begin_with(BEGIN).await;
        let write = "UPDATE accounts SET balance = 134, fencing_token = 34 WHERE id = 1 AND fencing_token < 34";
        assert_eq!(newer.execute(write).await.unwrap().rows_affected(), 1);
        let mut stale = rig.begin_with(begin).await;
        let (answer, ()) = tokio::join!(stale.execute(COLUMN), async {
            rig.until_waiting().await;
            newer.commit().await.unwrap();
        });
        match refused {
            None => assert_eq!(answer.unwrap().rows_affected(), 0),
            Some(state) => assert_eq!(sqlstate(answer), state),
        }
    }
}

/// Only a second statement can say why nothing was written; a part of the first one would say what was before it
/// waited.
#[tokio::test(flavor = "multi_thread")]
async fn a_classification_in_the_same_statement_is_stale() {
    let rig = Rig::new().await;
    rig.run("UPDATE accounts SET fencing_token = 32").await;
    let mut newer = rig.begin_with(BEGIN).await;
    newer.execute("UPDATE accounts SET fencing_token = 34 WHERE id = 1").await.unwrap();
    let write_and_classify = "WITH written AS (
            UPDATE accounts SET fencing_token = 33 WHERE id = 1 AND fencing_token < 33 RETURNING 1
        )
        SELECT (SELECT count(*) FROM written), fencing_token FROM accounts WHERE id = 1";
    let mut stale = rig.begin_with(BEGIN).await;
    let (row, ()) = tokio::join!(stale.fetch_one(write_and_classify), async {
        rig.until_waiting().await;
        newer.commit().await.unwrap();
    });
    let row = row.unwrap();
    // Refused, it says, by 32.
    assert_eq!((row.get::<i64, _>(0), row.get::<i64, _>(1)), (0, 32));
    let current = stale.fetch_one("SELECT fencing_token FROM accounts WHERE id = 1 FOR SHARE").await.unwrap();
    assert_eq!(current.get::<i64, _>(0), 34);
}

/// In REPEATABLE READ the upsert fails in both cases in which it waits; an opening is tried again and says what is the
/// case.
#[tokio::test(flavor = "multi_thread")]
async fn above_read_committed_an_opening_that_waited_is_tried_again() {
    use idempotency_sqlx::Isolation::{RepeatableRead, Serializable};

    for (isolation, begin) in [
        (RepeatableRead, "BEGIN ISOLATION LEVEL REPEATABLE READ"),
        (Serializable, "BEGIN ISOLATION LEVEL SERIALIZABLE"),
    ] {
        for (waiting, admitted_then) in [(33, false), (35, true)] {
            let rig = Rig::new().await;
            let fences = rig.fences().isolation(isolation);
            admitted(&fences, &account(), &fresh(32)).await;
            let mut holder = fences.open_with(&account(), &fresh(34)).await.unwrap();
            holder.execute("UPDATE accounts SET balance = 134 WHERE id = 1").await.unwrap();
            let (resource, ticket) = (account(), fresh(waiting));
            let raw = async {
                let mut transaction = rig.begin_with(begin).await;
                sqlstate(
                    transaction.execute("UPDATE idempotency_fences SET token = token + 100 WHERE token < 40").await,
                )
            };
            let (answer, state, ()) = tokio::join!(fences.open_with(&resource, &ticket), raw, async {
                // Both of them.
                while rig.waiting().await < 2 {}
                holder.commit().await.unwrap();
            });
            assert_eq!(state, "40001");
            match answer {
                Ok(mut opened) if admitted_then => {
                    let row = opened.fetch_one(suite::BALANCE).await.unwrap();
                    assert_eq!(row.get::<i64, _>(0), 134);
                }
                Err(answer) if !admitted_then => is_superseded(answer, 34),
                answer => panic!("{answer:?}"),
            }
            // The first of two at once as well.
            let (one, two) = (fresh(33), fresh(34));
            let new = suite::resource("new");
            let holder = fences.open_with(&new, &one).await.unwrap();
            let (second, ()) = tokio::join!(fences.open_with(&new, &two), async {
                rig.until_waiting().await;
                holder.commit().await.unwrap();
            });
            second.unwrap().commit().await.unwrap();
            is_superseded(refused(&fences, &new, &one).await, 34);
        }
    }
}

/// A purge raises the watermark and deletes the fence of 34, and is not committed yet; the stale 33 comes. Is it taken
/// for new?
async fn stale_after_a_purge(look: &'static str) -> u64 {
    let rig = Rig::new().await;
    admitted(&rig.fences(), &account(), &fresh(34)).await;
    let mut purge = rig.begin_with(BEGIN).await;
    purge.execute("UPDATE idempotency_fence_watermarks SET least_token = 40").await.unwrap();
    purge.execute("DELETE FROM idempotency_fences WHERE token < 40").await.unwrap();
    let (admitted, ()) = tokio::join!(rig.pool.execute(look), async {
        rig.until_waiting().await;
        purge.commit().await.unwrap();
    });
    admitted.unwrap().rows_affected()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watermark_that_is_looked_at_without_a_lock_takes_a_stale_token_for_new() {
    let unlocked = "INSERT INTO idempotency_fences AS fence (resource, source, token, holder, opened_at)
        SELECT 'account/1', 7, 33, '0123456789abcdef', 1 FROM idempotency_fence_watermarks
        WHERE source = 1 AND least_token <= 33
        ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token WHERE fence.token < EXCLUDED.token";
    assert_eq!(stale_after_a_purge(unlocked).await, 1);
    let locked = "WITH watermark AS (SELECT least_token FROM idempotency_fence_watermarks WHERE source = 1 FOR SHARE)
        INSERT INTO idempotency_fences AS fence (resource, source, token, holder, opened_at)
        SELECT 'account/1', 7, 33, '0123456789abcdef', 1 FROM watermark WHERE least_token <= 33
        ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token WHERE fence.token < EXCLUDED.token";
    assert_eq!(stale_after_a_purge(locked).await, 0);
}
