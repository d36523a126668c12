//! Transfers at the bank that `--bank` names, through the outbound guard.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{self, HeaderName, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::TokioExecutor;
use idempotency::Fingerprint;
use idempotency::outbound::{
    Anchor, BoxSteps, CallEnd, Found, Guard, InvalidPolicy, InvalidProvider, InvalidStepLabel, KeyEncoding, KeyPlace,
    KeySupport, Policy, Provider, Step, StepKey, StepLabel, Window,
};
use serde_json::json;

use crate::error::StartError;
use crate::switches::PolicySwitch;

/// Pays through the bank under each policy.
#[derive(Clone, Debug)]
pub(crate) struct Payouts {
    bank: Bank,
    hold: Guard<BoxSteps>,
    reconcile: Guard<BoxSteps>,
    retry: Guard<BoxSteps>,
}

impl Payouts {
    /// None without a bank to call.
    pub(crate) fn new(bank: Option<&str>, steps: &BoxSteps) -> Result<Option<Self>, StartError> {
        let Some(url) = bank else { return Ok(None) };
        let bank = Bank::new(url);
        let provider = provider().map_err(|fault| StartError::usage("--bank", fault))?;
        let keyed = provider.clone().takes_key(keys().map_err(|fault| StartError::usage("--bank", fault))?);
        let keyed = keyed.map_err(|fault| StartError::usage("--bank", fault))?;
        let asked = bank.clone();
        let reconcile = Policy::reconcile(move |inquiry| {
            let bank = asked.clone();
            async move { bank.look_up(&inquiry.reference).await }
        });
        let guard = |provider, policy| {
            let guard = Guard::new(steps.clone(), provider, policy);
            guard.map_err(|fault: InvalidPolicy| StartError::usage("--bank", fault))
        };
        Ok(Some(Self {
            hold: guard(provider.clone(), Policy::Hold)?,
            reconcile: guard(provider, reconcile)?,
            retry: guard(keyed, Policy::retry(CALLS, PAUSE))?,
            bank,
        }))
    }

    pub(crate) const fn bank(&self) -> &Bank {
        &self.bank
    }

    pub(crate) const fn guard(&self, policy: PolicySwitch) -> &Guard<BoxSteps> {
        match policy {
            PolicySwitch::Hold => &self.hold,
            PolicySwitch::Reconcile => &self.reconcile,
            PolicySwitch::Retry => &self.retry,
        }
    }

    /// The step of a payout. Its reference is derived, so the amount is all that the bank acts on.
    pub(crate) fn step(amount: i64) -> Result<Step, InvalidStepLabel> {
        Step::new(TRANSFER, Fingerprint::of([amount.to_string()]))
    }

    /// The name of that step.
    pub(crate) fn label() -> Result<StepLabel, InvalidStepLabel> {
        StepLabel::parse(TRANSFER)
    }
}

fn provider() -> Result<Provider, InvalidProvider> {
    let bank = Provider::new("bank", CALL_TIMEOUT)?.quiet_period(QUIET_PERIOD)?.settle_time(SETTLE_TIME)?;
    Ok(bank.lease_margin(LEASE_MARGIN).refuses([StatusCode::PAYMENT_REQUIRED.as_u16()]))
}

fn keys() -> Result<KeySupport, InvalidProvider> {
    let window = Window::new(KEY_WINDOW, Anchor::FirstRequest)?;
    KeySupport::new(KeyPlace::Header(IDEMPOTENCY_KEY.to_string()), window, KeyEncoding::Hex, 64)
}

/// The bank, seen from its customer.
#[derive(Clone, Debug)]
pub(crate) struct Bank {
    client: Client<HttpConnector, Full<Bytes>>,
    transfers: String,
}

/// An answer of the bank.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// No whole answer of the bank.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// There was no connection, so nothing was sent.
    #[error("no connection: {0}")]
    NotSent(#[source] hyper_util::client::legacy::Error),
    #[error("no answer: {0}")]
    Lost(#[source] hyper_util::client::legacy::Error),
    #[error("status {0}, and the answer broke off")]
    BrokenOff(StatusCode),
    #[error("the request cannot be written: {0}")]
    NotWritten(#[source] http::Error),
}

impl Bank {
    fn new(url: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        // It sends again only what it gets back unstarted from a reused connection that turns out to be closed. Left on: switched off, the
        // same is an unknown outcome of a call that was never made.
        let client = Builder::new(TokioExecutor::new()).build(connector);
        Self { client, transfers: format!("{url}/transfers") }
    }

    /// Asks for a transfer, once.
    pub(crate) async fn transfer(
        &self,
        reference: &StepKey,
        amount: i64,
        key: Option<&StepKey>,
    ) -> Result<Answered, NoAnswer> {
        let order = json!({ "reference": reference.as_str(), "amount": amount }).to_string();
        let request = Request::builder().method(Method::POST).uri(&self.transfers);
        let mut request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, key.as_str());
        }
        self.send(request.body(Full::from(order))).await
    }

    /// How a call of [`transfer`](Self::transfer) ended.
    pub(crate) fn ending(provider: &Provider, called: Result<Answered, NoAnswer>) -> CallEnd {
        match called {
            Ok(Answered { status, body }) => provider.ending(status.as_u16(), &body, body.clone()),
            Err(error @ (NoAnswer::NotSent(_) | NoAnswer::NotWritten(_))) => CallEnd::NotDone(error.to_string()),
            Err(error) => CallEnd::Unknown(error.to_string()),
        }
    }

    /// Asks what became of a transfer.
    async fn look_up(&self, reference: &StepKey) -> Found {
        let request = Request::builder().uri(format!("{}?reference={reference}", self.transfers));
        match self.send(request.body(Full::default())).await {
            Ok(Answered { status: StatusCode::OK, body }) => Found::Happened(body),
            Ok(Answered { status: StatusCode::NOT_FOUND, .. }) => Found::DidNotHappen,
            _ => Found::StillUnknown,
        }
    }

    async fn send(&self, request: Result<Request<Full<Bytes>>, http::Error>) -> Result<Answered, NoAnswer> {
        let request = request.map_err(NoAnswer::NotWritten)?;
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| if error.is_connect() { NoAnswer::NotSent(error) } else { NoAnswer::Lost(error) })?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|_| NoAnswer::BrokenOff(status))?;
        Ok(Answered { status, body: body.to_bytes() })
    }
}

const TRANSFER: &str = "transfer";
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Of a lease of 2 s, two thirds are left at worst: enough for a call and this.
const LEASE_MARGIN: Duration = Duration::from_millis(200);
/// Short, so that tests need not wait long.
const QUIET_PERIOD: Duration = Duration::from_millis(500);
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(500);
/// For how long the bank remembers a key: longer than any test.
const KEY_WINDOW: Duration = Duration::from_secs(24 * 3600);
/// How often a call is made in one go where the bank knows its key.
const CALLS: NonZeroU32 = NonZeroU32::new(3).unwrap();
const PAUSE: Duration = Duration::from_millis(50);
