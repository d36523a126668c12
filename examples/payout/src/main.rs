//! Run with `cargo run --release --bin payout`: an order is charged by a provider that knows idempotency keys and paid out by a bank that
//! knows none, while both of them lose answers.
//!
//! The program is all of them: the payout service, the card provider, the bank, and a client that asks again. It tells what each of them
//! saw, and counts in the books of the two others.

mod bank;
mod cards;
mod fault;
mod service;
mod story;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

use axum::Router;
use clap::Parser;
use idempotency_sqlx::SqliteStore;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use crate::bank::Bank;
use crate::cards::Cards;
use crate::service::Payouts;
use crate::story::Story;

/// Pays orders out while the bank loses answers, and counts the transfers.
#[derive(Parser)]
struct Options {
    /// Calls bank and provider without the guard, as most programs do, to see what that does.
    #[arg(long)]
    unguarded: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("payout: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything was paid once.
async fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("payout.sqlite").display());
    SqliteStore::migrate(&url).await?;
    let store = SqliteStore::open(&url).await?;

    let (cards, bank) = (Cards::default(), Bank::default());
    let cards_at = serve(cards::router(cards.clone())).await?;
    let bank_at = serve(bank::router(bank.clone())).await?;
    let payouts = Payouts::new(store.clone(), cards_at, bank_at)?;
    let service = if options.unguarded { service::unguarded_router(payouts) } else { service::router(payouts)? };
    let service_at = serve(service).await?;

    let all_once = Story::new(service_at, store, cards, bank).tell().await?;
    drop(folder);
    Ok(all_once)
}

/// Serves on a free port for as long as the program runs.
async fn serve(router: Router) -> Result<SocketAddr, std::io::Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}
