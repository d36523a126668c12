//! What the handlers share, and the routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use idempotency::{BoxStore, Engine};
use metrics_exporter_prometheus::PrometheusHandle;
use tower_http::catch_panic::CatchPanicLayer;

use crate::ledger::Ledger;
use crate::protection::Protection;
use crate::routes::{charge, effects, not_yet, observe, payment_intents, records, webhook};
use crate::values::ScopeFrom;

/// What the handlers share.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine<BoxStore>,
    pub(crate) ledger: Ledger,
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
            .route("/tx-charge", post(not_yet::transaction))
            .route("/counter/{resource}", post(not_yet::counter).get(not_yet::counter))
            .route("/fenced/{resource}", post(not_yet::fenced))
            .route("/payout", post(not_yet::payout))
            .route("/effects", get(effects::list))
            .route("/records", get(records::list))
            .route("/records/{id}/resolve", post(records::resolve))
            .route("/health", get(observe::health))
            .route("/metrics", get(observe::metrics))
            .layer(DefaultBodyLimit::max(max_request.max(AXUMS_OWN)))
            .layer(CatchPanicLayer::new())
            .with_state(self)
    }
}
