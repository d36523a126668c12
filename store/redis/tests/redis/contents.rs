//! What is in the keys: who sees it, and what is not taken for something else.

use idempotency::{
    Claim, Claimed, FencingToken, Fingerprint, Holder, Lease, List, Nonce, Outcome, Resolve, ResolveVerdict, Settled,
    State, Store, StoreErrorKind, Swept, Timestamp,
};
use redis::aio::MultiplexedConnection;

use crate::support::{DEAD_FOR, HOUR, Place, claim, connection, duplicate, grant, id, outcome, replayed, run};

#[tokio::test]
async fn a_second_store_sees_everything_at_once() {
    let place = Place::new();
    let (first, second) = (place.real_store().await, place.real_store().await);
    let request = claim("k");
    let holder = grant(&first, &request).await;
    assert!(matches!(second.claim(&duplicate(&request)).await.unwrap(), Claimed::InFlight { .. }));
    assert_eq!(second.renew(&holder, Lease::default()).await.unwrap(), Settled::Applied);
    assert_eq!(second.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
    assert_eq!(replayed(first.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));
    assert_eq!(first.list(&List::default()).await.unwrap().entries.len(), 1);
    let other = Place::new();
    grant(&other.real_store().await, &duplicate(&request)).await;
}

#[tokio::test]
async fn a_large_payload_of_all_bytes_comes_back_whole() {
    let store = Place::new().real_store().await;
    let body: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 256) as u8).collect();
    for (key, outcome) in [("large", Outcome::new(200, body.into())), ("empty", Outcome::new(204, Vec::new().into()))] {
        let request = claim(key);
        run(&store, &request, &outcome).await;
        assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome);
    }
}

async fn set(connection: &mut MultiplexedConnection, key: &str, field: &str, value: &[u8]) {
    redis::cmd("HSET").arg(key).arg(field).arg(value).exec_async(connection).await.unwrap();
}

async fn field(connection: &mut MultiplexedConnection, key: &str, field: &str) -> Vec<u8> {
    redis::cmd("HGET").arg(key).arg(field).query_async(connection).await.unwrap()
}

#[tokio::test]
async fn a_record_of_an_unknown_format_is_unreadable_and_not_new() {
    let place = Place::new();
    let store = place.store().await;
    let request = claim("k");
    let holder = run(&store, &request, &outcome("answer")).await;
    let (mut other, key) = (connection(&place.url).await, place.key(&request.id));
    for format in ["2", "", "one"] {
        set(&mut other, &key, "v", format.as_bytes()).await;
        unreadable(&store, &request, holder).await;
    }
    set(&mut other, &key, "v", b"1").await;
    assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"), "it was left alone");
}

#[tokio::test]
async fn a_record_with_impossible_values_is_unreadable_and_not_new() {
    let place = Place::new();
    let store = place.store().await;
    let request = claim("k");
    let holder = run(&store, &request, &outcome("answer")).await;
    let (mut other, key) = (connection(&place.url).await, place.key(&request.id));
    let course = field(&mut other, &key, "c").await;
    let damaged = |at: usize, byte: u8| {
        let mut course = course.clone();
        course[at] = byte;
        course
    };
    // State, outcome, token's sign, recovery.
    let courses = [damaged(0, 0), damaged(0, 9), damaged(1, 0), damaged(1, 7), damaged(8, 0x80), damaged(32, 0)];
    for damage in courses.iter().map(Vec::as_slice).chain([b"".as_slice(), &course[1..], b"1800000000000000"]) {
        set(&mut other, &key, "c", damage).await;
        unreadable(&store, &request, holder).await;
    }
    set(&mut other, &key, "c", &course).await;
    let whole = field(&mut other, &key, "r").await;
    for (name, damage, right) in [("d", b"\0".as_slice(), b"".as_slice()), ("r", b"short", &whole)] {
        set(&mut other, &key, name, damage).await;
        unreadable(&store, &request, holder).await;
        set(&mut other, &key, name, right).await;
    }
    assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"), "it was left alone");
    // Its payload is gone.
    redis::cmd("HDEL").arg(&key).arg("p").exec_async(&mut other).await.unwrap();
    assert_eq!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Unreadable);
}

