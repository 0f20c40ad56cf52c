//! The tool trait in its two forms: typed, for those who write tools, and erased, for those who run them.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use open_agent_model::{Access, BoxFuture, Effect, RawJson, ToolSpec};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

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
pub fn erase<T: Tool>(tool: T) -> Arc<dyn DynTool> {
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

struct TypedCall<T: Tool> {
    tool: Arc<T>,
    input: T::Input,
    access: Vec<Access>,
    effect: Effect,
}

impl<T: Tool> DynTool for Typed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(self: Arc<Self>, input: &RawJson, cx: &ToolCx) -> Result<Box<dyn PreparedCall>, ToolError> {
        let input: T::Input = read_input(&self.spec, input)?;
        let access = self.tool.access(&input, cx);
        let effect = self.tool.effect(&input);
        Ok(Box::new(TypedCall { tool: Arc::clone(&self.tool), input, access, effect }))
    }
}

impl<T: Tool> PreparedCall for TypedCall<T> {
    fn access(&self) -> &[Access] {
        &self.access
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn run(self: Box<Self>, cx: ToolCx) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.tool.call(self.input, &cx).await })
    }
}

fn read_input<I: DeserializeOwned>(spec: &ToolSpec, input: &RawJson) -> Result<I, ToolError> {
    input.to().map_err(|error| {
        let text = format!(
            "{} cannot read its input: {error}. Its schema is {}",
            spec.name,
            spec.input_schema.get()
        );
        ToolError::bad_input(text).with_source(error)
    })
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
        let input: I = read_input(&self.spec, input)?;
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
