//! Settings of the model, each small enough to be explored whole, and the rule that each of them shows.

use std::time::Duration;

use idempotency::{Lease, Recovery};
use stateright::Property;

use super::state::{Budget, State};
use super::{Dropped, Records, ticks};

/// Who takes part, how the store is set, and what may happen how often.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The clients.
    pub clients: Vec<ClientSetting>,
    /// The lease, in ticks.
    pub lease: u8,
    /// The response window, in ticks.
    pub response: u8,
    /// The tombstone window, in ticks.
    pub tombstone: u8,
    /// How long a nonce stays dead, in ticks.
    pub dead: u8,
    /// How long a row is held for its token, in ticks.
    pub hold: u8,
    /// What may happen how often.
    pub budget: Budget,
    /// Handlers may say that nothing was done.
    pub releases: bool,
    /// Handlers may say that nobody knows.
    pub doubts: bool,
    /// Whoever finds the key in flight waits.
    pub waits: bool,
    /// Effects go through a fence.
    pub fenced: bool,
    /// What must be seen.
    pub must_see: &'static [Sight],
}

/// One client's configuration.
#[derive(Clone, Copy, Debug)]
pub struct ClientSetting {
    /// What its node is configured to do after an unknown outcome.
    pub recovery: Recovery,
    /// What it asks for under the key.
    pub fingerprint: u8,
    /// How many requests it makes.
    pub requests: u8,
}

/// Something that must be seen now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the fields of `Sights`")]
pub enum Sight {
    Superseded,
    Refused,
    Again,
    Takeover,
    Replay,
    Resolved,
    Purged,
}

impl Setting {
    fn of(name: &'static str, clients: &[(Recovery, u8)]) -> Self {
        let client = |(recovery, requests): &(Recovery, u8)| ClientSetting {
            recovery: *recovery,
            fingerprint: 1,
            requests: *requests,
        };
        Self {
            name,
            clients: clients.iter().map(client).collect(),
            lease: 1,
            response: 8,
            tombstone: 16,
            dead: 8,
            hold: 2,
            budget: Budget::default(),
            releases: false,
            doubts: false,
            waits: false,
            fenced: false,
            must_see: &[],
        }
    }

    /// Answers are lost and messages are late, under Hold.
    #[must_use]
    pub fn lost_messages() -> Self {
        let budget = Budget { ticks: 1, losses: 2, ..Budget::default() };
        let must_see = &[Sight::Refused, Sight::Again, Sight::Replay];
        Self { budget, releases: true, must_see, ..Self::of("lost messages", &[(HOLD, 1), (HOLD, 1), (HOLD, 1)]) }
    }

    /// Processes die, an operator resolves, and messages of both are late.
    #[must_use]
    pub fn operators() -> Self {
        let budget = Budget { ticks: 2, copies: 1, crashes: 1, resolutions: 2, ..Budget::default() };
        let must_see = &[Sight::Resolved, Sight::Superseded, Sight::Replay];
        Self { budget, doubts: true, must_see, ..Self::of("operators", &[(HOLD, 1), (HOLD, 1), (HOLD, 1)]) }
    }

    /// Effects go through a fence, which the operator opens.
    #[must_use]
    pub fn fenced_operators() -> Self {
        let budget = Budget { ticks: 2, crashes: 1, resolutions: 1, ..Budget::default() };
        let must_see = &[Sight::Resolved];
        let clients = &[(HOLD, 1), (HOLD, 1), (HOLD, 1)];
        Self { budget, doubts: true, fenced: true, must_see, ..Self::of("operators and a fence", clients) }
    }

    /// Under Rerun, attempts are taken over and answers are lost.
    #[must_use]
    pub fn takeovers() -> Self {
        let budget = Budget { ticks: 2, losses: 1, crashes: 1, ..Budget::default() };
        let must_see = &[Sight::Takeover, Sight::Superseded, Sight::Replay];
        Self { budget, must_see, ..Self::of("takeovers", &[(RERUN, 1), (RERUN, 1), (RERUN, 1)]) }
    }

    /// Two nodes are configured otherwise.
    #[must_use]
    pub fn two_configurations() -> Self {
        let budget = Budget { ticks: 2, losses: 1, crashes: 1, renewals: 1, ..Budget::default() };
        let must_see = &[Sight::Takeover, Sight::Replay];
        Self { budget, must_see, ..Self::of("two configurations", &[(HOLD, 1), (RERUN, 1), (RERUN, 1)]) }
    }