/// Somebody else's, under our name: of another type, or a hash of something else.
#[tokio::test]
async fn a_key_of_somebody_else_is_unreadable_and_left_alone() {
    let place = Place::new();
    let store = place.store().await;
    let mut other = connection(&place.url).await;
    for (n, command) in ["SET KEY 1", "RPUSH KEY 1", "SADD KEY 1", "ZADD KEY 1 1", "HSET KEY name 1", "XADD KEY * a b"]
        .into_iter()
        .enumerate()
    {
        let request = claim(&n.to_string());
        let key = place.key(&request.id);
        let mut make = redis::Cmd::new();
        for word in command.split(' ') {
            make.arg(if word == "KEY" { key.as_str() } else { word });
        }
        make.exec_async(&mut other).await.unwrap();
        let dump = async |other: &mut MultiplexedConnection| {
            redis::cmd("DUMP").arg(&key).query_async::<Vec<u8>>(other).await.unwrap()
        };
        let before = dump(&mut other).await;
        let token = FencingToken::new(1).unwrap();
        unreadable(&store, &request, Holder { id: request.id, token, nonce: request.nonce }).await;
        assert_eq!(dump(&mut other).await, before, "{command}");
        redis::cmd("DEL").arg(&key).exec_async(&mut other).await.unwrap();
    }
}

/// Claims are refused, the other operations say that they cannot say, operators see it, sweeps leave it alone.
async fn unreadable(store: &impl Store, request: &Claim, holder: Holder) {
    assert_eq!(store.claim(&duplicate(request)).await.unwrap(), Claimed::Unreadable);
    let resolve = |verdict| Resolve {
        id: request.id,
        token_seen: holder.token,
        verdict,
        who: "ops".into(),
        why: "looked".into(),
    };
    let errors = [
        store.complete(&holder, &outcome("other")).await.map(drop),
        store.renew(&holder, Lease::default()).await.map(drop),
        store.release(&holder, DEAD_FOR).await.map(drop),
        store.mark_in_doubt(&holder, None).await.map(drop),
        store.mark_in_doubt(&holder, Some(&outcome("other"))).await.map(drop),
        store.abandon(&request.id, Nonce::random(), DEAD_FOR).await,
        store.resolve(&resolve(ResolveVerdict::DidNotHappen { fence_token: None })).await.map(drop),
        store.resolve(&resolve(ResolveVerdict::Happened(outcome("other")))).await.map(drop),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().kind(), StoreErrorKind::Unreadable);
    }
    let inspected = store.inspect(&request.id).await.unwrap().expect("it is not hidden");
    assert_eq!((inspected.id, inspected.state), (request.id, State::InDoubt));
    let listed = store.list(&List { state: Some(State::InDoubt), ..List::default() }).await.unwrap();
    assert_eq!(listed.entries, [inspected]);
    assert_eq!(store.sweep(10).await.unwrap(), Swept::default());
    assert!(store.inspect(&request.id).await.unwrap().is_some());
}

#[tokio::test]
async fn sweeps_go_around_keys_that_they_cannot_read() {
    let place = Place::new();
    let store = place.store().await;
    for key in ["newer", "damaged", "plain"] {
        run(&store, &claim(key), &outcome("answer")).await;
    }
    let mut other = connection(&place.url).await;
    set(&mut other, &place.key(&id("newer")), "v", b"2").await;
    set(&mut other, &place.key(&id("damaged")), "c", b"").await;
    // Not a record's name at all.
    redis::cmd("SET").arg(format!("{}{{x}}:r", place.prefix)).arg(1).exec_async(&mut other).await.unwrap();
    place.clock.advance(100 * 24 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap(), Swept { purged: 1, ..Swept::default() });
    assert_eq!(store.list(&List::default()).await.unwrap().entries.len(), 2);
    assert_eq!(store.sweep(10).await.unwrap(), Swept::default());
}

#[tokio::test]
async fn a_fingerprint_of_another_version_is_unreadable() {
    let store = Place::new().store().await;
    let request = claim("k");
    let mut bytes = request.fingerprint.to_bytes();
    bytes[0] += 1;
    let newer = Claim { fingerprint: Fingerprint::from_bytes(bytes), ..request.clone() };
    run(&store, &newer, &outcome("answer")).await;
    assert_eq!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Unreadable);
}

