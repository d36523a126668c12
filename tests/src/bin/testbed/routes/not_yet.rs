//! Routes of the contract that are not served.

use crate::problem::Problem;

pub(crate) async fn transaction() -> Problem {
    Problem::not_yet("an effect and its outcome in one transaction")
}

pub(crate) async fn counter() -> Problem {
    Problem::not_yet("leases on resources and the counters behind them")
}

pub(crate) async fn fenced() -> Problem {
    Problem::not_yet("writes under a caller's fencing token")
}

pub(crate) async fn payout() -> Problem {
    Problem::not_yet("payouts through the outbound guard")
}