    /// Windows are short, a sweeper deletes, and leases are renewed beyond the windows.
    #[must_use]
    pub fn purges() -> Self {
        let budget = Budget { ticks: 4, copies: 1, sweeps: 1, renewals: 1, ..Budget::default() };
        let must_see = &[Sight::Purged, Sight::Replay];
        let clients = &[(HOLD, 1), (HOLD, 1), (HOLD, 1)];
        Self { budget, lease: 2, response: 1, tombstone: 2, dead: 1, hold: 0, must_see, ..Self::of("purges", clients) }
    }

    /// The clock steps back, rows are purged, keys are released.
    #[must_use]
    pub fn clock_steps() -> Self {
        let budget = Budget { ticks: 3, back: 2, copies: 1, sweeps: 2, ..Budget::default() };
        let must_see = &[Sight::Purged];
        let clients = &[(HOLD, 2), (HOLD, 1)];
        Self {
            budget,
            response: 1,
            tombstone: 1,
            dead: 1,
            hold: 2,
            releases: true,
            must_see,
            ..Self::of("clock steps", clients)
        }
    }

    /// Waiters are woken, also by the outcome of another request.
    #[must_use]
    pub fn waiters() -> Self {
        let budget = Budget { ticks: 1, losses: 2, ..Budget::default() };
        let mut setting = Self::of("waiters", &[(HOLD, 1), (HOLD, 1), (HOLD, 1)]);
        setting.clients[2].fingerprint = 2;
        Self { budget, releases: true, waits: true, must_see: &[Sight::Replay, Sight::Again], ..setting }
    }

    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![
            Self::lost_messages(),
            Self::operators(),
            Self::fenced_operators(),
            Self::takeovers(),
            Self::two_configurations(),
            Self::purges(),
            Self::clock_steps(),
            Self::waiters(),
        ]
    }

    pub(crate) fn lease(&self) -> Lease {
        // At least a tick.
        Lease::new(ticks(self.lease)).unwrap_or_default()
    }

    pub(crate) const fn dead_for(&self) -> Duration {
        ticks(self.dead)
    }

    pub(crate) const fn hold(&self) -> Duration {
        ticks(self.hold)
    }

    pub(super) fn sights(&self) -> Vec<Property<Records>> {
        let property = |sight: &Sight| -> (&'static str, fn(&Records, &State) -> bool) {
            match sight {
                Sight::Superseded => ("superseded", |_, state| state.seen.sights.superseded),
                Sight::Refused => ("refused", |_, state| state.seen.sights.refused),
                Sight::Again => ("granted again", |_, state| state.seen.sights.again),
                Sight::Takeover => ("taken over", |_, state| state.seen.sights.takeover),
                Sight::Replay => ("replayed", |_, state| state.seen.sights.replay),
                Sight::Resolved => ("resolved", |_, state| state.seen.sights.resolved),
                Sight::Purged => ("purged", |_, state| state.seen.sights.purged),
            }
        };
        self.must_see.iter().map(property).map(|(name, seen)| Property::sometimes(name, seen)).collect()
    }
}

impl Dropped {
    /// Every rule, and the setting in which it is missed.
    #[must_use]
    pub fn all() -> Vec<(Self, Setting)> {
        vec![
            (Self::LifeKept, Setting::two_configurations()),
            (Self::PurgeLooksAgain, Setting::purges()),
            (Self::InFlightOutlivesWindows, Setting::purges()),
            (Self::OwnClaimChangesNothing, Setting::lost_messages()),
            (Self::TokenKept, Setting::clock_steps()),
            (Self::TokenHeld, Setting::clock_steps()),
            (Self::CompleteNeverInserts, Setting::clock_steps()),
            (Self::RenewedInTime, Setting::two_configurations()),
            (Self::SuccessAfterApplied, Setting::takeovers()),
            (Self::SupersededThrownAway, Setting::takeovers()),
            (Self::Abandon, Setting::lost_messages()),
            (Self::LateTryAbandoned, Setting::lost_messages()),
            (Self::FailedAbandonTriedAgain, Setting::lost_messages()),
            (Self::DeadNonces, Setting::lost_messages()),
            (Self::DeadNoncesSurvive, Setting::lost_messages()),
            (Self::ResolveCompares, Setting::operators()),
            (Self::ResolveReplacesNonce, Setting::operators()),
            (Self::ResolveWhenDead, Setting::operators()),
            (Self::FenceOpenedFirst, Setting::fenced_operators()),
            (Self::FenceTokenPassed, Setting::fenced_operators()),
            (Self::SameNonceAgain, Setting::lost_messages()),
            (Self::FingerprintComparedAgain, Setting::waiters()),
        ]
    }
}

pub(super) const HOLD: Recovery = Recovery::Hold;
pub(super) const RERUN: Recovery = Recovery::Rerun;
