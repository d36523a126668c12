//! What fences must do in every database, and what its tests need.

pub(crate) mod admitting;
pub(crate) mod columns;
pub(crate) mod forgetting;
pub(crate) mod healing;
pub(crate) mod races;
pub(crate) mod tenures;

use idempotency::{FenceTicket, FencingToken, Key, Nonce, RecordId, Resource, ScopeId, TokenSource};
use idempotency_sqlx::fence::{Admit, FenceDatabase, FenceError, FencedTransaction, Fences, Written};
use sqlx::Database;

/// A database of one test's own: our tables, and accounts 1 and 2 with a balance of 100 and 200.
pub(crate) trait Rig: Sized + Send + Sync + 'static {
    type Database: FenceDatabase<Connection: Send>;
    type Fences: Fences<Database = Self::Database> + Clone + 'static;

    async fn new() -> Self;
    fn fences(&self) -> Self::Fences;
    /// The same that admits a token once.
    fn strict(&self) -> Self::Fences;
    /// A transaction without a fence.
    async fn begin(&self) -> sqlx::Transaction<'static, Self::Database>;
    /// Carries out statements that every database understands, and says how many rows they changed.
    async fn execute(connection: &mut Connection<Self>, sql: &'static str) -> u64;
    /// The same for one that may fail.
    async fn try_execute(connection: &mut Connection<Self>, sql: &'static str) -> Result<u64, sqlx::Error>;
    async fn number(connection: &mut Connection<Self>, sql: &'static str) -> i64;
    /// Waits until somebody waits for a lock; where nobody can see it, until it is certain that they would have to.
    async fn until_waiting(&self);
    /// Opens an account's row.
    async fn open_row(
        connection: &mut Connection<Self>,
        id: i64,
        ticket: &FenceTicket,
        admit: Admit,
    ) -> Result<Written, FenceError>;
}

pub(crate) type Connection<R> = <<R as Rig>::Database as Database>::Connection;

/// Statements and reads that are transactions of their own.
pub(crate) async fn run<R: Rig>(rig: &R, sql: &'static str) {
    let mut transaction = rig.begin().await;
    R::execute(&mut transaction, sql).await;
    transaction.commit().await.unwrap();
}

pub(crate) async fn number<R: Rig>(rig: &R, sql: &'static str) -> i64 {
    let mut transaction = rig.begin().await;
    let number = R::number(&mut transaction, sql).await;
    transaction.rollback().await.unwrap();
    number
}

pub(crate) async fn balance<R: Rig>(rig: &R) -> i64 {
    number(rig, BALANCE).await
}

/// Longer than any test waits, however slow the machine.
pub(crate) const PATIENT: std::time::Duration = std::time::Duration::from_secs(30);

pub(crate) const BALANCE: &str = "SELECT balance FROM accounts WHERE id = 1";

pub(crate) fn account() -> Resource {
    resource("account/1")
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource::parse(name).unwrap()
}

/// A source of small numbers.
pub(crate) const COUNTER: TokenSource = TokenSource::new(7);

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

/// A token of [`COUNTER`] and who holds it.
pub(crate) fn ticket(number: u64, holder: Nonce) -> FenceTicket {
    FenceTicket { token: token(number), holder: Some(holder), source: COUNTER }
}

/// A token of [`COUNTER`] with a holder of its own.
pub(crate) fn fresh(number: u64) -> FenceTicket {
    ticket(number, Nonce::random())
}

pub(crate) fn anonymous(number: u64) -> FenceTicket {
    FenceTicket { token: token(number), holder: None, source: COUNTER }
}

pub(crate) fn id(key: &str) -> RecordId {
    RecordId::new(&ScopeId::global(), &Key::parse(key).unwrap())
}

/// Opens and commits.
pub(crate) async fn admitted<F: Fences>(fences: &F, resource: &Resource, ticket: &FenceTicket) {
    fences.open_with(resource, ticket).await.unwrap().commit().await.unwrap();
}

/// Opens, and must be refused.
pub(crate) async fn refused<F: Fences>(fences: &F, resource: &Resource, ticket: &FenceTicket) -> FenceError {
    match fences.open_with(resource, ticket).await {
        Ok(opened) => panic!("admitted: {opened:?}"),
        Err(refused) => refused,
    }
}

#[track_caller]
pub(crate) fn is_superseded(answer: FenceError, current: u64) {
    match answer {
        FenceError::Superseded { current: found } if found.get() == current => {}
        answer => panic!("not superseded by {current}: {answer:?}"),
    }
}

/// A writer's whole work: read the balance, and write it back with an amount added.
pub(crate) async fn add<R: Rig>(transaction: &mut FencedTransaction<R::Database>, sql: &'static str) {
    assert_eq!(R::execute(&mut **transaction, sql).await, 1);
}

/// A test for each behaviour.
macro_rules! fence_suite {
    ($rig:ty: $($module:ident :: { $($behaviour:ident),* $(,)? })*) => {
        $(mod $module {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                suite::$module::$behaviour(&<$rig as suite::Rig>::new().await).await;
            })*
        })*
    };
}
pub(crate) use fence_suite;

