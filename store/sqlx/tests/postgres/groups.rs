//! Claims and completions that meet in one process are few statements, and each is answered as if it were alone.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idempotency::{Claim, Claimed, FencingToken, Fingerprint, Holder, Lease, Nonce, Settled, Store, StoreErrorKind};
use idempotency_sqlx::{PostgresStore, Statements};
use sqlx::PgConnection;
use tokio::task::JoinSet;

use crate::common::Database as _;
use crate::support::{DEAD_FOR, PATIENT, Place, claim, duplicate, execute, grant, granted, id, outcome, replayed, run};

/// Somebody else who has the table to himself, so that whoever comes meanwhile meets.
struct Foreign(PgConnection);

impl Foreign {
    async fn alone(place: &Place) -> Self {
        let mut connection = place.connection().await;
        execute(&mut connection, "BEGIN; LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE;").await;
        Self(connection)
    }

    async fn end(mut self) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        execute(&mut self.0, "ROLLBACK").await;
    }
}

/// In how many transactions the rows were last written.
async fn transactions(place: &Place) -> usize {
    place.texts("SELECT DISTINCT xmin::text FROM idempotency_records").await.len()
}

#[tokio::test]
async fn claims_and_completions_that_meet_are_few_transactions() {
    let place = Place::migrated().await;
    for (nth, store) in place.real_stores().await.into_iter().enumerate() {
        place.execute("TRUNCATE idempotency_records").await;
        let claims: Vec<_> = (0..60).map(|n| claim(&format!("{nth}-{n}"))).collect();

        let foreign = Foreign::alone(&place).await;
        let mut asked = JoinSet::new();
        for claim in claims.clone() {
            let store = store.clone();
            asked.spawn(async move { grant(&store, &claim).await });
        }
        foreign.end().await;
        let holders = asked.join_all().await;
        let few = transactions(&place).await;
        assert!(few <= 6, "{few} transactions for 60 claims");

        let foreign = Foreign::alone(&place).await;
        let mut asked = JoinSet::new();
        for holder in holders {
            let store = store.clone();
            asked.spawn(async move { store.complete(&holder, &outcome("answer")).await.unwrap() });
        }
        foreign.end().await;
        assert!(asked.join_all().await.iter().all(|settled| *settled == Settled::Applied));
        let few = transactions(&place).await;
        assert!(few <= 6, "{few} transactions for 60 completions");

        for claim in &claims {
            assert_eq!(replayed(store.claim(&duplicate(claim)).await.unwrap()), outcome("answer"));
        }
    }
}

/// So many that ask first and go alone, so that whoever asks next is in one group.
async fn fillers(store: &PostgresStore) {
    let nobodys = Holder { id: id("nobody's"), token: FencingToken::new(1).unwrap(), nonce: Nonce::random() };
    let nobodys_too = Holder { id: id("nobody's, too"), ..nobodys };
    let (one, two, answer) = (claim("filler"), claim("filler, too"), outcome("answer"));
    let _ = tokio::join!(
        store.claim(&one),
        store.claim(&two),
        store.complete(&nobodys, &answer),
        store.complete(&nobodys_too, &answer)
    );
}

/// What a statement of its own has granted is granted, and its claimer must know: nobody gives up the claim of one who is told to try again.
#[tokio::test]
async fn a_grant_is_told_though_the_records_of_others_cannot_be_read() {
    let place = Place::migrated().await;
    let held = claim("held");
    grant(&place.real_options().open().await.unwrap(), &held).await;
    place
        .execute(
            "CREATE ROLE claims_only LOGIN;
             DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO claims_only', current_schema); END $$;
             GRANT SELECT ON idempotency_migrations, idempotency_clock, idempotency_floors TO claims_only;
             GRANT INSERT, SELECT (id, token, nonce) ON idempotency_records TO claims_only;",
        )
        .await;
    let url = place.url().replace("postgres://postgres@", "postgres://claims_only@");
    assert_ne!(url, place.url());
    let store = PostgresStore::options(&url).wait(PATIENT).statements(Statements::PreparedOnce).open().await.unwrap();

    let foreign = Foreign::alone(&place).await;
    let (fresh, repeated) = (claim("fresh"), duplicate(&held));
    let claims = async { tokio::join!(store.claim(&fresh), store.claim(&repeated)) };
    let ((), (), (first, second)) = tokio::join!(foreign.end(), fillers(&store), claims);
    assert!(matches!(first, Ok(Claimed::Granted(_))), "{first:?}");
    assert_eq!(second.unwrap_err().kind(), StoreErrorKind::Refused);
}

