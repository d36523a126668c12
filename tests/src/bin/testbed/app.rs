//! What the handlers share, and the routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use idempotency::outbound::BoxSteps;
use idempotency::{BoxLeases, BoxStore, Engine, Leaser};
use metrics_exporter_prometheus::PrometheusHandle;
use tower_http::catch_panic::CatchPanicLayer;

use crate::ledger::Ledger;
use crate::payouts::Payouts;
use crate::protection::Protection;
use crate::routes::{charge, counter, effects, observe, payment_intents, payout, records, steps, tx_charge, webhook};
use crate::store::Backend;
use crate::values::ScopeFrom;

/// What the handlers share.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine<BoxStore>,
    pub(crate) leaser: Leaser<BoxLeases>,
    pub(crate) ledger: Ledger,
    /// No lease, no fence.
    pub(crate) unprotected: bool,
    /// The store, if the ledger is in its database.
    pub(crate) same_database: Option<Backend>,
    pub(crate) steps: BoxSteps,
    /// None without a bank.
    pub(crate) payouts: Option<Payouts>,
    pub(crate) scope: ScopeFrom,
    pub(crate) metrics: PrometheusHandle,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// All routes. Bodies may be as long as the layer and axum's own limit allow.
    pub(crate) fn router(self, protection: &Protection, max_request: usize) -> Router {
        const AXUMS_OWN: usize = 2 * 1024 * 1024;
        let charges = post(charge::charge).put(charge::charge).delete(charge::charge).get(charge::charge);
        Router::new()
            .route("/charge", protection.key_optional(charges))
            .route("/required", protection.key_required(post(charge::charge)))
            .route("/webhook", protection.key_in_body(post(webhook::webhook)))
            .route("/v1/payment_intents", protection.for_stripe(post(payment_intents::create)))
            .route("/tx-charge", protection.rerun(post(tx_charge::charge)))
            .route("/counter/{resource}", protection.rerun(post(counter::add)).get(counter::show))
            .route("/fenced/{resource}", protection.fenced(post(counter::fenced)))
            .route("/payout", protection.rerun_required(post(payout::pay)))
            .route("/effects", get(effects::list))
            .route("/records", get(records::list))
            .route("/records/{id}/resolve", post(records::resolve))
            .route("/steps", get(steps::list))
            .route("/records/{id}/steps/{label}", get(steps::inspect))
            .route("/records/{id}/steps/{label}/resolve", post(steps::resolve))
            .route("/health", get(observe::health))
            .route("/metrics", get(observe::metrics))
            .layer(DefaultBodyLimit::max(max_request.max(AXUMS_OWN)))
            .layer(CatchPanicLayer::new())
            .with_state(self)
    }
}