/// Records as release 0.1 wrote them, a field a line: every later release must go on reading them.
#[tokio::test]
async fn records_of_format_1_are_read() {
    let place = Place::new();
    let mut other = connection(&place.url).await;
    for line in include_str!("../fixtures/records_v1.txt").lines().filter(|line| !line.starts_with('#')) {
        let [name, part, digits] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let value: Vec<u8> =
            (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
        set(&mut other, &place.key(&id(name)), part, &value).await;
    }
    let store = place.store().await;
    let claimed = async |key| store.claim(&claim(key)).await.unwrap();

    let Claimed::Replay { outcome: replayed, completed_at, .. } = claimed("completed").await else { panic!() };
    assert_eq!(replayed, outcome("{\"id\":1}"));
    assert_eq!(completed_at, Timestamp::from_micros(1_800_000_000_000_000));
    let Claimed::Executed(tombstone) = claimed("tombstone").await else { panic!() };
    assert_eq!((tombstone.status, tombstone.location.as_deref()), (204, None));
    let Claimed::InFlight { lease_left } = claimed("in-flight").await else { panic!() };
    assert_eq!(lease_left, Lease::default().length());
    let Claimed::InDoubt(doubt) = claimed("in-doubt").await else { panic!() };
    let token = FencingToken::new(1_800_000_000_000_000).unwrap();
    assert_eq!((doubt.token, doubt.attempt, doubt.response), (token, 1, Some(outcome("sorry"))));
    let stub = Claim { nonce: Nonce::from_bytes([9; 16]), ..claim("stub") };
    assert_eq!(store.claim(&stub).await.unwrap(), Claimed::Refused);
    assert_eq!(claimed("aged").await, Claimed::Mismatch, "its request was another one");
    let resolved = store.inspect(&id("resolved")).await.unwrap().unwrap();
    assert_eq!(resolved.resolution, Some(("ops".into(), "nothing at the bank".into())));
    let Claimed::Granted(next) = claimed("resolved").await else { panic!() };
    assert_eq!((next.attempt, next.token.get()), (2, token.get() + 1));
    let holder = Holder { id: id("in-flight"), token, nonce: Nonce::from_bytes([2; 16]) };
    assert_eq!(store.complete(&holder, &outcome("done")).await.unwrap(), Settled::Applied);
    assert_eq!(store.list(&List::default()).await.unwrap().entries.len(), 7);
}

/// How the fixture was made, and that this release still writes the same.
#[tokio::test]
async fn records_are_written_in_format_1() {
    let place = Place::new();
    let store = place.store().await;
    let with = |key: &str, nonce: u8| Claim { nonce: Nonce::from_bytes([nonce; 16]), ..claim(key) };
    run(&store, &with("completed", 1), &outcome("{\"id\":1}")).await;
    run(&store, &with("tombstone", 3), &Outcome::not_kept(204)).await;
    grant(&store, &with("in-flight", 2)).await;
    let doubtful = grant(&store, &with("in-doubt", 4)).await;
    store.mark_in_doubt(&doubtful, Some(&outcome("sorry"))).await.unwrap();
    store.abandon(&id("stub"), Nonce::from_bytes([9; 16]), DEAD_FOR).await.unwrap();
    let age = idempotency::AgeLimit { max_age: HOUR, drift: HOUR, class: idempotency::KeyClass::new("uuid7") };
    let life = crate::support::life().with_age(age, Lease::default()).unwrap();
    let aged = Claim {
        life,
        key_time: Some(Timestamp::from_micros(1_800_000_000_000_000)),
        fingerprint: Fingerprint::of(["another"]),
        ..with("aged", 6)
    };
    run(&store, &aged, &outcome("aged")).await;
    let resolved = grant(&store, &with("resolved", 5)).await;
    store.mark_in_doubt(&resolved, None).await.unwrap();
    let resolve = Resolve {
        id: resolved.id,
        token_seen: resolved.token,
        verdict: ResolveVerdict::DidNotHappen { fence_token: None },
        who: "ops".into(),
        why: "nothing at the bank".into(),
    };
    assert_eq!(store.resolve(&resolve).await.unwrap(), idempotency::Resolved::Applied);

    let mut other = connection(&place.url).await;
    let mut lines = Vec::new();
    for name in ["completed", "tombstone", "in-flight", "in-doubt", "stub", "aged", "resolved"] {
        let fields: Vec<(String, Vec<u8>)> =
            redis::cmd("HGETALL").arg(place.key(&id(name))).query_async(&mut other).await.unwrap();
        for (part, value) in fields {
            // A nonce that nobody has takes the place of the resolved one.
            if name != "resolved" || part != "r" {
                let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                lines.push(format!("{name} {part} {digits}"));
            }
        }
    }
    lines.sort();
    let mut expected: Vec<&str> = include_str!("../fixtures/records_v1.txt").lines().collect();
    expected.retain(|line| !line.starts_with('#') && !line.starts_with("resolved r "));
    expected.sort_unstable();
    assert_eq!(lines, expected);
}