#[tokio::test]
async fn each_is_answered_as_if_it_were_alone() {
    let place = Place::migrated().await;
    for (nth, store) in place.real_stores().await.into_iter().enumerate() {
        let key = |name: &str| claim(&format!("{nth}-{name}"));
        let (done, running, released) = (key("done"), key("running"), key("released"));
        run(&store, &done, &outcome("answer")).await;
        let completes = grant(&store, &running).await;
        let freed = grant(&store, &released).await;
        assert_eq!(store.release(&freed, DEAD_FOR).await.unwrap(), Settled::Applied);
        let stale = Holder { token: FencingToken::new(1).unwrap(), ..grant(&store, &key("stale")).await };
        let missing = Holder { id: key("missing").id, ..completes };

        let foreign = Foreign::alone(&place).await;
        let answer = outcome("late answer");
        let (fresh, same, other) = (key("fresh"), key("same"), key("same"));
        let [replay, in_flight, again] = [&done, &running, &released].map(duplicate);
        let another = Claim { fingerprint: Fingerprint::of(["another"]), ..duplicate(&done) };
        let claims = async {
            tokio::join!(
                store.claim(&fresh),
                store.claim(&same),
                store.claim(&other),
                store.claim(&same),
                store.claim(&replay),
                store.claim(&another),
                store.claim(&in_flight),
                store.claim(&again),
            )
        };
        let completions = async {
            tokio::join!(
                store.complete(&stale, &answer),
                store.complete(&missing, &answer),
                store.complete(&freed, &answer)
            )
        };
        let ((), claimed, completed, ()) = tokio::join!(fillers(&store), claims, completions, foreign.end());

        let (fresh, same, other, repeated, replay, another, in_flight, again) = claimed;
        assert_eq!(granted(fresh.unwrap()).attempt, 1);
        let [same, repeated] = [same, repeated].map(|claimed| granted(claimed.unwrap()).token);
        assert_eq!(same, repeated, "one claim, asked twice");
        assert!(matches!(other.unwrap(), Claimed::InFlight { .. }), "one of two about one record");
        assert_eq!(replayed(replay.unwrap()), outcome("answer"));
        assert!(matches!(another.unwrap(), Claimed::Mismatch));
        assert!(matches!(in_flight.unwrap(), Claimed::InFlight { .. }));
        assert_eq!(granted(again.unwrap()).attempt, 2);
        let (stale, missing, freed) = completed;
        assert_eq!([stale, missing, freed].map(Result::unwrap), [Settled::Superseded; 3]);

        // Two completions of one record: one after the other.
        let foreign = Foreign::alone(&place).await;
        let both = async { tokio::join!(store.complete(&completes, &answer), store.complete(&completes, &answer)) };
        let ((), (one, two), ()) = tokio::join!(fillers(&store), both, foreign.end());
        let both = [one, two].map(Result::unwrap);
        assert!(both.contains(&Settled::Applied) && both.contains(&Settled::AlreadyApplied), "{both:?}");
    }
}

