//! The layers, as the options say.

use axum::http::Uri;
use axum::routing::MethodRouter;
use idempotency::time::{InvalidDuration, LONGEST};
use idempotency::{AgeLimit, BoxStore, Engine, KeyClass, Lease, LeaseSettings, Life, Recovery, Settings, Windows};
use tower_idempotency::{FencingLayer, IdempotencyLayer, KeyFormat, KeyRequired, Responder};

use crate::app::App;
use crate::error::StartError;
use crate::options::Options;
use crate::values::Keys;

/// Settings of claims by routes with this recovery.
pub(crate) fn settings(options: &Options, recovery: Recovery) -> Result<Settings, StartError> {
    let wrong = |option| move |fault: InvalidDuration| StartError::usage(option, fault);
    let lease = Lease::new(options.lease).map_err(wrong("--lease"))?;
    let windows =
        Windows::new(options.response_window, options.tombstone_window).map_err(wrong("--tombstone-window"))?;
    let mut life = Life::new(recovery, windows);
    if let Some(age) = age_limit(&options.keys) {
        life = life.with_age(age, lease).map_err(wrong("--keys"))?;
    }
    let settings = Settings::default().lease(lease).life(life).in_flight(options.in_flight);
    let settings = settings.max_run(options.max_run).map_err(wrong("--max-run"))?;
    let settings = settings.store_timeout(options.store_timeout).map_err(wrong("--store-timeout"))?;
    // Whoever is killed inside one holds its key for so long.
    let limit = options.lease.saturating_mul(5).min(options.tombstone_window).min(LONGEST);
    let limit = Lease::new(limit).map_err(wrong("--lease"))?;
    let settings = settings.transaction_limit(limit);
    let settings = if options.no_renew { settings.without_renewal() } else { settings };
    settings.checked().map_err(wrong("--tombstone-window"))
}

/// Settings of the leases on counters.
pub(crate) fn lease_settings(options: &Options) -> Result<LeaseSettings, StartError> {
    let wrong = |option| move |fault: InvalidDuration| StartError::usage(option, fault);
    let lease = Lease::new(options.lease).map_err(wrong("--lease"))?;
    let settings = LeaseSettings::default().lease(lease);
    let settings = settings.store_timeout(options.store_timeout).map_err(wrong("--store-timeout"))?;
    let settings = settings.max_hold(options.max_run).map_err(wrong("--max-run"))?;
    Ok(if options.no_renew { settings.without_renewal() } else { settings })
}

fn age_limit(keys: &Keys) -> Option<AgeLimit> {
    match *keys {
        Keys::Opaque => None,
        Keys::Uuid7 { max_age, drift } => Some(AgeLimit { max_age, drift, class: KeyClass::new("uuid7") }),
    }
}

/// Puts routes behind layers, or leaves them bare.
#[derive(Clone, Debug)]
pub(crate) enum Protection {
    On {
        /// As `--recovery` says.
        layer: IdempotencyLayer<BoxStore>,
        /// Whatever it says.
        rerun: IdempotencyLayer<BoxStore>,
    },
    Off,
}

impl Protection {
    /// The layer of the routes that follow `--recovery`. Its engine shares store and drain with `engine`.
    pub(crate) fn new(options: &Options, engine: &Engine<BoxStore>) -> Result<Self, StartError> {
        if options.unprotected {
            return Ok(Self::Off);
        }
        let rerun = engine.with_settings(settings(options, Recovery::Rerun)?);
        Ok(Self::On { layer: layer(options, engine.clone())?, rerun: layer(options, rerun)? })
    }

    /// The routes behind a layer under which an attempt without an outcome runs again: its effect is in one transaction with
    /// the outcome, marked by the record, or behind the outbound guard.
    pub(crate) fn rerun(&self, routes: MethodRouter<App>) -> MethodRouter<App> {
        match self {
            Self::On { rerun, .. } => routes.layer(rerun.clone()),
            Self::Off => routes,
        }
    }

    /// The same, refused without a key: the guard of their calls needs an attempt.
    pub(crate) fn rerun_required(&self, routes: MethodRouter<App>) -> MethodRouter<App> {
        match self {
            Self::On { rerun, .. } => routes.layer(rerun.clone().key_required(KeyRequired::Required)),
            Self::Off => routes,
        }
    }

    /// As [`rerun`](Self::rerun), for callers who hold a token, which they must present.
    pub(crate) fn fenced(&self, routes: MethodRouter<App>) -> MethodRouter<App> {
        match self {
            Self::On { .. } => self.rerun(routes).layer(FencingLayer::new()),
            Self::Off => routes,
        }
    }

    /// The routes behind the layer as it is.
    pub(crate) fn key_optional(&self, routes: MethodRouter<App>) -> MethodRouter<App> {
        self.around(routes, |layer| layer)
    }

    /// The routes, refused without a key.
    pub(crate) fn key_required(&self, routes: MethodRouter<App>) -> MethodRouter<App> {
        self.around(routes, |layer| layer.key_required(KeyRequired::Required))
    }

    /// The routes, with the member `id` of a JSON body as their key.
    pub(crate) fn key_in_body(&self, routes: MethodRouter<App>) -> MethodRouter<App> {
        self.around(routes, |layer| {
            layer.key_from_fn(|_, body| crate::routes::webhook::id(body)).key_required(KeyRequired::Required)
        })
    }

    /// The routes, with refusals in the shape that Stripe's SDKs read.
    pub(crate) fn for_stripe(&self, routes: MethodRouter<App>) -> MethodRouter<App> {
        self.around(routes, |layer| layer.responder(Responder::stripe()))
    }

    fn around(
        &self,
        routes: MethodRouter<App>,
        change: impl FnOnce(IdempotencyLayer<BoxStore>) -> IdempotencyLayer<BoxStore>,
    ) -> MethodRouter<App> {
        match self {
            Self::On { layer, .. } => routes.layer(change(layer.clone())),
            Self::Off => routes,
        }
    }
}

fn layer(options: &Options, engine: Engine<BoxStore>) -> Result<IdempotencyLayer<BoxStore>, StartError> {
    let layer = IdempotencyLayer::with_engine(engine, options.scope.rule())
        .record(options.record.into())
        .max_request(options.max_request)
        .max_response(options.max_response)
        .outage(options.on_store_error.into())
        .docs(Uri::from_static(RULES));
    match age_limit(&options.keys) {
        None => Ok(layer),
        Some(age) => layer.key_format(KeyFormat::Uuid7, age).map_err(|fault| StartError::usage("--keys", fault)),
    }
}

/// Where a client reads about keys.
const RULES: &str = "https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/";
