//! What goes wrong on the other side of a network.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;

/// What happens to the next request, and then no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// The connection breaks before anything was done.
    Reset,
    /// It was done, and the connection breaks before that is said.
    DoneThenReset,
    /// No answer comes, and nothing was done.
    Stall,
    /// It was done, and no answer comes.
    DoneThenStall,
    /// It was done, and something in between answers for it.
    DoneThen502,
}

impl Fault {
    pub(crate) const fn is_done(self) -> bool {
        !matches!(self, Self::Reset | Self::Stall)
    }

    /// What the caller gets in place of `answer`.
    pub(crate) async fn answer(self, answer: Response) -> Response {
        match self {
            Self::None => answer,
            Self::Reset | Self::DoneThenReset => {
                // A body that fails takes its connection along.
                let broken = futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("reset")) });
                Body::from_stream(broken).into_response()
            }
            Self::Stall | Self::DoneThenStall => std::future::pending().await,
            Self::DoneThen502 => StatusCode::BAD_GATEWAY.into_response(),
        }
    }
}

/// What one side has in its books, and what goes wrong there next.
#[derive(Debug)]
pub(crate) struct Books<T>(Arc<Mutex<(Vec<T>, Fault)>>);

impl<T> Books<T> {
    pub(crate) fn fail_next(&self, fault: Fault) {
        self.lock().1 = fault;
    }

    pub(crate) fn next_fault(&self) -> Fault {
        std::mem::take(&mut self.lock().1)
    }

    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut Vec<T>) -> R) -> R {
        look(&mut self.lock().0)
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<T>, Fault)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Books<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Books<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}