#[tokio::test]
async fn what_goes_wrong_with_one_is_its_own() {
    let place = Place::migrated().await;
    let [refused, spoiled] = [id("refused"), id("spoiled")].map(|id| format!("'\\x{id}'"));
    place
        .execute(&format!(
            "CREATE FUNCTION refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
             CREATE TRIGGER refused BEFORE INSERT ON idempotency_records FOR EACH ROW WHEN (NEW.id = {refused}) EXECUTE FUNCTION refuse();
             CREATE TRIGGER spoiled BEFORE UPDATE ON idempotency_records FOR EACH ROW WHEN (NEW.id = {spoiled}) EXECUTE FUNCTION refuse();"
        ))
        .await;
    let [store, _] = place.real_stores().await;
    let (spoiled, completes) = (grant(&store, &claim("spoiled")).await, grant(&store, &claim("completes")).await);

    let foreign = Foreign::alone(&place).await;
    let (good, bad, better, answer) = (claim("good"), claim("refused"), claim("better"), outcome("answer"));
    let meet = async {
        tokio::join!(
            store.claim(&good),
            store.claim(&bad),
            store.claim(&better),
            store.complete(&spoiled, &answer),
            store.complete(&completes, &answer)
        )
    };
    let ((), (good, bad, better, spoiled, completed), ()) = tokio::join!(fillers(&store), meet, foreign.end());
    granted(good.unwrap());
    granted(better.unwrap());
    assert_eq!(bad.unwrap_err().kind(), StoreErrorKind::Refused);
    assert_eq!(spoiled.unwrap_err().kind(), StoreErrorKind::Refused);
    assert_eq!(completed.unwrap(), Settled::Applied);
}

