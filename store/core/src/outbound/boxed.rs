//! Steps in a store chosen at run time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::contract::{
    BeginCall, Begun, EndCall, Ended, ListSteps, ResolveStep, StepPage, StepResolved, StepView, Steps,
};
use super::label::StepLabel;
use crate::{RecordId, StoreError};

/// Any [`Steps`] behind one type, for a backend chosen at run time from a URL. Costs one allocation an operation. Clones
/// share the steps.
#[derive(Clone)]
pub struct BoxSteps(Arc<dyn ErasedSteps>);

impl BoxSteps {
    /// Boxes the steps of a store.
    pub fn new<S: Steps>(steps: S) -> Self {
        Self(Arc::new(steps))
    }
}

impl fmt::Debug for BoxSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxSteps")
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The dyn compatible twin of [`Steps`]. Its methods have other names, or calls would be ambiguous.
trait ErasedSteps: Send + Sync {
    fn begin_call_boxed<'a>(&'a self, ask: &'a BeginCall) -> Boxed<'a, Begun>;
    fn end_call_boxed<'a>(&'a self, report: &'a EndCall) -> Boxed<'a, Ended>;
    fn resolve_step_boxed<'a>(&'a self, resolve: &'a ResolveStep) -> Boxed<'a, StepResolved>;
    fn inspect_step_boxed<'a>(&'a self, id: &'a RecordId, label: &'a StepLabel) -> Boxed<'a, Option<StepView>>;
    fn list_steps_boxed<'a>(&'a self, list: &'a ListSteps) -> Boxed<'a, StepPage>;
}

impl<S: Steps> ErasedSteps for S {
    fn begin_call_boxed<'a>(&'a self, ask: &'a BeginCall) -> Boxed<'a, Begun> {
        Box::pin(self.begin_call(ask))
    }
    fn end_call_boxed<'a>(&'a self, report: &'a EndCall) -> Boxed<'a, Ended> {
        Box::pin(self.end_call(report))
    }
    fn resolve_step_boxed<'a>(&'a self, resolve: &'a ResolveStep) -> Boxed<'a, StepResolved> {
        Box::pin(self.resolve_step(resolve))
    }
    fn inspect_step_boxed<'a>(&'a self, id: &'a RecordId, label: &'a StepLabel) -> Boxed<'a, Option<StepView>> {
        Box::pin(self.inspect_step(id, label))
    }
    fn list_steps_boxed<'a>(&'a self, list: &'a ListSteps) -> Boxed<'a, StepPage> {
        Box::pin(self.list_steps(list))
    }
}

impl Steps for BoxSteps {
    async fn begin_call(&self, ask: &BeginCall) -> Result<Begun, StoreError> {
        self.0.begin_call_boxed(ask).await
    }
    async fn end_call(&self, report: &EndCall) -> Result<Ended, StoreError> {
        self.0.end_call_boxed(report).await
    }
    async fn resolve_step(&self, resolve: &ResolveStep) -> Result<StepResolved, StoreError> {
        self.0.resolve_step_boxed(resolve).await
    }
    async fn inspect_step(&self, id: &RecordId, label: &StepLabel) -> Result<Option<StepView>, StoreError> {
        self.0.inspect_step_boxed(id, label).await
    }
    async fn list_steps(&self, list: &ListSteps) -> Result<StepPage, StoreError> {
        self.0.list_steps_boxed(list).await
    }
}
