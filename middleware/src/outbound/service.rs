//! The client that the layer makes.

use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use idempotency::outbound::{Decision, Guard, StepError, StepOutcome, Steps};
use tower_service::Service;

use super::error::OutboundError;
use super::exchange::Exchange;
use super::future::OutboundFuture;
use super::layer::Rules;
use super::step::GuardedStep;
use crate::body::{BoxError, ResponseBody};
use crate::stored::StoredResponse;

/// A client with an [`OutboundLayer`](super::OutboundLayer) around it.
pub struct Outbound<S, St> {
    inner: S,
    guard: Guard<St>,
    rules: Rules,
}

/// In the extensions of a response that comes from the record of its step: nothing was called now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepReplayed;

impl<S, St> Outbound<S, St> {
    pub(super) fn new(inner: S, guard: Guard<St>, rules: Rules) -> Self {
        Self { inner, guard, rules }
    }
}

impl<S, St, ReqBody, ResBody> Service<Request<ReqBody>> for Outbound<S, St>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send + 'static,
    St: Steps,
    ReqBody: Body + From<Bytes> + Send + 'static,
    ReqBody::Data: Send,
    ReqBody::Error: Into<BoxError>,
    ResBody: Body + Send + 'static,
    ResBody::Data: Send,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = OutboundError;
    type Future = OutboundFuture<S::Future, ResBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), OutboundError>> {
        self.inner.poll_ready(cx).map_err(|error| OutboundError::NotReady(error.into()))
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let Some(step) = request.extensions_mut().remove::<GuardedStep>() else {
            if self.rules.passes(request.method()) {
                let method = request.method().clone();
                return OutboundFuture::pass(self.inner.call(request), method);
            }
            return OutboundFuture::refuse(OutboundError::NoStep);
        };
        // The clone may not be ready; the client that was polled ready must be the one that is called.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let (guard, rules) = (self.guard.clone(), self.rules.clone());
        OutboundFuture::guarded(async move {
            let response = guarded(guard, rules, ready, step, request).await?;
            Ok(response.map(ResponseBody::whole))
        })
    }
}

async fn guarded<S, St, ReqBody, ResBody>(
    guard: Guard<St>,
    rules: Rules,
    ready: S,
    guarded: GuardedStep,
    request: Request<ReqBody>,
) -> Result<Response<Bytes>, OutboundError>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S::Error: Into<BoxError>,
    St: Steps,
    ReqBody: Body + From<Bytes>,
    ReqBody::Error: Into<BoxError>,
    ResBody: Body,
    ResBody::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let body = read(body, rules.max_request).await?;
    let step = guarded.identify(&parts, &body, &rules.headers).map_err(|_| OutboundError::NoStep)?;
    let exchange = Exchange::new(parts, body, guard.provider().clone(), rules)?;
    let mut client = ready;
    let outcome = guard.call(guarded.attempt(), &step, |call| {
        // The one that is ready makes the first call, and its clones the others.
        let clone = client.clone();
        exchange.make(std::mem::replace(&mut client, clone), call)
    });
    let outcome = outcome.await;
    let (error, is_cut) = exchange.remarks();
    match (outcome, error) {
        (Ok(StepOutcome { replayed: false, decision }), _) if is_cut => {
            Err(StepError::ResultNotKept { step: guarded.label().clone(), decided: decision.decided() }.into())
        }
        (Ok(outcome), _) => response(outcome, &guarded),
        (Err(step), Some(source)) => Err(OutboundError::Client { step, source }),
        (Err(step), None) => Err(step.into()),
    }
}

/// The response is always the one of the record, so that it is the same however often it is asked for.
fn response(outcome: StepOutcome, step: &GuardedStep) -> Result<Response<Bytes>, OutboundError> {
    let decided = outcome.decision.decided();
    let (Decision::Done(result) | Decision::Refused(result)) = outcome.decision;
    let stored = StoredResponse::decode(&result)
        .map_err(|_| OutboundError::ResultUnreadable { step: step.label().clone(), decided })?;
    let mut response = stored.into_response();
    if outcome.replayed {
        response.extensions_mut().insert(StepReplayed);
    }
    Ok(response)
}

/// Reads a request's body, so that every call sends the same.
async fn read<B>(body: B, limit: usize) -> Result<Bytes, OutboundError>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(OutboundError::RequestTooLarge { limit }),
        Err(error) => Err(OutboundError::RequestUnreadable(error)),
    }
}

impl<S: Clone, St> Clone for Outbound<S, St> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), guard: self.guard.clone(), rules: self.rules.clone() }
    }
}

impl<S: fmt::Debug, St> fmt::Debug for Outbound<S, St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("inner", &self.inner).field("guard", &self.guard).finish_non_exhaustive()
    }
}
