//! The layer and its settings.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Method, StatusCode, Uri};
use idempotency::time::InvalidDuration;
use idempotency::trace::Trace;
use idempotency::{AgeLimit, Engine, InFlight, KeyRules, Lease, Life, Recovery, Settings, Store, Windows};
use tower_layer::Layer;

use crate::problem::Problems;
use crate::{Description, FingerprintRule, Idempotency, KeyFormat, RecordPolicy, Responder, Scope, SetCookie};

/// Runs a request with an `Idempotency-Key` once and replays its recorded response to duplicates.
///
/// Every setter states its default and its risk. Mount it per route or per router, inside authentication and outside the
/// handler; the crate's front page gives the whole order of layers.
#[must_use = "a layer does nothing until it is put around a service"]
pub struct IdempotencyLayer<St> {
    engine: Engine<St>,
    pub(crate) config: Arc<Config>,
}

impl<St> Clone for IdempotencyLayer<St> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), config: Arc::clone(&self.config) }
    }
}

impl<St> fmt::Debug for IdempotencyLayer<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("config", &self.config).field("engine", &self.engine).finish()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) scope: Scope,
    pub(crate) methods: Vec<Method>,
    pub(crate) key_source: KeySource,
    pub(crate) key_required: KeyRequired,
    pub(crate) key_rules: KeyRules,
    pub(crate) key_format: KeyFormat,
    /// Kept here, so that settings set later do not lose it.
    key_age: Option<AgeLimit>,
    pub(crate) fingerprint: FingerprintRule,
    pub(crate) record: RecordPolicy,
    pub(crate) set_cookie: SetCookie,
    pub(crate) max_request: usize,
    pub(crate) max_response: usize,
    pub(crate) outage: Outage,
    pub(crate) replay_header: Option<HeaderName>,
    pub(crate) not_kept_status: StatusCode,
    pub(crate) problems: Problems,
    pub(crate) docs: Option<Uri>,
    pub(crate) traced: bool,
}

/// Whether a request must carry a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyRequired {
    /// Without a key a request passes through untouched, at no cost.
    #[default]
    Optional,
    /// Without a key a request is refused with 400.
    Required,
}

/// What happens while the store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// Keyed requests are refused with 503; nothing runs.
    #[default]
    Refuse,
    /// Keyed requests run **without protection**, and their responses say so in `Idempotency-Unprotected: true`. A retry that
    /// meets the outage runs twice. Right only where a repeat is harmless.
    Pass,
}

/// Where the key is found.
#[derive(Clone)]
pub(crate) enum KeySource {
    Header(HeaderName),
    Function(Arc<KeyFunction>),
}

pub(crate) type KeyFunction = dyn Fn(&Parts, &Bytes) -> Option<String> + Send + Sync;

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header {name}"),
            Self::Function(_) => f.write_str("function"),
        }
    }
}

impl<St: Store> IdempotencyLayer<St> {
    /// A layer over `store` with the default settings. The scope is an argument on purpose: see [`Scope`]. End its setters with
    /// [`checked`](Self::checked).
    pub fn new(store: St, scope: Scope) -> Self {
        Self::with_engine(Engine::new(store, Settings::default()), scope)
    }

    /// A layer over an engine, to share its store and its [`drain`](Engine::drain) with other layers and with
    /// [`idempotency::run`].
    pub fn with_engine(engine: Engine<St>, scope: Scope) -> Self {
        let config = Config {
            scope,
            methods: vec![Method::POST, Method::PATCH],
            key_source: KeySource::Header(HeaderName::from_static("idempotency-key")),
            key_required: KeyRequired::Optional,
            key_rules: KeyRules::default(),
            key_format: KeyFormat::Opaque,
            key_age: None,
            fingerprint: FingerprintRule::default(),
            record: RecordPolicy::Default,
            set_cookie: SetCookie::NeverStored,
            max_request: 2 * 1024 * 1024,
            max_response: 256 * 1024,
            outage: Outage::Refuse,
            replay_header: Some(HeaderName::from_static("idempotent-replayed")),
            not_kept_status: StatusCode::GONE,
            problems: Problems::default(),
            docs: None,
            traced: false,
        };
        Self { engine, config: Arc::new(config) }
    }

