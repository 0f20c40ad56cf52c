//! The tool trait in its forms: typed, for those who write tools, and erased, for those who run them.

use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use open_agent_model::{Access, BoxFuture, Effect, RawJson, ToolSpec};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::lenient::read_input;
use crate::schema::schema_of;
use crate::{ToolCx, ToolError, ToolOutput};

/// A tool with a typed input.
pub trait Tool: Send + Sync + 'static {
    /// Its name for the model: `[A-Za-z0-9_-]{1,64}`.
    const NAME: &'static str;

    /// What the model passes; its doc comments become the schema's descriptions.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;

    /// What it does and when to use it, for the model.
    fn description(&self) -> String;

    /// What the call will touch. It is ruled on this, so name everything.
    fn access(&self, input: &Self::Input, cx: &ToolCx) -> Vec<Access>;

    /// Whether the call may run again after a crash.
    fn effect(&self, _input: &Self::Input) -> Effect {
        Effect::Unsafe
    }

    /// Does it.
    fn call(
        &self,
        input: Self::Input,
        cx: &ToolCx,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;
}

/// A tool with a typed input that finds something out before its call is ruled and needs that to run it, above all where
/// a path leads: a path that was looked up twice could lead to two places.
///
/// Every [`Tool`] is one, whose plan is its input.
pub trait PlannedTool: Send + Sync + 'static {
    /// Its name for the model: `[A-Za-z0-9_-]{1,64}`.
    const NAME: &'static str;

    /// What the model passes; its doc comments become the schema's descriptions.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;

    /// What planning a call found out.
    type Plan: Send + 'static;

    /// What it does and when to use it, for the model.
    fn description(&self) -> String;

    /// Says what the call will touch and keeps what is needed to run it. Changes nothing and reads no contents.
    fn plan(&self, input: Self::Input, cx: &ToolCx) -> Planned<Self::Plan>;

    /// Runs the call as it was planned.
    fn call(
        &self,
        plan: Self::Plan,
        cx: &ToolCx,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;
}

/// A planned call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned<P> {
    /// What it will touch. It is ruled on this, so everything is named.
    pub access: Vec<Access>,
    /// Whether it may run again after a crash.
    pub effect: Effect,
    /// What it needs to run.
    pub plan: P,
}

impl<T: Tool> PlannedTool for T {
    const NAME: &'static str = T::NAME;
    type Input = T::Input;
    type Plan = T::Input;

    fn description(&self) -> String {
        Tool::description(self)
    }

    fn plan(&self, input: T::Input, cx: &ToolCx) -> Planned<T::Input> {
        Planned { access: self.access(&input, cx), effect: self.effect(&input), plan: input }
    }

    fn call(
        &self,
        plan: T::Input,
        cx: &ToolCx,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send {
        Tool::call(self, plan, cx)
    }
}

/// A tool known at run time.
pub trait DynTool: Send + Sync {
    /// How a model sees it.
    fn spec(&self) -> &ToolSpec;

    /// Reads the input and says what the call will touch. Does nothing yet.
    fn prepare(self: Arc<Self>, input: &RawJson, cx: &ToolCx) -> Result<Box<dyn PreparedCall>, ToolError>;
}

/// A call that only has to be run.
pub trait PreparedCall: Send {
    /// What it will touch.
    fn access(&self) -> &[Access];

    /// Whether it may run again after a crash.
    fn effect(&self) -> Effect;

    /// Runs it.
    fn run(self: Box<Self>, cx: ToolCx) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;
}

/// Erases a typed tool.
pub fn erase<T: PlannedTool>(tool: T) -> Arc<dyn DynTool> {
    let spec = ToolSpec {
        name: T::NAME.to_owned(),
        description: tool.description(),
        input_schema: schema_of::<T::Input>(),
    };
    Arc::new(Typed { spec, tool: Arc::new(tool) })
}

struct Typed<T> {
    spec: ToolSpec,
    tool: Arc<T>,
}

struct TypedCall<T: PlannedTool> {
    tool: Arc<T>,
    planned: Planned<T::Plan>,
}

impl<T: PlannedTool> DynTool for Typed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(self: Arc<Self>, input: &RawJson, cx: &ToolCx) -> Result<Box<dyn PreparedCall>, ToolError> {
        let planned = self.tool.plan(parse_input(&self.spec, input)?, cx);
        Ok(Box::new(TypedCall { tool: Arc::clone(&self.tool), planned }))
    }
}

