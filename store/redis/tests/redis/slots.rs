//! Where keys are in a cluster.

use std::collections::BTreeSet;

use idempotency::{Ask, Key, Lease, LeaseHolder, Leases, Nonce, RecordId, Resource, ScopeId, Settled, Store};

use crate::support::{Place, claim, cluster, connection, duplicate, grant, outcome, replayed};

/// A key or a name of a user, with or without braces.
fn texts() -> impl Iterator<Item = String> {
    let odd = ["{", "}", "{}", "{x}", "}{", "{a}{b}", "x{}y", "a{b", "a}b{c}", "{{x}}"];
    odd.into_iter().map(ToOwned::to_owned).chain((0..90).map(|n| format!("k{n}{{{}}}", n % 3)))
}

/// SLOT: the keys of one record in different slots, at claim or only at renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_56_braces_of_users_move_no_key() {
    let place = Place::in_cluster();
    let store = place.real_store().await;
    let leases = store.leases();
    for text in texts() {
        let id = RecordId::new(&ScopeId::new(["{tenant}"]), &Key::parse(&text).unwrap());
        let request = idempotency::Claim { id, ..claim("any") };
        let holder = grant(&store, &request).await;
        assert_eq!(store.renew(&holder, Lease::default()).await.unwrap(), Settled::Applied);
        assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
        assert_eq!(replayed(store.claim(&duplicate(&request)).await.unwrap()), outcome("answer"));

        let ask = Ask {
            resource: Resource::parse(&text).unwrap(),
            nonce: Nonce::random(),
            lease: Lease::default(),
            above: None,
        };
        let idempotency::Acquired::Granted(grant) = leases.try_acquire(&ask).await.unwrap() else { panic!() };
        let holder = LeaseHolder { resource: ask.resource, token: grant.token, nonce: ask.nonce };
        assert_eq!(leases.renew(&holder, Lease::default()).await.unwrap(), Settled::Applied);
        assert_eq!(leases.release(&holder, Lease::default().length()).await.unwrap(), Settled::Applied);
    }
    let mut slots = BTreeSet::new();
    let mut count = 0;
    for node in 0..3 {
        let mut connection = connection(&cluster().node(node).url()).await;
        for key in place.keys(&mut connection).await {
            let tag = key.split(['{', '}']).nth(1).unwrap().to_owned();
            assert!(tag.len() == 64 && tag.bytes().all(|digit| digit.is_ascii_hexdigit()), "{key}");
            let slot: u16 = redis::cmd("CLUSTER").arg("KEYSLOT").arg(&key).query_async(&mut connection).await.unwrap();
            let of_tag: u16 =
                redis::cmd("CLUSTER").arg("KEYSLOT").arg(&tag).query_async(&mut connection).await.unwrap();
            assert_eq!(slot, of_tag, "{key}");
            slots.insert(slot);
            count += 1;
        }
    }
    assert_eq!(count, 200);
    assert!(slots.len() > 150, "they are spread: {}", slots.len());
}