    /// The engine: its store, its settings, and [`Engine::drain`] for a graceful shutdown.
    #[must_use]
    pub fn engine(&self) -> &Engine<St> {
        &self.engine
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Lease, life settings, max run, store timeout and in-flight policy at once; all of them have setters of their own here.
    pub fn settings(self, settings: Settings) -> Self {
        let life = settings.life_setting();
        let settings = match (life.age(), &self.config.key_age) {
            (None, Some(age)) => {
                let (windows, age) = (*life.windows(), Some(age.clone()));
                let life = Life::from_stored(life.recovery(), windows.response(), windows.tombstone(), age);
                settings.life(life.with_windows(windows))
            }
            _ => settings,
        };
        Self { engine: self.engine.with_settings(settings), ..self }
    }

    /// This layer, if lease, transaction limit, windows and age limit fit together, in whatever order they were set. **Call it last**: it is the
    /// error at construction. A layer that is used without only complains in the log, once, when it grants its first claim.
    ///
    /// # Errors
    /// [`InvalidDuration::TombstoneWindow`] when the tombstone window does not cover the lease, the
    /// [transaction limit](Settings::transaction_limit) where one is set, or, with a
    /// [`key_format`](Self::key_format), maximum age, drift and lease.
    pub fn checked(self) -> Result<Self, InvalidDuration> {
        self.engine.settings().clone().checked()?;
        Ok(self)
    }

    fn change_settings(self, change: impl FnOnce(Settings) -> Settings) -> Self {
        let settings = change(self.engine.settings().clone());
        self.settings(settings)
    }

    /// How long a claim is held without renewal. Default 30 s. Too short for the store's hiccups, live attempts lose their claims;
    /// long, a crashed attempt is noticed late.
    pub fn lease(self, lease: Lease) -> Self {
        self.change_settings(|s| s.lease(lease))
    }

    /// How long answers, and the fact of execution, are remembered. Default 24 h and 30 d. A duplicate that comes later executes
    /// again. With [`Windows::renewed_up_to`] late duplicates lengthen the second of them, at the price of a write each.
    pub fn windows(self, windows: Windows) -> Self {
        self.change_life(|life| life.with_windows(windows))
    }

    /// What becomes of an attempt that ended without a known outcome. Default [`Recovery::Hold`]. With [`Recovery::Rerun`] the
    /// handler runs again: right only where a repeat is a no-op.
    pub fn recovery(self, recovery: Recovery) -> Self {
        self.change_life(|life| life.with_recovery(recovery))
    }

    fn change_life(self, change: impl FnOnce(Life) -> Life) -> Self {
        self.change_settings(|settings| {
            let life = change(settings.life_setting().clone());
            settings.life(life)
        })
    }

    /// Renews a running handler's lease for at most so long. Default 15 min.
    ///
    /// # Errors
    /// [`InvalidDuration`] below 1 ms or above 36500 days.
    pub fn max_run(self, max_run: Duration) -> Result<Self, InvalidDuration> {
        let settings = self.engine.settings().clone().max_run(max_run)?;
        Ok(self.settings(settings))
    }

    /// How long one answer of the store is waited for. Default 1 s.
    ///
    /// # Errors
    /// [`InvalidDuration`] below 1 ms or above 36500 days.
    pub fn store_timeout(self, timeout: Duration) -> Result<Self, InvalidDuration> {
        let settings = self.engine.settings().clone().store_timeout(timeout)?;
        Ok(self.settings(settings))
    }

    /// What a duplicate does while the first is running. Default: 409 at once. A bounded wait is kinder to clients that do not retry on
    /// 409, and holds their connections meanwhile; see [`max_waiting`](Self::max_waiting).
    pub fn in_flight(self, in_flight: InFlight) -> Self {
        self.change_settings(|s| s.in_flight(in_flight))
    }

    /// How many duplicates wait at once in this process, over all layers that share an engine. Default 1000; see
    /// [`Settings::max_waiting`]. One more gets 409 `request-in-flight` with `Retry-After`, as if none waited. Each that waits holds its connection and its
    /// body, so `max_waiting` times [`max_request`](Self::max_request) bytes bound what a flood of duplicates can take.
    pub fn max_waiting(self, max_waiting: usize) -> Self {
        self.change_settings(|s| s.max_waiting(max_waiting))
    }

    /// Writes what arrives, and when, into a [trace](idempotency::trace) for the window tuner: no key, no scope, no path. In an axum router the
    /// route is the method and the pattern that matched, else the name that the trace was given. Default: none.
    pub fn trace(self, trace: Trace) -> Self {
        self.change_settings(|s| s.trace(trace)).with(|config| config.traced = true)
    }

    /// The methods that are protected. Default POST and PATCH; PUT and DELETE may be added. GET, HEAD, OPTIONS, TRACE and CONNECT
    /// always pass through and are ignored here.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        const NEVER: [Method; 5] = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT];
        let methods = methods.into_iter().filter(|method| !NEVER.contains(method)).collect();
        self.with(|config| config.methods = methods)
    }

    /// Reads the key from another header. Default `Idempotency-Key`.
    pub fn key_header(self, name: HeaderName) -> Self {
        self.with(|config| config.key_source = KeySource::Header(name))
    }

