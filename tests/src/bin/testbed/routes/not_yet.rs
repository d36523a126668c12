//! Routes of the contract that are not served.

use crate::problem::Problem;

pub(crate) async fn payout() -> Problem {
    Problem::not_yet("payouts through the outbound guard")
}
