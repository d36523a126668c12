//! Run with `cargo run --release --bin payments`: a payment service over SQLite, with nothing to set up.
//!
//! Its README is a tour with curl: the same payment asked for twice, two at once, by a client that hangs up, across a
//! crash.

mod api;
mod ledger;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use http::{Method, Uri};
use idempotency::time::InvalidDuration;
use idempotency::{BoxStore, InFlight, Lease, Sweeper};
use idempotency_memory::MemoryStore;
use idempotency_redis::RedisStore;
use idempotency_sqlx::SqliteStore;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower_idempotency::{IdempotencyLayer, KeyRequired, Scope};
use tracing_subscriber::EnvFilter;

use crate::ledger::Ledger;

/// A payment service whose payments happen once, however often they are asked for.
#[derive(Parser)]
struct Options {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// Where idempotency records are kept: `sqlite:PATH`, `redis://HOST/` for several instances, or `memory:` for a try.
    #[arg(long, value_name = "URL", default_value = "sqlite:payments-idempotency.sqlite")]
    store: String,

    /// The SQLite file with accounts and payments.
    #[arg(long, value_name = "PATH", default_value = "payments.sqlite")]
    database: PathBuf,

    /// How long each payment takes, so that "two at once" can be tried by hand.
    #[arg(long, value_name = "DURATION", default_value = "300ms", value_parser = humantime::parse_duration)]
    think: Duration,

    /// How long a claim outlives a process that was killed.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    lease: Duration,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Err(error) = serve(Options::parse()).await else { return ExitCode::SUCCESS };
    let causes = std::iter::successors(Some(&*error), |error| (*error).source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    eprintln!("payments: {}", causes.join(": "));
    ExitCode::FAILURE
}

async fn serve(options: Options) -> Result<(), Box<dyn Error>> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let ledger = Ledger::open(&options.database, options.think).await?;
    tracing::info!("accounts and payments: {}; missing tables were created", options.database.display());
    let layer = idempotent(open(&options.store).await?, Lease::new(options.lease)?)?;
    let engine = layer.engine().clone();
    // Gives back the room of records whose windows are over. No answer depends on it.
    let _sweeper = Sweeper::spawn(&engine, Duration::from_secs(60));

    let listener =
        TcpListener::bind(options.listen).await.map_err(|e| format!("cannot listen on {}: {e}", options.listen))?;
    // SIGTERM and ctrl-c: no new connections, the open requests are answered ...
    let stop = stop()?;
    say_where(listener.local_addr()?);
    axum::serve(listener, api::router(layer, ledger.clone())).with_graceful_shutdown(stop).await?;
    // ... and payments whose clients have left are made and recorded.
    if !engine.drain(Duration::from_secs(30)).await {
        tracing::warn!("stopped with work left; its keys will be in doubt");
    }
    ledger.close().await;
    Ok(())
}

/// How payments are protected.
fn idempotent(store: BoxStore, lease: Lease) -> Result<IdempotencyLayer<BoxStore>, InvalidDuration> {
    // What is not set is as important. Recovery is `Hold`: payment and record are in two databases, and a process
    // that is killed between the two leaves a payment that no record tells of. To run again could be to pay again, so
    // the key is in doubt until somebody has looked. `Rerun` would be right if a second run did no harm: with the
    // attempt's record id in a UNIQUE column of the payment, or with the outcome recorded in the payment's own
    // transaction.
    //
    // Said out loud: everybody shares one key space, so that the tour needs no login. A service with more than one
    // client tells the scope from whoever its authentication found, so that nobody takes or reads another's key:
    // `Scope::from_fn(|parts| parts.extensions.get::<Principal>().map(|p| ScopeId::new([p.tenant(), p.id()])))`.
    IdempotencyLayer::new(store, Scope::global())
        .methods([Method::POST])
        .key_required(KeyRequired::Required)
        // SDKs differ: some retry a 409, most do not, and a client that gives up on a live payment and takes a new key
        // pays twice. So a duplicate waits for the answer.
        .in_flight(InFlight::Wait(Duration::from_secs(10)))
        .lease(lease)
        .docs(Uri::from_static("/.well-known/idempotency"))
        // A lease above the tombstone window ends the start, and not somebody's payment.
        .checked()
}

/// Opens the store, and makes its tables. A service with a schema tool of its own leaves that to the tool.
async fn open(url: &str) -> Result<BoxStore, Box<dyn Error>> {
    if url == "memory:" {
        tracing::warn!(
            "RECORDS ARE IN MEMORY: a restart forgets them and pays again, and several instances need a shared store"
        );
        return Ok(BoxStore::new(MemoryStore::new()));
    }
    if url.starts_with("redis") {
        let store = RedisStore::open(url).await?;
        // A record that Redis loses is a payment made twice: not on a server that evicts, and it is said what else it may lose.
        for finding in store.check().await?.accepted()?.findings {
            tracing::warn!("idempotency records: {finding}");
        }
        return Ok(BoxStore::new(store));
    }
    SqliteStore::migrate(url).await?;
    tracing::info!("idempotency records: {url}; missing tables were created");
    Ok(idempotency_sqlx::open(url).await?)
}

#[expect(clippy::print_stdout, reason = "the one line that whoever started it waits for")]
fn say_where(address: SocketAddr) {
    println!("listening on http://{address}");
}

/// Resolves when the process is asked to stop.
fn stop() -> Result<impl Future<Output = ()>, std::io::Error> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
