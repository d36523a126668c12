//! The conformance suite of outbound steps: their rules as behaviours that any store that keeps [`Steps`](crate::outbound::Steps) can be
//! held against.
//!
//! As [the suite of stores](super), over the same [`Harness`]:
//! [`step_conformance_tests!`](crate::step_conformance_tests) makes a test of every behaviour.
//!
//! [`Harness`]: super::Harness

mod begins;
mod ends;
mod listing;
mod lives;
mod races;
mod resolve;
mod support;

/// The one list of behaviours. From it come the public paths and the tests of [`step_conformance_tests!`].
macro_rules! behaviours {
    ($dollar:tt $($theme:ident { $($name:ident,)+ })+) => {
        $(pub use self::$theme::{$($name),+};)+

        /// Makes a `#[tokio::test]` of every behaviour in [`conformance::steps`](crate::conformance::steps), each with a
        /// harness of its own: the expression is evaluated anew in every test, and may await.
        ///
        /// Needs `tokio` with its features `macros` and `rt-multi-thread` where it is used.
        #[macro_export]
        macro_rules! step_conformance_tests {
            ($dollar harness:expr) => {
                $($(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                    async fn $name() {
                        let harness = $dollar harness;
                        $crate::conformance::steps::$name(&harness).await;
                    }
                )+)+
            };
        }
    };
}

behaviours! { $
    begins {
        a_first_call_is_begun,
        an_asking_is_answered_in_every_situation,
        the_providers_key_lets_a_call_follow_an_unknown_one,
        the_providers_window_ends_at_its_end,
        the_providers_window_begins_with_what_was_sent,
        another_request_is_refused_in_every_situation,
        a_repeated_asking_is_one_call,
        a_late_copy_of_an_asking_begins_nothing,
        whoever_does_not_hold_the_claim_begins_nothing,
        a_call_begins_only_if_the_lease_outlasts_it,
        a_finished_step_is_told_however_short_the_lease_is,
        a_call_keeps_others_away_until_its_quiet_period_is_over,
        steps_of_other_names_and_records_are_others,
    }
    ends {
        results_are_kept_exactly,
        a_repeated_end_changes_nothing,
        better_evidence_replaces_weaker,
        a_late_success_of_a_superseded_worker_counts,
        an_end_is_logged_whatever_became_of_the_record,
        a_late_success_after_a_no_makes_it_succeeded,
        a_late_success_beside_a_call_waits_for_that_call,
        two_calls_that_were_done_are_told,
        case_92_a_refusal_proves_nothing_while_an_earlier_call_is_unresolved,
        a_refusal_counts_once_all_earlier_calls_are_resolved,
        a_late_refusal_settles_the_only_call,
        a_call_given_up_before_it_began_never_begins,
        an_end_of_what_is_not_known_is_missing,
    }
    resolve {
        only_an_unknown_step_is_resolved,
        a_resolver_that_saw_another_call_is_superseded,
        who_resolved_a_step_and_why_is_told,
        a_late_success_confirms_a_yes,
        a_step_that_nobody_knows_is_missing,
    }
    lives {
        steps_survive_release_takeover_and_resolution,
        a_released_record_stays_for_its_steps,
        a_released_record_without_steps_does_not,
        a_new_life_begins_without_steps,
        steps_of_a_released_record_are_over_after_a_tombstone_window,
        a_purge_takes_the_steps_of_its_own_record_only,
    }
    listing {
        pages_show_every_step_once_in_order,
        steps_are_listed_by_record_and_by_state,
    }
    races {
        one_of_many_callers_calls,
        copies_of_one_asking_are_one_call,
        giving_up_beside_the_asking_leaves_no_call,
        a_late_success_is_never_lost,
        one_of_many_resolvers_of_a_step_decides,
        reports_at_once_count_once,
    }
}
