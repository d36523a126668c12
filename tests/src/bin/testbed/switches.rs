//! Faults and answers that a request switches on in its query.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse as _, Response};
use rustix::process::{Signal, getpid, kill_process};
use serde::Deserialize;
use tower_idempotency::Verdict;

use crate::answer::{self, Kind};
use crate::problem::Problem;

/// The query of a route with switches. What it does not name is off.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Switches {
    /// Milliseconds to sleep before the effect.
    before: u64,
    /// Milliseconds to sleep after it.
    after: u64,
    /// Milliseconds to block the worker thread before the effect.
    block: u64,
    status_before: Option<u16>,
    status: Option<u16>,
    panic: Option<PanicAt>,
    abort: Option<AbortAt>,
    kind: Kind,
    size: usize,
    headers: u8,
    verdict: Option<VerdictSwitch>,
    /// What becomes of an unknown outcome of a call to the bank. Left out, nothing that could happen twice.
    pub(crate) policy: PolicySwitch,
    /// Milliseconds between reading a counter and writing it.
    pub(crate) think: Option<u64>,
    /// Set by the request's attempt, never by its query.
    #[serde(skip)]
    pub(crate) is_a_retry: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum PanicAt {
    Before,
    After,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum AbortAt {
    Before,
    After,
    Committed,
    /// A call to the bank is on record, and nothing of it is sent.
    Calling,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum VerdictSwitch {
    Record,
    Release,
    InDoubt,
}

/// [`Policy`](idempotency::outbound::Policy) in a query.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PolicySwitch {
    #[default]
    Hold,
    Retry,
    Reconcile,
}

impl Switches {
    /// The same if every value is one that a response can have.
    pub(crate) fn checked(self) -> Result<Self, Problem> {
        let final_status = |status: Option<u16>| status.is_none_or(|status| (200..=999).contains(&status));
        if !final_status(self.status) || !final_status(self.status_before) {
            return Err(Problem::bad_request("A status is a number from 200 to 999."));
        }
        if self.size > LARGEST {
            return Err(Problem::bad_request(format!("A size is at most {LARGEST} bytes.")));
        }
        Ok(self)
    }

    /// Everything that lies before the effect. With an answer there is none.
    pub(crate) async fn before_effect(&self) -> Option<Response> {
        if self.block > 0 {
            std::thread::sleep(Duration::from_millis(self.block));
        }
        pause(self.before).await;
        if self.panic == Some(PanicAt::Before) {
            panic!("asked to panic before the effect");
        }
        self.abort_if(AbortAt::Before);
        let status = StatusCode::from_u16(self.status_before?).ok()?;
        let problem = Problem::new(status, "no-effect", "Asked to answer without an effect.");
        Some(self.finish(problem.into_response()))
    }

    /// Everything between the effect and its commit, where there is one, and after the effect where there is none.
    pub(crate) async fn after_effect(&self) {
        pause(self.after).await;
        if self.panic == Some(PanicAt::After) {
            panic!("asked to panic after the effect");
        }
        self.abort_if(AbortAt::After);
    }

    /// Everything between the effect's commit and the answer. The bank's commit and its record, where it is the bank's.
    pub(crate) fn after_commit(&self) {
        self.abort_if(AbortAt::Committed);
    }

    /// Everything between the record of a call to the bank and its first byte.
    pub(crate) fn before_call(&self) {
        self.abort_if(AbortAt::Calling);
    }

    /// The answer with this JSON, or of the kind that was asked for.
    pub(crate) fn answer(&self, status: StatusCode, location: Option<&str>, json: &impl serde::Serialize) -> Response {
        let mut response = answer::respond(self.kind, status, json, self.size);
        if let Some(status) = self.status.and_then(|status| StatusCode::from_u16(status).ok()) {
            *response.status_mut() = status;
        }
        if let Some(location) = location.and_then(|location| location.parse().ok()) {
            response.headers_mut().insert(LOCATION, location);
        }
        self.finish(response)
    }

    /// Adds what every answer of the handler gets.
    fn finish(&self, mut response: Response) -> Response {
        if self.headers != 0 {
            answer::add_headers(response.headers_mut());
        }
        if let Some(verdict) = self.verdict {
            response.extensions_mut().insert(match verdict {
                VerdictSwitch::Record => Verdict::Record,
                VerdictSwitch::Release => Verdict::Release,
                VerdictSwitch::InDoubt => Verdict::InDoubt,
            });
        }
        response
    }

    /// A later attempt lives: the retry of a request is the same request, so it has the same switches.
    fn abort_if(&self, at: AbortAt) {
        if self.abort == Some(at) && !self.is_a_retry {
            // As the kernel ends a process that is out of memory: nothing of it runs any more.
            let _ = kill_process(getpid(), Signal::KILL);
            std::process::abort();
        }
    }
}

async fn pause(millis: u64) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

/// The largest body that is made.
const LARGEST: usize = 64 * 1024 * 1024;
