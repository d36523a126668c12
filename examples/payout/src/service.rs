//! The payout service: order, charge, transfer, receipt.

use std::error::Error;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use idempotency::outbound::{CallEnd, Decision, Found, Guard, KeySupport, Policy, Provider, Step};
use idempotency::time::InvalidDuration;
use idempotency::{Attempt, Fingerprint, Recovery};
use idempotency_sqlx::SqliteStore;
use serde::{Deserialize, Serialize};
use tower::{Layer as _, ServiceExt as _};
use tower_idempotency::outbound::{GuardedStep, Outbound, OutboundLayer};
use tower_idempotency::{CurrentAttempt, IdempotencyLayer, KeyRequired, Refusal, Scope};

use crate::bank::Transfer;
use crate::cards::Charge;

pub(crate) type Http = Client<HttpConnector, Full<Bytes>>;

/// The service's two counterparts, each with its guard.
#[derive(Clone)]
pub(crate) struct Payouts {
    store: SqliteStore,
    http: Http,
    /// A client with the guard around it, as a layer.
    cards: Outbound<Http, SqliteStore>,
    charges: String,
    /// The same guard as a function.
    bank: Guard<SqliteStore>,
    transfers: String,
}

/// What is asked for.
#[derive(Deserialize)]
struct Order {
    to: String,
    amount: u64,
}

/// What was done.
#[derive(Serialize)]
struct Receipt {
    charge: String,
    transfer: String,
    to: String,
    amount: u64,
}

impl Payouts {
    pub(crate) fn new(store: SqliteStore, cards: SocketAddr, bank: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let http = client();
        let transfers = format!("http://{bank}/transfers");

        // The card provider honours keys for 24 h: an answer that is lost is asked for again, with the same key, at once.
        let provider = Provider::new("cards", CALL)?.quiet_period(QUIET)?.takes_key(KeySupport::stripe()?)?;
        let retry = Policy::retry(NonZeroU32::new(3).ok_or("no calls")?, Duration::from_millis(100));
        let charging = Guard::new(store.clone(), provider, retry)?;
        let cards_client = OutboundLayer::new(charging)
            .not_sent(|error: &hyper_util::client::legacy::Error| error.is_connect())
            .layer(http.clone());

        // The bank honours nothing. It can be asked, a moment later, whether there is a transfer with our reference.
        let provider = Provider::new("bank", CALL)?.quiet_period(QUIET)?.settle_time(SETTLE)?.refuses([402]);
        let (asking, at) = (http.clone(), transfers.clone());
        let ask = move |inquiry: idempotency::outbound::Inquiry| {
            let (http, url) = (asking.clone(), format!("{at}?reference={}", inquiry.reference));
            async move { look_up(&http, &url).await.unwrap_or(Found::StillUnknown) }
        };
        let bank = Guard::new(store.clone(), provider, Policy::reconcile(ask))?;
        let charges = format!("http://{cards}/charges");
        Ok(Self { store, http, cards: cards_client, charges, bank, transfers })
    }

    /// The first step, through the layer.
    async fn charge(&self, attempt: &Attempt, order: &Order) -> Result<Charge, Failed> {
        let request = Request::post(&self.charges)
            .header(header::CONTENT_TYPE, "application/json")
            .extension(GuardedStep::new(attempt, "charge").map_err(broken)?)
            .body(json(&serde_json::json!({ "amount": order.amount })))
            .map_err(broken)?;
        let response = self.cards.clone().oneshot(request).await.map_err(Refusal::from)?;
        let body = response.into_body().collect().await.map_err(broken)?.to_bytes();
        serde_json::from_slice(&body).map_err(broken)
    }

    /// The second step, through the function. The bank's refusal is none of these transfers.
    async fn transfer(&self, attempt: &Attempt, order: &Order) -> Result<Option<Transfer>, Failed> {
        let step =
            Step::new("transfer", Fingerprint::of([order.to.as_str(), &order.amount.to_string()])).map_err(broken)?;
        let outcome = self.bank.call(attempt, &step, |call| {
            let ordered =
                serde_json::json!({ "reference": call.reference().as_str(), "to": order.to, "amount": order.amount });
            let request = Request::post(&self.transfers).header(header::CONTENT_TYPE, "application/json");
            async move {
                let Ok(request) = request.body(json(&ordered)) else {
                    return CallEnd::NotDone("no request could be made".to_owned());
                };
                send(&self.http, self.bank.provider(), request).await
            }
        });
        match outcome.await.map_err(Refusal::from)?.decision {
            Decision::Done(transfer) => serde_json::from_slice(&transfer).map(Some).map_err(broken),
            Decision::Refused(_) => Ok(None),
        }
    }
}