/// Every behaviour, for one database.
macro_rules! all_fence_behaviours {
    ($rig:ty) => {
        $crate::fences::suite::fence_suite! {
            $rig:
            admitting::{
                case_76_an_older_token_fails_after_a_newer_one_and_the_same_may_come_again,
                a_fence_is_made_at_its_first_opening,
                a_deleted_row_does_not_forget_its_fence,
                case_76_a_batch_is_written_whole_or_not_at_all,
                a_token_without_a_holder_is_good_for_one_transaction,
                strictly_newer_tells_a_repeat_from_being_superseded,
                another_source_is_refused_until_an_operator_resets_the_fence,
                a_reset_refuses_what_was_minted_before_it,
                a_token_from_the_far_future_is_refused_and_not_stored,
                what_was_rolled_back_was_not_admitted,
                a_dropped_transaction_is_rolled_back,
                resources_are_compared_byte_by_byte,
                minted_tokens_rise_while_the_clock_steps_back,
                case_73_a_late_write_does_not_move_the_value_back,
            }
            races::{
                tokens_rise_over_a_thousand_openings,
                no_update_is_lost_among_many_writers,
                an_older_token_behind_a_newer_one_waits_and_is_refused,
                a_newer_token_behind_an_older_one_waits_and_sees_its_writes,
                two_first_openings_at_once_are_both_admitted,
                opening_first_keeps_a_paused_holder_from_losing_an_update,
                a_token_checked_only_at_the_write_loses_an_update,
                several_resources_in_any_order_do_not_deadlock,
            }
            tenures::{
                a_tenure_goes_on_in_further_transactions,
                a_superseded_tenure_does_not_go_on,
                a_tenure_whose_commits_are_gone_does_not_go_on,
                a_tenure_whose_fence_is_gone_does_not_go_on,
                a_ticket_without_a_holder_has_no_further_transaction,
                several_fences_are_one_tenure,
                a_failed_statement_poisons_the_commit,
                a_transaction_that_was_ended_by_hand_is_not_committed,
                an_effect_happens_once_however_often_it_is_run,
                of_two_effects_at_once_the_second_one_waits,
                a_marker_that_was_rolled_back_is_no_marker,
            }
            forgetting::{
                old_fences_are_forgotten_and_their_tokens_refused,
                case_75_a_purged_fence_admits_no_older_token,
                fences_of_other_sources_are_never_forgotten,
                a_purge_deletes_no_more_than_its_limit,
                an_open_admission_holds_a_purge_up,
                an_admission_behind_a_purge_is_refused,
                old_markers_are_forgotten,
            }
            healing::{
                case_75_a_lease_store_that_lost_its_memory_is_healed,
                a_lease_that_is_not_held_any_more_is_not_healed,
                a_lease_opens_a_fence_without_healing,
            }
            columns::{
                older_tokens_are_refused_by_the_row,
                case_61_equal_values_written_again_are_told_by_the_row,
                a_missing_row_is_said_so,
                a_row_refuses_the_far_future,
                an_older_token_behind_a_newer_one_finds_the_row_taken,
                opening_a_row_first_keeps_a_paused_holder_from_losing_an_update,
                case_76_a_batch_of_rows_is_opened_whole_or_rolled_back,
            }
        }
    };
}
pub(crate) use all_fence_behaviours;
