//! The external API that `/payout` calls: a bank with a ledger of its own, which misbehaves as it is told.
//!
//! | route | what it does |
//! |---|---|
//! | `POST /transfers` | `{"reference": R, "amount": N}`: 201 and the transfer, or 402 and none. With `Idempotency-Key`: one transfer a key |
//! | `GET /transfers?reference=R` | 200 and the transfer, if it happened and its settle time is over; else 404 |
//! | `GET /ledger` | `{"count": n, "references": {R: n}, "rows": [...]}`: every transfer |
//! | `GET /calls` | `{"count": n, "rows": [...]}`: every call of `POST /transfers`, and the fault that it met |
//! | `GET /faults` | how many calls met which fault |
//! | `PUT /plan/{amount}` | `["stall", "none", ...]`: what the next calls with this amount meet, whatever is drawn |

mod books;
mod fault;
mod transfers;
mod wire;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::books::Books;
use self::fault::{Fault, Faults};
use self::wire::{Wire, Wires};
use crate::error::StartError;
use crate::options::BankOptions;
use crate::problem::Problem;
use crate::server::{Terminate, say_ready};

/// What the bank's handlers share.
#[derive(Clone, Debug)]
struct Bank(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    books: Books,
    faults: Faults,
    settle: Duration,
    /// What the next calls meet, by amount.
    plan: Mutex<HashMap<i64, VecDeque<Fault>>>,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) async fn run(options: &BankOptions) -> Result<(), StartError> {
    let mut terminate = Terminate::listen()?;
    let (books, _folder) = Books::open(options.ledger.as_deref()).await?;
    let shared = Shared {
        books,
        faults: Faults { rate: options.faults, seed: options.seed },
        settle: options.settle,
        plan: Mutex::default(),
    };
    let router = Router::new()
        .route("/transfers", post(transfers::transfer).get(transfers::look_up))
        .route("/ledger", get(ledger))
        .route("/calls", get(calls))
        .route("/faults", get(faults))
        .route("/plan/{amount}", put(plan))
        .with_state(Bank(Arc::new(shared)));

    let cannot_listen = |error| StartError::Listen(options.listen, error);
    let listener = Wires(TcpListener::bind(options.listen).await.map_err(cannot_listen)?);
    let address = listener.0.local_addr().map_err(cannot_listen)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let service = router.into_make_service_with_connect_info::<Wire>();
    let serving = axum::serve(listener, service).with_graceful_shutdown(async { drop(stopped.await) });
    let mut serving = pin!(serving.into_future());
    say_ready(address).map_err(StartError::Runtime)?;
    tokio::select! {
        result = &mut serving => return result.map_err(cannot_listen),
        () = terminate.asked() => tracing::info!("stopping"),
    }
    drop(stop);
    // Calls that stand still were told to.
    let _ = timeout(LAST_ANSWERS, serving).await;
    Ok(())
}

async fn ledger(State(bank): State<Bank>) -> Result<Json<Value>, Problem> {
    let rows = bank.0.books.transfers().await.map_err(|error| Problem::ledger(&error))?;
    let mut references = BTreeMap::<&str, u64>::new();
    for row in &rows {
        *references.entry(&row.reference).or_default() += 1;
    }
    Ok(Json(json!({ "count": rows.len(), "references": references, "rows": rows })))
}

async fn calls(State(bank): State<Bank>) -> Result<Json<Value>, Problem> {
    let rows = bank.0.books.calls().await.map_err(|error| Problem::ledger(&error))?;
    Ok(Json(json!({ "count": rows.len(), "rows": rows })))
}

async fn faults(State(bank): State<Bank>) -> Result<Json<BTreeMap<String, i64>>, Problem> {
    let mut counts: BTreeMap<_, _> = Fault::DRAWN.into_iter().map(|fault| (fault.name().to_owned(), 0)).collect();
    counts.extend(bank.0.books.faults().await.map_err(|error| Problem::ledger(&error))?);
    Ok(Json(counts))
}

async fn plan(State(bank): State<Bank>, Path(amount): Path<i64>, Json(faults): Json<VecDeque<Fault>>) -> StatusCode {
    bank.0.plan.lock().unwrap_or_else(PoisonError::into_inner).insert(amount, faults);
    StatusCode::NO_CONTENT
}

impl Bank {
    /// What the next call with this amount meets, if that was said beforehand.
    fn planned(&self, amount: i64) -> Option<Fault> {
        self.0.plan.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&amount)?.pop_front()
    }
}

/// How long answers that are on their way are waited for at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
