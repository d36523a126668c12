//! What behaviours are written with: one resource, whoever holds it, and the situations that it can be in.

use std::time::Duration;

use super::LeaseHarness;
use crate::{
    Acquired, Ask, FencingToken, Lease, LeaseEntry, LeaseGrant, LeaseHolder, Leases, Nonce, Resource, Settled,
    StoreError,
};

pub(super) const LEASE: Duration = Duration::from_secs(30);
/// Longer than the token hold, so that it is seen to keep a row.
pub(super) const DEAD_FOR: Duration = Duration::from_secs(2 * 3600);

/// The least step of time that decides: a boundary is not reached one tick before it, and is reached at it.
pub(super) fn tick(harness: &impl LeaseHarness) -> Duration {
    if harness.exact_clock() { Duration::from_micros(1) } else { Duration::from_secs(5) }
}

/// Moves the clock to one tick before the end of `duration`.
pub(super) async fn almost(harness: &impl LeaseHarness, duration: Duration) {
    harness.advance(duration - tick(harness)).await;
}

/// Moves the clock over the tick that [`almost`] left.
pub(super) async fn arrive(harness: &impl LeaseHarness) {
    harness.advance(tick(harness)).await;
}

/// The same duration, as far as the harness's clock can tell.
#[track_caller]
pub(super) fn assert_lasts(harness: &impl LeaseHarness, actual: Option<Duration>, expected: Duration) {
    let actual = actual.expect("it is held");
    if harness.exact_clock() {
        assert_eq!(actual, expected);
    } else {
        assert!(actual.abs_diff(expected) <= tick(harness), "{actual:?} is not about {expected:?}");
    }
}

#[track_caller]
pub(super) fn ok<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("the store could not say: {error:?}"))
}

pub(super) fn lease(length: Duration) -> Lease {
    Lease::new(length).expect("a lease from 1 ms to 36500 days")
}

pub(super) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a token")
}

/// So much later, as tokens of leases count.
pub(super) fn later(than: FencingToken, by: Duration) -> FencingToken {
    token(than.get() + u64::try_from(by.as_micros()).expect("not so far"))
}

pub(super) async fn sweep(harness: &impl LeaseHarness) -> usize {
    ok(harness.leases().sweep(1000).await)
}

/// One resource.
pub(super) struct Subject<'h, H> {
    pub(super) harness: &'h H,
    pub(super) resource: Resource,
}

impl<'h, H: LeaseHarness> Subject<'h, H> {
    /// One that nobody has asked for.
    pub(super) fn new(harness: &'h H) -> Self {
        let nonce = u128::from_be_bytes(*Nonce::random().as_bytes());
        Self::named(harness, &format!("account/{nonce:x}"))
    }

    pub(super) fn named(harness: &'h H, name: &str) -> Self {
        Self { harness, resource: Resource::parse(name).expect("a name") }
    }

    pub(super) fn ask(&self, nonce: Nonce) -> Ask {
        Ask { resource: self.resource.clone(), nonce, lease: lease(LEASE), above: None }
    }

    pub(super) async fn send(&self, ask: &Ask) -> Acquired {
        ok(self.harness.leases().try_acquire(ask).await)
    }

    pub(super) async fn asked_with(&self, nonce: Nonce) -> Acquired {
        self.send(&self.ask(nonce)).await
    }

    /// Somebody else asks.
    pub(super) async fn asked(&self) -> Acquired {
        self.asked_with(Nonce::random()).await
    }

    /// Asks, and must be granted.
    pub(super) async fn grant(&self) -> Held<'h, H> {
        self.grant_for(LEASE).await
    }

    pub(super) async fn grant_for(&self, length: Duration) -> Held<'h, H> {
        let ask = Ask { lease: lease(length), ..self.ask(Nonce::random()) };
        let granted = self.send(&ask).await;
        self.held(ask.nonce, granted)
    }

    #[track_caller]
    pub(super) fn held(&self, nonce: Nonce, acquired: Acquired) -> Held<'h, H> {
        let grant = granted(acquired);
        let holder = LeaseHolder { resource: self.resource.clone(), token: grant.token, nonce };
        Held { harness: self.harness, holder, grant }
    }

    pub(super) async fn abandon(&self, nonce: Nonce) {
        ok(self.harness.leases().abandon(&self.resource, nonce, DEAD_FOR).await);
    }

    pub(super) async fn inspect(&self) -> Option<LeaseEntry> {
        ok(self.harness.leases().inspect(&self.resource).await)
    }

    pub(super) async fn lease_left(&self) -> Option<Duration> {
        self.inspect().await.and_then(|entry| entry.lease_left)
    }
}

#[track_caller]
pub(super) fn granted(acquired: Acquired) -> LeaseGrant {
    let Acquired::Granted(grant) = acquired else { panic!("not granted: {acquired:?}") };
    grant
}

/// Somebody who was granted a lease, and may not have it any more.
pub(super) struct Held<'h, H> {
    pub(super) harness: &'h H,
    pub(super) holder: LeaseHolder,
    pub(super) grant: LeaseGrant,
}

impl<H: LeaseHarness> Held<'_, H> {
    pub(super) fn token(&self) -> FencingToken {
        self.holder.token
    }

    pub(super) async fn renew(&self) -> Settled {
        self.renew_for(LEASE).await
    }

    pub(super) async fn renew_for(&self, length: Duration) -> Settled {
        ok(self.harness.leases().renew(&self.holder, lease(length)).await)
    }

    pub(super) async fn release(&self) -> Settled {
        self.release_for(DEAD_FOR).await
    }

    pub(super) async fn release_for(&self, dead_for: Duration) -> Settled {
        ok(self.harness.leases().release(&self.holder, dead_for).await)
    }
}

/// What a resource can be like, and its last holder with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Situation {
    Held,
    Ended,
    Released,
    /// By its holder's own nonce.
    Abandoned,
    TakenOver,
    /// Another one came and went.
    TakenOverAndReleased,
    Forgotten,
}

impl Situation {
    pub(super) const ALL: [Self; 7] = [
        Self::Held,
        Self::Ended,
        Self::Released,
        Self::Abandoned,
        Self::TakenOver,
        Self::TakenOverAndReleased,
        Self::Forgotten,
    ];

    pub(super) async fn arrange<H: LeaseHarness>(self, harness: &H) -> Scene<'_, H> {
        let subject = Subject::new(harness);
        let first = subject.grant().await;
        match self {
            Self::Held => {}
            Self::Ended => harness.advance(LEASE).await,
            Self::Released => assert_eq!(first.release().await, Settled::Applied),
            Self::Abandoned => subject.abandon(first.holder.nonce).await,
            Self::TakenOver | Self::TakenOverAndReleased => {
                harness.advance(LEASE).await;
                let second = subject.grant().await;
                if self == Self::TakenOverAndReleased {
                    assert_eq!(second.release().await, Settled::Applied);
                }
            }
            Self::Forgotten => {
                harness.advance(LEASE + harness.token_hold() + tick(harness)).await;
                assert!(sweep(harness).await > 0);
                assert_eq!(subject.inspect().await, None);
            }
        }
        Scene { subject, first }
    }
}

pub(super) struct Scene<'h, H> {
    pub(super) subject: Subject<'h, H>,
    pub(super) first: Held<'h, H>,
}