impl<T: PlannedTool> PreparedCall for TypedCall<T> {
    fn access(&self) -> &[Access] {
        &self.planned.access
    }

    fn effect(&self) -> Effect {
        self.planned.effect
    }

    fn run(self: Box<Self>, cx: ToolCx) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.tool.call(self.planned.plan, &cx).await })
    }
}

/// Parses the input, which whoever prepares the call has read by [`read_input`] before. Who calls a tool directly may not
/// have, so an input that does not fit is read here.
fn parse_input<I: DeserializeOwned>(spec: &ToolSpec, input: &RawJson) -> Result<I, ToolError> {
    let error = match input.to() {
        Ok(parsed) => return Ok(parsed),
        Err(error) => error,
    };
    let error = match read_input(spec, input)? {
        Cow::Borrowed(_) => error,
        Cow::Owned(corrected) => match corrected.to() {
            Ok(parsed) => return Ok(parsed),
            Err(error) => error,
        },
    };
    let text =
        format!("{} cannot read its input: {error}. Its schema is {}", spec.name, spec.input_schema.get());
    Err(ToolError::bad_input(text).with_source(error))
}

/// A tool made of a closure. It counts as opaque and unsafe: it is never run twice unasked and nothing is known of what
/// it touches.
pub fn tool_fn<I, F, Fut, R>(name: &str, description: &str, f: F) -> Arc<dyn DynTool>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(I, ToolCx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: Into<ToolOutput>,
{
    closure(name, description, Effect::Unsafe, f)
}

/// A tool made of a closure that changes nothing: several run at once, and again after a crash.
pub fn read_only_tool_fn<I, F, Fut, R>(name: &str, description: &str, f: F) -> Arc<dyn DynTool>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(I, ToolCx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: Into<ToolOutput>,
{
    closure(name, description, Effect::ReadOnly, f)
}

fn closure<I, F, Fut, R>(name: &str, description: &str, effect: Effect, f: F) -> Arc<dyn DynTool>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(I, ToolCx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: Into<ToolOutput>,
{
    let spec = ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: schema_of::<I>(),
    };
    let access = [Access::Opaque(name.to_owned())];
    Arc::new(Closure { spec, access, effect, f: Arc::new(f), input: PhantomData })
}

struct Closure<I, F> {
    spec: ToolSpec,
    access: [Access; 1],
    effect: Effect,
    f: Arc<F>,
    input: PhantomData<fn(I)>,
}

struct ClosureCall<I, F> {
    access: [Access; 1],
    effect: Effect,
    f: Arc<F>,
    input: I,
}

impl<I, F, Fut, R> DynTool for Closure<I, F>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(I, ToolCx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: Into<ToolOutput>,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(self: Arc<Self>, input: &RawJson, _cx: &ToolCx) -> Result<Box<dyn PreparedCall>, ToolError> {
        let input: I = parse_input(&self.spec, input)?;
        let call =
            ClosureCall { access: self.access.clone(), effect: self.effect, f: Arc::clone(&self.f), input };
        Ok(Box::new(call))
    }
}

impl<I, F, Fut, R> PreparedCall for ClosureCall<I, F>
where
    I: Send,
    F: Fn(I, ToolCx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: Into<ToolOutput>,
{
    fn access(&self) -> &[Access] {
        &self.access
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn run(self: Box<Self>, cx: ToolCx) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let future = (self.f)(self.input, cx);
        Box::pin(async move { future.await.map(Into::into) })
    }
}
