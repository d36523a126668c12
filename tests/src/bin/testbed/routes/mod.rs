//! The handlers.

pub(crate) mod charge;
pub(crate) mod counter;
pub(crate) mod effects;
pub(crate) mod observe;
pub(crate) mod payment_intents;
pub(crate) mod payout;
pub(crate) mod records;
pub(crate) mod steps;
pub(crate) mod tx_charge;
pub(crate) mod webhook;
