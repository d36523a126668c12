//! The conformance suite: the protocol as behaviours that any store can be held against.
//!
//! A behaviour is a plain async function over a [`Harness`], which is an empty store and a way to move its clock. It
//! panics when the store breaks the rule it is named after. [`conformance_tests!`](crate::conformance_tests) makes a
//! test of every one of them:
//!
//! ```
//! use std::time::Duration;
//!
//! use idempotency::conformance::{self, Harness};
//! use idempotency::Timestamp;
//! use idempotency::time::{Clock, ManualClock};
//! use idempotency_memory::MemoryStore;
//!
//! struct Memory {
//!     clock: ManualClock,
//!     store: MemoryStore<ManualClock>,
//! }
//!
//! impl Memory {
//!     async fn empty() -> Self {
//!         let clock = ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000));
//!         Self { store: MemoryStore::builder().clock(clock.clone()).build(), clock }
//!     }
//! }
//!
//! impl Harness for Memory {
//!     type Store = MemoryStore<ManualClock>;
//!
//!     fn store(&self) -> &Self::Store {
//!         &self.store
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
//!     fn keeps_floors(&self) -> bool {
//!         true
//!     }
//! }
//!
//! // In a test file of the store's crate: every behaviour, each on a store of its own.
//! idempotency::conformance_tests!(Memory::empty().await);
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // Or one by one.
//! conformance::a_stale_holder_can_do_nothing_after_a_takeover(&Memory::empty().await).await;
//! # }
//! ```
//!
//! What is asked of a store:
//!
//! 1. Every row of the protocol's tables, in every state, judged when the operation is carried out: nothing here sweeps
//!    unless the behaviour is about sweeping.
//! 2. Every boundary of time: a lease until 10 has ended at 10, and not a microsecond before.
//! 3. Repeated and late messages: all of them may come twice, and after anything else has happened.
//! 4. Races, on several threads: one winner.
//! 5. That nothing live is ever forgotten, whatever sweeps beside it.
//!
//! Refusing when full is not asked here, since only a bounded store can: such a store tests it itself.
// Behaviours panic by design: that is how they say that a store broke a rule.
#![allow(clippy::missing_panics_doc)]

use std::time::Duration;

use crate::{Store, TOKEN_HOLD};

mod abandon;
mod claims;
mod contents;
mod keys;
pub mod leases;
mod listing;
mod lives;
pub mod once;
mod races;
mod renewing;
mod resolve;
mod settle;
mod situation;
pub mod steps;
mod support;
mod sweep;
mod tokens;
mod windows;