/// How a call ended. Only a connection that was never made is certainly nothing done; an answer is what the provider
/// documents, and all else is unknown.
async fn send(http: &Http, bank: &Provider, request: Request<Full<Bytes>>) -> CallEnd {
    let response = match http.request(request).await {
        Ok(response) => response,
        Err(error) if error.is_connect() => return CallEnd::NotDone(error.to_string()),
        Err(error) => return CallEnd::Unknown(error.to_string()),
    };
    let status = response.status().as_u16();
    match response.into_body().collect().await {
        Ok(body) => {
            let body = body.to_bytes();
            bank.ending(status, &body, body.clone())
        }
        Err(error) => CallEnd::Unknown(format!("half an answer: {error}")),
    }
}

/// Asks the bank what became of a transfer.
async fn look_up(http: &Http, url: &str) -> Result<Found, BoxError> {
    let response = http.request(Request::get(url).body(Full::default())?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(match status {
        StatusCode::OK => Found::Happened(body),
        StatusCode::NOT_FOUND => Found::DidNotHappen,
        _ => Found::StillUnknown,
    })
}

/// The service as it should be.
pub(crate) fn router(payouts: Payouts) -> Result<Router, InvalidDuration> {
    // Rerun: what the handler does is behind guarded steps, so a second run does nothing twice. It gets the decisions of its finished
    // steps and goes on with the first unfinished one.
    let layer = IdempotencyLayer::new(payouts.store.clone(), Scope::global())
        .methods([Method::POST])
        .key_required(KeyRequired::Required)
        .recovery(Recovery::Rerun)
        .checked()?;
    Ok(Router::new().route("/payouts", post(pay_out).layer(layer)).with_state(payouts))
}

async fn pay_out(
    State(payouts): State<Payouts>,
    CurrentAttempt(attempt): CurrentAttempt,
    Json(order): Json<Order>,
) -> Result<Response, Failed> {
    let charge = payouts.charge(&attempt, &order).await?;
    let Some(transfer) = payouts.transfer(&attempt, &order).await? else {
        return Ok((StatusCode::PAYMENT_REQUIRED, "the bank refuses").into_response());
    };
    Ok(receipt(charge, transfer))
}

/// The service as many are: a lost answer is a 502, and whoever gets one asks again.
pub(crate) fn unguarded_router(payouts: Payouts) -> Router {
    Router::new().route("/payouts", post(pay_out_unguarded)).with_state(payouts)
}

async fn pay_out_unguarded(State(payouts): State<Payouts>, Json(order): Json<Order>) -> Result<Response, StatusCode> {
    let amount = serde_json::json!({ "amount": order.amount });
    let charge = call(&payouts.http, &payouts.charges, &amount).await.ok_or(StatusCode::BAD_GATEWAY)?;
    let ordered = serde_json::json!({ "reference": "payout", "to": order.to, "amount": order.amount });
    let transfer = call(&payouts.http, &payouts.transfers, &ordered).await.ok_or(StatusCode::BAD_GATEWAY)?;
    Ok(receipt(charge, transfer))
}

async fn call<T: serde::de::DeserializeOwned>(http: &Http, url: &str, body: &serde_json::Value) -> Option<T> {
    let request = Request::post(url).header(header::CONTENT_TYPE, "application/json").body(json(body)).ok()?;
    let answer = async { http.request(request).await.ok()?.into_body().collect().await.ok() };
    let body = tokio::time::timeout(CALL, answer).await.ok()??.to_bytes();
    serde_json::from_slice(&body).ok()
}

fn receipt(charge: Charge, transfer: Transfer) -> Response {
    let Transfer { transfer, to, amount, .. } = transfer;
    Json(Receipt { charge: charge.charge, transfer, to, amount }).into_response()
}

pub(crate) fn client() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

fn json(value: &serde_json::Value) -> Full<Bytes> {
    Full::new(Bytes::from(value.to_string()))
}

/// Why there is no receipt.
enum Failed {
    /// What the guard says, as an answer.
    Refused(Refusal),
    /// A fault of this program or of a counterpart that answers in no language of ours.
    Broken(BoxError),
}

type BoxError = Box<dyn Error + Send + Sync>;

fn broken(error: impl Into<BoxError>) -> Failed {
    Failed::Broken(error.into())
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(refusal) => refusal.into_response(),
            Self::Broken(error) => {
                tracing::error!(error = &*error as &dyn Error, "no receipt");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

/// When a call is given up.
const CALL: Duration = Duration::from_millis(500);
/// How long after that nobody else calls: in earnest, longer than any process stands still.
const QUIET: Duration = Duration::from_millis(100);
/// How long until the bank's books can be trusted.
const SETTLE: Duration = Duration::from_millis(300);
