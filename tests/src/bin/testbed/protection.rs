//! The layers, as the options say.

use axum::http::Uri;
use axum::routing::MethodRouter;
use idempotency::time::InvalidDuration;
use idempotency::{AgeLimit, BoxStore, Engine, KeyClass, Lease, Life, Recovery, Settings, Windows};
use tower_idempotency::{IdempotencyLayer, KeyFormat, KeyRequired, Responder};

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
    On(IdempotencyLayer<BoxStore>),
    Off,
}

impl Protection {
    /// The layer of the routes that follow `--recovery`. Its engine shares store and drain with `engine`.
    pub(crate) fn new(options: &Options, engine: &Engine<BoxStore>) -> Result<Self, StartError> {
        if options.unprotected {
            return Ok(Self::Off);
        }
        let layer = IdempotencyLayer::with_engine(engine.clone(), options.scope.rule())
            .record(options.record.into())
            .max_request(options.max_request)
            .max_response(options.max_response)
            .outage(options.on_store_error.into())
            .docs(Uri::from_static(RULES));
        Ok(Self::On(match age_limit(&options.keys) {
            None => layer,
            Some(age) => layer.key_format(KeyFormat::Uuid7, age).map_err(|fault| StartError::usage("--keys", fault))?,
        }))
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
            Self::On(layer) => routes.layer(change(layer.clone())),
            Self::Off => routes,
        }
    }
}

/// Where a client reads about keys.
const RULES: &str = "https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/";
