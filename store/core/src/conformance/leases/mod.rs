//! The conformance suite of leases: their rules as behaviours that any [`Leases`] can be held against.
//!
//! As [the suite of stores](super): a behaviour is a plain async function over a [`LeaseHarness`], and
//! [`lease_conformance_tests!`](crate::lease_conformance_tests) makes a test of every one of them.
//!
//! ```
//! use std::time::Duration;
//!
//! use idempotency::conformance::leases::{self, LeaseHarness};
//! use idempotency::Timestamp;
//! use idempotency::time::{Clock, ManualClock};
//! use idempotency_memory::MemoryLeases;
//!
//! struct Memory {
//!     clock: ManualClock,
//!     leases: MemoryLeases<ManualClock>,
//! }
//!
//! impl Memory {
//!     fn empty() -> Self {
//!         let clock = ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000));
//!         Self { leases: MemoryLeases::with_clock(clock.clone()), clock }
//!     }
//! }
//!
//! impl LeaseHarness for Memory {
//!     type Leases = MemoryLeases<ManualClock>;
//!
//!     fn leases(&self) -> &Self::Leases {
//!         &self.leases
//!     }
//!     async fn advance(&self, by: Duration) {
//!         self.clock.advance(by);
//!     }
//!     async fn step_back(&self, by: Duration) {
//!         self.clock.set(self.clock.now().before(by));
//!     }
//!     fn exact_clock(&self) -> bool {
//!         true
//!     }
//!     fn steps_back(&self) -> bool {
//!         true
//!     }
//!     fn token_hold(&self) -> Duration {
//!         Duration::ZERO // its clock never steps back while it lives
//!     }
//! }
//!
//! // In a test file: every behaviour, each on leases of its own.
//! idempotency::lease_conformance_tests!(Memory::empty());
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // Or one by one.
//! leases::case_79_a_late_renewal_brings_no_lease_back(&Memory::empty()).await;
//! # }
//! ```

use std::time::Duration;

use crate::{Leases, TOKEN_HOLD};

mod abandon;
mod asks;
mod races;
mod settle;
mod support;
mod sweep;
mod tokens;

/// Empty leases under test, and their clock. Every behaviour wants one of its own.
///
/// What a harness cannot do it says, and the behaviours that need it pass without testing anything.
pub trait LeaseHarness: Send + Sync {
    /// The leases. Clones share them.
    type Leases: Leases + Clone;

    /// The leases.
    fn leases(&self) -> &Self::Leases;

    /// Moves their clock forward by this much.
    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Moves their clock backward by this much. Not called unless [`LeaseHarness::steps_back`].
    fn step_back(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Whether the clock stands still between [`advance`](LeaseHarness::advance)s and tells microseconds apart. Then
    /// boundaries are tested to the microsecond, otherwise with a margin of 5 s.
    fn exact_clock(&self) -> bool;

    /// Whether the clock can be moved backward, as a real one sometimes is.
    fn steps_back(&self) -> bool;

    /// How long a row stays for its token when all else is over: [`TOKEN_HOLD`] unless the clock can never step back behind
    /// a token that it granted.
    fn token_hold(&self) -> Duration {
        TOKEN_HOLD
    }
}

/// The one list of behaviours. From it come the public paths and the tests of [`lease_conformance_tests!`].
macro_rules! behaviours {
    ($dollar:tt $($theme:ident { $($name:ident,)+ })+) => {
        $(pub use self::$theme::{$($name),+};)+

        /// Makes a `#[tokio::test]` of every behaviour in [`conformance::leases`](crate::conformance::leases), each with a
        /// harness of its own: the expression is evaluated anew in every test, and may await.
        ///
        /// Needs `tokio` with its features `macros` and `rt-multi-thread` where it is used.
        #[macro_export]
        macro_rules! lease_conformance_tests {
            ($dollar harness:expr) => {
                $($(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                    async fn $name() {
                        let harness = $dollar harness;
                        $crate::conformance::leases::$name(&harness).await;
                    }
                )+)+
            };
        }
    };
}

behaviours! { $
    asks {
        a_resource_is_answered_in_every_situation,
        a_repeated_asking_is_answered_in_every_situation,
        a_repeated_asking_changes_nothing,
        an_asking_that_is_not_granted_changes_nothing,
        a_lease_ends_at_its_end,
        the_lease_left_is_told,
        inspect_shows_every_situation,
        a_lost_lease_is_not_granted_again_under_its_nonce,
        names_that_look_alike_are_different_resources,
        the_longest_name_is_kept_whole,
        the_shortest_and_the_longest_lease_are_kept,
    }
    settle {
        a_renewal_is_answered_in_every_situation,
        a_release_is_answered_in_every_situation,
        a_stranger_can_do_nothing_in_any_situation,
        a_holder_settles_its_own_resource_only,
        renewals_hold_beyond_the_first_lease,
        a_renewal_never_shortens_the_lease,
        a_lease_that_has_ended_is_not_renewed,
        case_79_a_late_renewal_brings_no_lease_back,
        a_stale_holder_can_do_nothing_after_a_takeover,
        a_late_release_frees_nobody_elses_lease,
        a_released_nonce_is_dead_for_as_long_as_it_was_said,
    }
    abandon {
        an_abandon_frees_its_own_lease,
        an_abandon_leaves_the_lease_of_another_nonce_alone,
        a_late_copy_of_an_abandoned_asking_is_refused,
        a_dead_nonce_is_refused_through_all_later_situations,
        a_dead_nonce_lives_again_when_its_time_is_over,
        many_nonces_are_dead_at_once,
        a_storm_of_abandons_leaves_the_resource_usable,
    }
    tokens {
        case_74_tokens_rise_whatever_happens_in_between,
        grants_in_one_microsecond_have_different_tokens,
        a_token_is_at_least_the_clock,
        case_74_tokens_rise_while_the_clock_steps_back,
        a_step_back_lets_nobody_in,
        a_grant_is_above_the_token_that_it_was_asked_to_be_above,
        a_holder_is_raised_above_a_token_and_keeps_its_lease,
        a_repeated_raise_changes_nothing,
        nobody_but_the_holder_is_raised,
        a_token_from_the_far_future_is_refused,
    }
    sweep {
        a_sweep_removes_nothing_that_counts,
        a_row_stays_for_its_token,
        a_row_stays_for_a_token_ahead_of_the_clock,
        a_row_stays_for_its_dead_nonces,
        a_row_stays_for_its_lease,
        a_sweep_keeps_to_its_limit,
        a_new_lease_is_not_purged_for_the_old_one,
    }
    races {
        one_of_many_askers_is_granted,
        one_of_many_takes_over,
        copies_of_one_asking_get_one_grant,
        an_abandon_beside_its_asking_leaves_the_resource_free,
        a_late_release_and_a_takeover_free_nobody,
        short_leases_on_many_threads_have_rising_tokens,
        a_sweep_beside_askings_removes_no_live_lease,
        sweepers_at_once_count_every_row_once,
        different_resources_are_all_granted,
    }
}
