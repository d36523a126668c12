//! The layers, each as it is set up by default, with keys that belong to nobody.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use idempotency::Store;
use idempotency_benches::Subject;
use idempotency_redis::RedisStore;
use idempotent::IdempotencyStore;
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, SessionLayer};
use tokio::runtime::Runtime;
use tower_cookies::CookieManagerLayer;
use tower_idempotency::{IdempotencyLayer, Scope};

use crate::ask::{request, send, send_all, time_of};
use crate::charge::app;

/// A layer over one store.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    app: Router,
    /// The same layer and store around a handler that never ends; none where a duplicate runs beside the first.
    slow: Option<Router>,
    needs_session: bool,
}

/// What is asked of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    NoKey,
    First,
    Replay,
    Conflict,
}

impl Asked {
    pub(crate) const ALL: [Self; 4] = [Self::NoKey, Self::First, Self::Replay, Self::Conflict];
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "no key",
            Self::First => "first request",
            Self::Replay => "replay",
            Self::Conflict => "conflict",
        })
    }
}

impl Peer {
    pub(crate) fn ours() -> Self {
        Self::ours_over("this one, in process", idempotency_memory::MemoryStore::new())
    }

    pub(crate) async fn ours_on(url: &str) -> Self {
        Self::ours_over("this one, Redis", RedisStore::open(url).await.unwrap())
    }

    fn ours_over(name: &'static str, store: impl Store) -> Self {
        let layer = IdempotencyLayer::new(store, Scope::global());
        let (app, slow) = (app().layer(layer.clone()), Some(never_ending().layer(layer)));
        Self { name, app, slow, needs_session: false }
    }

    pub(crate) fn idempotent() -> Self {
        let store = idempotent::memory::MemoryStore::builder().try_build().unwrap();
        Self::idempotent_over("idempotent 2.0, in process", store)
    }

    pub(crate) async fn idempotent_on(url: &str) -> Self {
        let store = idempotent::valkey::ValkeyStore::with_url(url).try_build().await.unwrap();
        Self::idempotent_over("idempotent 2.0, Redis", store)
    }

    fn idempotent_over(name: &'static str, store: impl IdempotencyStore + Clone) -> Self {
        let layer = idempotent::middleware::IdempotencyLayer::new(store);
        let (app, slow) = (app().layer(layer.clone()), Some(never_ending().layer(layer)));
        Self { name, app, slow, needs_session: false }
    }

    pub(crate) fn axum_idempotent() -> Self {
        // So large that nothing is evicted.
        let store = Arc::new(MokaStore::builder().max_capacity(1 << 40).build());
        let options = IdempotentOptions::default().use_idempotency_key_header(None, false);
        let sessions = SessionLayer::new(store).with_cookie_options(CookieOptions::build().name("session"));
        let layer = IdempotentLayer::<MokaStore>::new(options);
        let app = app().layer(layer).layer(sessions).layer(CookieManagerLayer::new());
        Self { name: "axum-idempotent 0.6, in process", app, slow: None, needs_session: true }
    }

    pub(crate) fn knows(&self, asked: Asked) -> bool {
        asked != Asked::Conflict || self.slow.is_some()
    }

    pub(crate) fn subject<'r>(&self, asked: Asked, n: u32, runtime: &'r Runtime) -> Subject<'r> {
        let (app, needs_session) = (self.app.clone(), self.needs_session);
        let next = AtomicU64::new(0);
        let one = move || {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let (key, session) = match asked {
                Asked::NoKey => (None, 0),
                Asked::First => (Some(format!("first-{n}")), 1 + n / KEYS_OF_A_SESSION),
                Asked::Replay => (Some("replayed".to_owned()), 0),
                Asked::Conflict => (Some("conflict".to_owned()), 0),
            };
            let request = request(key.as_deref());
            if needs_session { in_session(request, session) } else { request }
        };
        let expected = if asked == Asked::Conflict { StatusCode::CONFLICT } else { StatusCode::CREATED };
        if let Some(slow) = self.slow.clone().filter(|_| asked == Asked::Conflict) {
            let first = one();
            runtime.spawn(async move { send(&slow, first, StatusCode::CREATED).await });
        }
        let mut begun = false;
        Subject::new(&format!("{}: {asked}", self.name), n, runtime, async move |n| {
            if !std::mem::replace(&mut begun, true) && asked == Asked::Replay {
                send(&app, one(), expected).await;
            }
            time_of(n, &one, async |requests| send_all(&app, requests, expected).await).await
        })
    }
}

fn never_ending() -> Router {
    Router::new().route("/charge", post(async || std::future::pending::<StatusCode>().await))
}

/// Whenever a field of a session is set, all of them are looked at: with one session for all keys it would be slower and slower.
const KEYS_OF_A_SESSION: u64 = 16;

fn in_session(mut request: Request<Body>, n: u64) -> Request<Body> {
    // 16 bytes in base64.
    let cookie = HeaderValue::from_str(&format!("session={n:021}A")).unwrap();
    request.headers_mut().insert(header::COOKIE, cookie);
    request
}

/// What each does not do while it is measured, as read in its source, of the version in `Cargo.toml`.
pub(crate) const LEFT_OUT: [(&str, &str); 3] = [
    (
        "this one",
        "no effect is fenced here, and none is in one transaction with its outcome. In process nothing survives a restart.",
    ),
    (
        "idempotent 2.0",
        "it claims, fences what it records by a token, renews and outlives its client, as this one does. It does not compare bodies by \
         their meaning, nor media types, nor by a cryptographic hash (xxHash3): a retry that is spelt anew is refused. Nothing is ever \
         in doubt: what a crash, a panic or a lost lease left is run again once the lease has ended; a claim whose reply was lost holds \
         its key so long. Whatever the handler answers is final, a 500 too, and `Set-Cookie` is replayed. No tombstones, no waiting \
         duplicates, and in process no bound.",
    ),
    (
        "axum-idempotent 0.6",
        "it looks, runs and stores: there is no claim, so duplicates that come together all run, and no conflict is there to be \
         measured. No token, no lease; the handler is dropped with its client; without its store, or without a session, everything runs \
         unprotected. With a key from a header, as here, the request is not compared at all. Its store evicts, at 10000 sessions by \
         default. Its Redis store needs Redis 7.4 and is left out here.",
    ),
];
