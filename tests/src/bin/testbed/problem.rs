//! What the testbed itself refuses, as `application/problem+json`.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use idempotency_sqlx::fence::FenceError;
use serde::Serialize;
use tower_idempotency::Refusal;

/// A problem of the testbed's own. Its type's last segment is `kind`.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    kind: &'static str,
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, kind: &'static str, detail: impl ToString) -> Self {
        Self { status, kind, detail: detail.to_string() }
    }

    /// The request cannot be understood. Nothing was done.
    pub(crate) fn bad_request(detail: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// The testbed was started without what the route needs.
    pub(crate) fn not_served(detail: &str) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "not-implemented", detail)
    }

    /// The route needs store and ledger in one database.
    pub(crate) fn not_in_one_database() -> Self {
        let detail = "The effect and its outcome need one database: give --store and --ledger the same URL.";
        Self::not_served(detail)
    }

    /// The store could not say. Asking again may help.
    pub(crate) fn store(error: &dyn std::error::Error) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "store-unavailable", error)
    }

    /// The ledger could not say whether the effect is written.
    pub(crate) fn ledger(error: &sqlx::Error) -> Self {
        tracing::error!(error = error as &dyn std::error::Error, "the ledger failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "ledger-failed", error)
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

#[derive(Serialize)]
struct Members<'p> {
    r#type: String,
    title: &'p str,
    status: u16,
    detail: &'p str,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let members = Members {
            r#type: format!("urn:testbed:problem:{}", self.kind),
            title: self.status.canonical_reason().unwrap_or("Problem"),
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        let mut response = (self.status, axum::Json(members)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Why a route with a lease or a fence has no result: a problem of the testbed's own, or what the layers would say.
#[derive(Debug)]
pub(crate) enum Answer {
    Problem(Problem),
    Refusal(Refusal),
}

impl Answer {
    /// Somebody else holds the lease. Nothing was written.
    pub(crate) fn lease_held(lease_left: Duration) -> Self {
        Self::Refusal(Refusal::lease_held(lease_left))
    }

    /// The fence did not open, or what was opened was not committed.
    pub(crate) fn refused(refused: &FenceError) -> Self {
        match *refused {
            FenceError::Superseded { current } | FenceError::BelowWatermark { least: current } => {
                Self::Refusal(Refusal::FencingTokenSuperseded { current })
            }
            FenceError::FromTheFuture | FenceError::SourceMismatch { .. } => {
                Self::Problem(Problem::new(StatusCode::BAD_REQUEST, "fencing-token-invalid", refused))
            }
            _ => Self::Problem(Problem::store(refused)),
        }
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::Refusal(refusal) => refusal.into_response(),
        }
    }
}
