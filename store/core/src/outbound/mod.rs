//! Calls to external APIs that are not idempotent.
//!
//! The effect is on somebody else's machine, cannot be undone, and the other side knows no fencing token: nobody can make that exactly once.
//! What can be had: never twice by accident, never silently lost, and an outcome that nobody knows is called unknown until something
//! that knows resolves it.
//!
//! ```
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use idempotency::outbound::{CallEnd, Decision, Guard, Policy, Provider, Step, StepError};
//! use idempotency::{Engine, Fingerprint, Key, Operation, ScopeId, Settings, WorkError, run};
//! use idempotency_memory::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let bank = Provider::new("bank", Duration::from_secs(5))?.refuses([402]);
//! let guard = Guard::new(store.clone(), bank, Policy::Hold)?;
//! let engine = Engine::new(store, Settings::default());
//!
//! let payout = Operation::new(ScopeId::new(["tenant-a"]), Key::parse("payout-42")?, Fingerprint::of(["10 EUR"]));
//! let transfer = Step::new("transfer", Fingerprint::of(["10 EUR to DE02"]))?;
//! let paid = run(&engine, &payout, async |attempt| {
//!     let outcome = guard.call(&attempt, &transfer, |call| async move {
//!         // Send it with `call.reference()`, and say how it ended.
//!         CallEnd::Done(Bytes::from(format!("transfer {}", call.reference())))
//!     });
//!     match outcome.await?.decision {
//!         Decision::Done(receipt) => Ok::<_, WorkError<StepError>>(receipt.len()),
//!         Decision::Refused(_) => Ok(0),
//!     }
//! });
//! assert!(paid.await?.value > 0);
//! # Ok(())
//! # }
//! ```
//!
//! The rules:
//!
//! 1. **Intent before, outcome after.** A call is on record before its first byte leaves, under a [`StepLabel`] that the handler
//!    gives it. Step and record outlive the attempt: a handler that is run again gets the decisions of its finished steps and goes on
//!    with the first unfinished one. The same label with another request is refused.
//! 2. **Only what is certain counts as not done** ([`CallEnd`]): nothing was sent, or a refusal that the provider documents.
//!    Everything else is unknown, and no unknown outcome is recorded as a failure or called again by itself.
//! 3. **The policy is chosen by name** ([`Policy`]), there is no default.
//! 4. **The provider's key is derived** from record and label, the same on every call and after every restart, never less than 128 bits,
//!    and is sent only while the provider's own window is open ([`KeySupport`]).
//! 5. **A successor waits** for its predecessor's deadline and a quiet period, and a call begins only when the attempt's lease outlasts
//!    it.
//! 6. **Evidence is kept.** Reports of calls are not fenced: a late success of a superseded worker is logged, makes an unknown step
//!    succeeded, and contradicts aloud (an error in the log, `idempotency_outbound_alarms_total`).
//! 7. **Under [`Recovery::Hold`](crate::Recovery::Hold)** a release is in doubt instead while a step has begun that is not known to have
//!    failed.
//!
//! # What a paused process can still do
//!
//! A process can be stopped between its last look at the clock and the first byte that it sends, for any time: longer than deadline,
//! quiet period and settle time together. Under [`Policy::Hold`] this is harmless, since nobody else ever calls. Under
//! [`Policy::Reconcile`] the provider may say "it did not happen", somebody calls again, and then the first process wakes and sends: **that is not
//! at most once**. Under [`Policy::Retry`] both calls carry one key, and it is the provider that has to make them one effect, for as long as it
//! remembers the key. The same is true of the bytes that an HTTP client's own task still writes after its call was given up, and of
//! a client that sends a request again by itself: switch that off.
//!
//! Make calls outside of a transaction: rolling it back takes back no call, and in SQLite, where it keeps every other writer out, the
//! call could not even be recorded.
//!
//! # Resolving
//!
//! [`Steps::list_steps`] finds steps whose outcome is unknown, [`Steps::inspect_step`] shows one with all of its calls, late reports of
//! superseded workers included, and [`Steps::resolve_step`] settles it, if its last call still is the one that was looked at. Resolving a *record*
//! in doubt does not resolve its steps: a handler that then runs again meets them as they are.

mod asking;
mod boxed;
mod call;
mod contract;
mod error;
mod guard;
mod key;
mod label;
mod open;
mod policy;
mod presets;
pub mod protocol;
mod provider;
mod record;
mod reporting;

pub use boxed::BoxSteps;
pub use call::{Call, CallEnd};
pub use contract::{
    Again, Alarm, BeginCall, Begun, EndCall, Ended, ListSteps, ResolveStep, StepEntry, StepPage, StepResolved,
    StepStanding, StepState, StepVerdict, StepView, Steps,
};
pub use error::{Decided, Decision, InvalidPolicy, StepError, StepOutcome};
pub use guard::{Guard, Step};
pub use key::{Anchor, InvalidProvider, KeyEncoding, KeyPlace, KeySupport, StepKey, Window};
pub use label::{InvalidStepLabel, StepLabel};
pub(crate) use open::OpenSteps;
pub use policy::{Found, Inquiry, Policy, Reconcile, Retry};
pub use provider::Provider;
pub use record::{CallRecord, LONGEST_RESULT, LoggedEnd, StepRecord, StepResult, StepStored};
