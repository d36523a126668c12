//! From options to a listening server, and to its end.

use std::io::Write as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use idempotency::{Engine, Leaser, Sweeper};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::app::{App, Shared};
use crate::error::StartError;
use crate::ledger::Ledger;
use crate::options::Options;
use crate::payouts::Payouts;
use crate::protection::{self, Protection};
use crate::store;
use crate::values::Sweep;

/// Serves until SIGTERM or SIGINT, then lets all work end.
pub(crate) async fn run(options: &Options) -> Result<(), StartError> {
    let mut terminate = Terminate::listen()?;
    let settings = protection::settings(options, options.recovery.into())?;
    let metrics = PrometheusBuilder::new().install_recorder().map_err(StartError::Metrics)?;
    let opened = store::open(options).await?;
    let payouts = Payouts::new(options.bank.as_deref(), &opened.steps)?;
    let engine = Engine::new(opened.store, settings);
    let leaser = Leaser::new(opened.leases, protection::lease_settings(options)?);
    let (ledger, _folder) = match &options.ledger {
        Some(url) => (Ledger::open(url).await?, None),
        None => Ledger::temporary().await.map(|(ledger, folder)| (ledger, Some(folder)))?,
    };
    let _sweepers = match options.sweep {
        Sweep::Every(every) => Some((Sweeper::spawn(&engine, every), Sweeper::of_leases(&leaser, every))),
        Sweep::Off => None,
    };
    let protection = Protection::new(options, &engine)?;
    let same_database = opened.backend.beside(&options.store, options.ledger.as_deref());
    let app = App::new(Shared {
        engine: engine.clone(),
        leaser: leaser.clone(),
        ledger,
        unprotected: options.unprotected,
        same_database,
        steps: opened.steps,
        payouts,
        scope: options.scope.clone(),
        metrics,
    });
    let router = app.router(&protection, options.max_request);

    let cannot_listen = |error| StartError::Listen(options.listen, error);
    let listener = TcpListener::bind(options.listen).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let listener = listener.tap_io(|connection| {
        // An answer must not wait for the acknowledgement of the one before.
        let _ = connection.set_nodelay(true);
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, router).with_graceful_shutdown(async { drop(stopped.await) });
    let mut serving = pin!(serving.into_future());
    say_ready(address).map_err(StartError::Runtime)?;
    if options.store == "memory:" {
        tracing::warn!(
            "records are in this process's memory: a restart forgets them, and a second instance has its own"
        );
    }
    if options.unprotected {
        tracing::warn!("unprotected: duplicates run again");
    }
    tokio::select! {
        result = &mut serving => return result.map_err(cannot_listen),
        () = terminate.asked() => tracing::info!("stopping"),
    }
    drop(stop);
    if timeout(LONGEST_STOP, serving).await.is_err() {
        tracing::warn!("connections are cut that did not end in time");
    }
    if !engine.drain(LONGEST_STOP).await || !leaser.drain(LONGEST_STOP).await {
        return Err(StartError::WorkLeft);
    }
    Ok(())
}

/// The one line on standard output, for whoever started the program.
pub(crate) fn say_ready(address: SocketAddr) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on http://{address}")?;
    out.flush()
}

/// The signals that ask for the end.
pub(crate) struct Terminate {
    terminate: Signal,
    interrupt: Signal,
}

impl Terminate {
    pub(crate) fn listen() -> Result<Self, StartError> {
        let listen = |kind| signal(kind).map_err(StartError::Runtime);
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// How long connections, and then detached work, are waited for.
const LONGEST_STOP: Duration = Duration::from_secs(30);