/// Alone they wait, as many as may be under way, and in groups.
#[tokio::test]
async fn who_stands_still_in_the_middle_of_a_claim_holds_up_no_other_key() {
    let place = Place::migrated().await;
    let [store, _] = place.real_stores().await;
    grant(&store, &claim("model")).await;
    let mut still = place.connection().await;
    execute(&mut still, "BEGIN; CREATE TEMPORARY TABLE copied ON COMMIT DROP AS SELECT * FROM idempotency_records;")
        .await;
    for key in HELD_UP {
        let insert =
            format!("UPDATE copied SET id = '\\x{}'; INSERT INTO idempotency_records SELECT * FROM copied;", id(key));
        execute(&mut still, &insert).await;
    }

    let mut held_up = HELD_UP.map(|key| {
        let store = store.clone();
        tokio::spawn(async move { store.claim(&claim(key)).await.map(granted) })
    });
    tokio::task::yield_now().await;
    let others = ["a", "b", "c", "d"].map(claim);
    for answer in join_all(others.iter().map(|claim| store.claim(claim))).await {
        granted(answer.unwrap());
    }
    assert!(held_up.iter_mut().all(|held_up| !held_up.is_finished()), "their rows are somebody else's");
    execute(&mut still, "ROLLBACK").await;
    for held_up in held_up {
        held_up.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn who_stands_still_in_the_middle_of_a_change_holds_up_no_other_completion() {
    let place = Place::migrated().await;
    let [store, _] = place.real_stores().await;
    let held_up = join_all(HELD_UP.map(claim).iter().map(|claim| grant(&store, claim))).await;
    let others = join_all(["a", "b", "c", "d"].map(claim).iter().map(|claim| grant(&store, claim))).await;
    let mut still = place.connection().await;
    for key in HELD_UP {
        let lock = format!("SELECT 1 FROM idempotency_records WHERE id = '\\x{}' FOR UPDATE;", id(key));
        execute(&mut still, &format!("BEGIN; {lock}")).await;
    }

    let mut held_up: Vec<_> = held_up
        .into_iter()
        .map(|holder| {
            let store = store.clone();
            tokio::spawn(async move { store.complete(&holder, &outcome("answer")).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let answer = outcome("answer");
    for settled in join_all(others.iter().map(|holder| store.complete(holder, &answer))).await {
        assert_eq!(settled.unwrap(), Settled::Applied);
    }
    assert!(held_up.iter_mut().all(|held_up| !held_up.is_finished()), "their rows are somebody else's");
    execute(&mut still, "ROLLBACK").await;
    for held_up in held_up {
        assert_eq!(held_up.await.unwrap().unwrap(), Settled::Applied);
    }
}

const HELD_UP: [&str; 3] = ["held up", "held up, too", "held up in a group"];

/// Where nobody has looked at a table yet, the server guesses. A statement about one record then still looks at that one, not at all that are due.
#[tokio::test]
async fn a_record_is_found_by_its_key_on_a_table_that_nobody_has_analysed() {
    let place = Place::migrated().await;
    place.execute("ALTER TABLE idempotency_records SET (autovacuum_enabled = FALSE)").await;
    is_found_by_its_key(&place, &[Statements::InTransactions, Statements::PreparedOnce]).await;
}

/// A statement that was planned while the table was empty is still right when it is full.
#[tokio::test]
async fn a_record_is_found_by_its_key_by_what_was_prepared_while_there_was_none() {
    let place = Place::migrated().await;
    place.execute("ALTER TABLE idempotency_records SET (autovacuum_enabled = FALSE)").await;
    place.execute("VACUUM ANALYZE idempotency_records").await;
    is_found_by_its_key(&place, &[Statements::PreparedOnce]).await;
}

async fn is_found_by_its_key(place: &Place, statements: &[Statements]) {
    for (nth, statements) in statements.iter().enumerate() {
        let store = place.options().statements(*statements).open().await.unwrap();
        // A prepared statement is planned for good after some executions.
        for n in 0..8 {
            let key = |name: &str| claim(&format!("{name}-{nth}-{n}"));
            let done = key("done");
            run(&store, &done, &outcome("answer")).await;
            replayed(store.claim(&duplicate(&done)).await.unwrap());
            let freed = grant(&store, &key("freed")).await;
            store.renew(&freed, Lease::default()).await.unwrap();
            store.release(&freed, DEAD_FOR).await.unwrap();
            let doubted = grant(&store, &key("doubted")).await;
            store.mark_in_doubt(&doubted, None).await.unwrap();
            store.inspect(&doubted.id).await.unwrap();
            store.abandon(&key("abandoned").id, Nonce::random(), DEAD_FOR).await.unwrap();
            let claims: Vec<_> = (0..8).map(|m| key(&format!("together-{m}"))).collect();
            let holders = join_all(claims.iter().map(|claim| grant(&store, claim))).await;
            let answer = outcome("answer");
            join_all(holders.iter().map(|holder| store.complete(holder, &answer))).await;
        }
    }
    // Sessions tell what they did when they end, at the latest.
    let count = async |what: &str, of: &str| -> i64 {
        let statement = format!(
            "SELECT concat({what}(oid)) FROM pg_class
             WHERE relname = '{of}' AND relnamespace = current_schema::regnamespace"
        );
        place.texts(&statement).await[0].parse().unwrap()
    };
    let give_up = Instant::now() + PATIENT;
    while count("pg_stat_get_numscans", "idempotency_records_pkey").await < 60 {
        assert!(Instant::now() < give_up, "nothing is told");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(count("pg_stat_get_numscans", "idempotency_records_due").await, 0, "looked for in all that is due");
    assert_eq!(count("pg_stat_get_tuples_returned", "idempotency_records").await, 0, "looked for in the whole table");
}

/// Nobody is forgotten in a queue, however they come and go.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_is_answered_however_many_come() {
    let place = Place::migrated().await;
    for (nth, store) in place.real_stores().await.into_iter().enumerate() {
        for callers in [2, 3, 8, 40] {
            let mut working = JoinSet::new();
            for caller in 0..callers {
                let store = store.clone();
                working.spawn(async move {
                    for n in 0..400 / callers {
                        run(&store, &claim(&format!("{nth}-{callers}-{caller}-{n}")), &outcome("answer")).await;
                    }
                });
            }
            tokio::time::timeout(PATIENT, working.join_all()).await.expect("an answer for everybody");
        }
    }
}