    /// Finds the key by a function of the head and the body: for webhooks, whose id is in another header or in the body, and for
    /// business keys. Every request's body is then read before anything else. In this mode a duplicate whose answer is no
    /// longer kept gets the recorded status with an empty body, because webhook senders disable an endpoint that answers 410.
    pub fn key_from_fn(self, find: impl Fn(&Parts, &Bytes) -> Option<String> + Send + Sync + 'static) -> Self {
        self.with(|config| config.key_source = KeySource::Function(Arc::new(find)))
    }

    /// Whether a request without a key is refused. Default [`KeyRequired::Optional`].
    pub fn key_required(self, required: KeyRequired) -> Self {
        self.with(|config| config.key_required = required)
    }

    /// What a key may look like. Default 1 to 255 visible ASCII characters.
    pub fn key_rules(self, rules: KeyRules) -> Self {
        self.with(|config| config.key_rules = rules)
    }

    /// Takes only time-ordered keys of this format, and refuses those outside the age limit that no record answers for: such a key is
    /// never executed twice, however late it comes. Default: opaque keys of any age. Where the route took those until now, that is promised
    /// of keys dated after the change plus the drift, or with a maximum age that fits the tombstone window of before: see [`AgeLimit`].
    ///
    /// # Errors
    /// [`InvalidDuration`] when the tombstone window does not cover maximum age, drift and lease. Set lease and windows first.
    pub fn key_format(self, format: KeyFormat, age: AgeLimit) -> Result<Self, InvalidDuration> {
        let settings = self.engine.settings().clone();
        let life = settings.life_setting().clone().with_age(age.clone(), settings.lease_setting())?;
        let layer = self.with(|config| {
            config.key_format = format;
            config.key_age = Some(age);
        });
        Ok(layer.settings(settings.life(life)))
    }

    /// What a retry must repeat. Default: method, path, query, media type and canonical body.
    pub fn fingerprint(self, rule: FingerprintRule) -> Self {
        self.with(|config| config.fingerprint = rule)
    }

    /// Which answers are recorded, released or in doubt. Default [`RecordPolicy::Default`]. A handler overrules it by a
    /// [`Verdict`](crate::Verdict) in its response's extensions.
    pub fn record(self, policy: RecordPolicy) -> Self {
        self.with(|config| config.record = policy)
    }

    /// Whether `Set-Cookie` is stored and replayed. Default: dropped, because it would hand one session to whoever retries.
    pub fn set_cookie(self, set_cookie: SetCookie) -> Self {
        self.with(|config| config.set_cookie = set_cookie)
    }

    /// The longest request body in bytes that is read; a longer one is refused with 413. Default 2 MiB, as axum's own. Each keyed request
    /// holds its body in memory.
    pub fn max_request(self, bytes: usize) -> Self {
        self.with(|config| config.max_request = bytes)
    }

    /// The longest response body in bytes that is stored. Default 256 KiB. A longer one is streamed through, and its duplicate is told that it was
    /// executed.
    pub fn max_response(self, bytes: usize) -> Self {
        self.with(|config| config.max_response = bytes)
    }

    /// What happens while the store cannot be reached. Default [`Outage::Refuse`].
    pub fn outage(self, outage: Outage) -> Self {
        self.with(|config| config.outage = outage)
    }

    /// The header that marks a replay, with the value `true`. Default `Idempotent-Replayed`; `None` for no mark.
    pub fn replay_header(self, name: Option<HeaderName>) -> Self {
        self.with(|config| config.replay_header = name)
    }

    /// The status for a duplicate whose answer is no longer kept. Default 410.
    pub fn not_kept_status(self, status: StatusCode) -> Self {
        self.with(|config| config.not_kept_status = status)
    }

    /// What the `type` of a problem starts with. Default `urn:tower-idempotency:problem:`.
    pub fn problem_base(self, base: impl Into<Cow<'static, str>>) -> Self {
        self.with(|config| config.problems.base(base))
    }

    /// Where the rules of this endpoint are documented; sent as `Link: <…>; rel="describedby"` with every refusal. Default none.
    pub fn docs(self, url: Uri) -> Self {
        self.with(|config| {
            config.problems.docs(&url);
            config.docs = Some(url);
        })
    }

    /// Shapes refusals in another way than problem+json. The reason is in the response's extensions in any case.
    pub fn responder(self, responder: Responder) -> Self {
        self.with(|config| config.problems.responder(responder))
    }

    /// The rules of this layer as one serialisable value, to be published: the Internet draft asks a server to.
    #[must_use]
    pub fn describe(&self) -> Description {
        Description::of(&self.config, self.engine.settings())
    }
}

impl<S, St: Store> Layer<S> for IdempotencyLayer<St> {
    type Service = Idempotency<S, St>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotency::new(inner, self.engine.clone(), Arc::clone(&self.config))
    }
}