/// An empty store under test, and its clock. Every behaviour wants one of its own.
///
/// The suite moves the clock over hours and months, so a store whose clock nobody can move cannot be held against it: a
/// store that has its server's clock takes the time as an optional parameter in tests. What a harness cannot do it
/// says, and the behaviours that need it pass without testing anything.
pub trait Harness: Send + Sync {
    /// The store. Clones share their records; [`BoxStore`](crate::BoxStore) is one for stores that are not `Clone`.
    type Store: Store + Clone;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Moves the store's clock forward by this much.
    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Moves the store's clock backward by this much. Not called unless [`Harness::steps_back`].
    fn step_back(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Whether the clock stands still between [`advance`](Harness::advance)s and tells microseconds apart. Then
    /// boundaries are tested to the microsecond, otherwise with a margin of 5 s.
    fn exact_clock(&self) -> bool;

    /// Whether the store's clock can be moved backward, as a real one sometimes is.
    fn steps_back(&self) -> bool;

    /// How long a row stays for its token when all else is over: [`TOKEN_HOLD`] unless the store's clock can never step back
    /// behind a token that it granted, which a store that lives and dies with its process can see to.
    fn token_hold(&self) -> Duration {
        TOKEN_HOLD
    }

    /// Whether the store keeps a floor per key class, raised by its purges, so that a maximum age that is raised later
    /// does not admit a key whose record is gone.
    fn keeps_floors(&self) -> bool;
}

/// The one list of behaviours. From it come the public paths and the tests of [`conformance_tests!`]; a behaviour that is
/// not on it is unreachable, which the lints refuse.
macro_rules! behaviours {
    ($dollar:tt $($theme:ident { $($name:ident,)+ })+) => {
        $(pub use self::$theme::{$($name),+};)+

        /// Makes a `#[tokio::test]` of every behaviour in [`conformance`](crate::conformance), each with a harness of its
        /// own: the expression is evaluated anew in every test, and may await.
        ///
        /// Needs `tokio` with its features `macros` and `rt-multi-thread` where it is used.
        #[macro_export]
        macro_rules! conformance_tests {
            ($dollar harness:expr) => {
                $($(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                    async fn $name() {
                        let harness = $dollar harness;
                        $crate::conformance::$name(&harness).await;
                    }
                )+)+
            };
        }
    };
}

behaviours! { $
    claims {
        an_absent_key_is_granted,
        a_duplicate_is_answered_in_every_state,
        a_repeated_claim_is_answered_in_every_state,
        another_request_is_a_mismatch_in_every_state,
        another_fingerprint_version_is_unreadable_in_every_state,
        a_repeated_claim_changes_nothing,
        a_repeated_claim_does_not_revive_its_lease,
        a_duplicate_that_is_not_granted_writes_nothing,
        a_held_record_is_in_doubt_since_the_end_of_its_lease,
        a_rerun_record_is_taken_over_at_the_end_of_its_lease,
        a_replay_tells_its_age_and_the_time_left,
        forgetting_a_doubt_is_a_possible_escape,
        a_duplicate_may_ask_for_other_room,
    }
    lives {
        a_grant_tells_the_recovery_of_the_first_claim,
        an_attempt_in_flight_ends_by_its_lease_and_by_no_window,
        a_duplicate_configured_rerun_does_not_take_over_a_held_attempt,
        a_duplicate_configured_hold_takes_over_a_rerun_attempt,
        the_windows_of_the_first_claim_decide,
        life_settings_are_kept_over_a_release,
        life_settings_are_fresh_after_expiry,
        a_free_key_takes_the_fingerprint_of_its_next_claim,
        the_longest_settings_are_held,
    }
    settle {
        a_completion_is_answered_in_every_state,
        a_renewal_is_answered_in_every_state,
        a_release_is_answered_in_every_state,
        a_mark_is_answered_in_every_state,
        a_response_is_added_to_a_doubt_once,
        a_stranger_can_do_nothing_in_any_state,
        nothing_but_a_claim_begins_a_record,
        a_holder_settles_its_own_record_only,
        a_late_completion_applies_while_nobody_took_over,
        a_late_completion_replaces_the_response_in_doubt,
        a_repeated_completion_keeps_the_first_outcome,
        a_stale_holder_can_do_nothing_after_a_takeover,
        a_stale_holder_gains_nothing_from_the_token_of_its_successor,
        a_released_holder_can_do_nothing_to_the_next_one,
        renewals_hold_a_claim_beyond_its_first_lease,
        a_lease_that_has_ended_is_not_renewed,
        a_renewal_never_shortens_the_lease,
        a_doubt_lasts_from_the_end_of_the_renewed_lease,
        a_mark_does_not_postpone_the_end_of_a_doubt,
        a_marked_doubt_is_not_taken_over,
    }
    abandon {
        an_abandon_frees_its_own_claim_in_every_state,
        an_abandon_leaves_the_claim_of_another_nonce_alone,
        an_abandon_that_overtakes_its_claim_refuses_it,
        a_dead_nonce_is_refused_through_all_later_states,
        a_dead_nonce_lives_again_when_its_time_is_over,
        many_nonces_are_dead_at_once,
        a_storm_of_abandons_leaves_the_record_usable,
        a_repeated_abandon_keeps_its_nonce_dead_for_longer,
        a_claimer_whose_reply_was_lost_frees_its_own_doubt,
        a_late_abandon_does_not_free_the_next_attempt,
        an_abandon_does_not_hide_a_possible_escape,
    }
    resolve {
        only_a_doubt_can_be_resolved,
        a_doubt_resolved_as_happened_is_replayed,
        a_doubt_may_be_resolved_without_an_answer,
        a_doubt_resolved_as_not_happened_is_run_again,
        a_resolver_that_saw_another_token_is_superseded,
        a_repeated_resolve_frees_nobody_elses_attempt,
        a_late_holder_cannot_contradict_a_resolution,
        a_late_abandon_cannot_contradict_a_resolution,
        the_next_grant_is_above_the_fence_token,
        a_smaller_fence_token_lowers_nothing,
        who_resolved_and_why_is_told,
        a_resolved_doubt_is_no_escape,
    }
    windows {
        the_response_window_ends_at_its_end,
        the_tombstone_window_ends_at_its_end,
        the_windows_do_not_add_up,
        the_windows_count_from_completion,
        a_duplicate_does_not_renew_a_window,
        an_outcome_that_is_not_kept_is_a_tombstone_at_once,
        a_doubt_ends_a_tombstone_window_after_its_lease,
        a_sweep_changes_no_answer,
        the_shortest_settings_are_kept,
    }
    renewing {
        a_hit_on_a_tombstone_renews_its_window_if_that_is_set,
        no_hit_renews_a_window_beyond_its_cap,
        hits_one_after_another_leave_out_a_hundredth_at_most,
        the_setting_of_the_claim_that_hits_decides,
        only_a_hit_on_a_tombstone_renews,
        a_sweep_leaves_a_renewed_tombstone_alone,
        a_renewed_tombstone_stays_until_its_key_is_too_old,
        many_hits_at_once_are_all_answered,
    }
    tokens {
        tokens_rise_whatever_happens_in_between,
        grants_in_one_microsecond_have_different_tokens,
        a_token_is_at_least_the_clock,
        a_row_stays_while_its_token_is_held,
        a_row_stays_while_a_fence_token_ahead_of_the_clock_is_held,
        a_token_ahead_of_the_clock_is_kept_over_expiry,
        tokens_rise_while_the_clock_steps_back,
        a_step_back_lets_nobody_in,
    }
    keys {
        a_key_of_the_maximum_age_is_too_old,
        a_key_beyond_the_drift_is_from_the_future,
        a_record_answers_before_the_age_of_its_key_is_judged,
        a_dead_nonce_is_refused_before_its_key_is_too_old,
        a_record_stays_until_its_key_is_too_old,
        a_key_is_never_run_twice_at_any_age,
        a_released_key_is_judged_by_the_records_limit,
        a_key_without_a_time_has_no_age,
        raising_the_maximum_age_admits_no_forgotten_key,
        a_purge_raises_the_floor_of_its_own_class_only,
        the_purge_of_a_released_key_raises_no_floor,
        a_stub_is_judged_by_the_claims_limit,
    }
    contents {
        a_binary_payload_is_replayed_exactly,
        an_empty_payload_is_replayed,
        a_large_payload_is_replayed_exactly,
        a_location_is_kept_exactly,
        a_status_is_kept_exactly,
        a_response_in_doubt_is_kept_exactly,
        keys_that_look_alike_are_different_records,
        ids_that_differ_in_one_byte_are_different_records,
    }
    listing {
        inspect_shows_the_state_in_every_situation,
        the_list_agrees_with_inspect,
        listings_follow_the_clock,
        an_age_counts_from_the_last_change,
        pages_show_every_record_once_in_order,
        a_listing_continues_after_any_id,
    }
    sweep {
        a_sweep_removes_nothing_that_counts,
        a_sweep_drops_payloads_whose_window_is_over,
        a_sweep_leaves_a_renewed_claim_alone,
        a_tombstone_is_purged_when_its_window_is_over,
        an_expired_row_stays_for_its_token,
        the_purge_of_a_doubt_is_counted_as_an_escape,
        an_attempt_nobody_came_back_for_is_purged,
        a_row_stays_for_its_dead_nonces,
        a_sweep_keeps_to_its_limit,
        a_late_sweep_purges_at_once,
        a_new_life_is_not_purged_for_the_old_one,
    }
    races {
        one_of_many_claimers_is_granted,
        one_of_many_claims_a_freed_key,
        one_of_many_takes_over,
        a_late_completion_and_a_takeover_never_both_win,
        an_abandon_beside_its_claim_leaves_the_key_free,
        abandons_beside_a_first_run_lose_nothing,
        copies_of_one_claim_get_one_grant,
        one_of_many_resolvers_decides,
        a_sweep_beside_claims_removes_no_live_record,
        sweepers_at_once_count_every_row_once,
        different_keys_are_all_granted,
    }
}
