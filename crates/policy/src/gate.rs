//! Everything that a call has to pass before it runs, in one order: it is prepared, then ruled. Owns that order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use open_agent_model::{Access, Decision, Effect, Layer, RawJson, Ruling};
use open_agent_tool::{DynTool, PreparedCall, ToolCx, read_input};

use crate::{CallFacts, Policy, decide};

/// The longest reason that a model is given.
const MAX_REASON: usize = 8_000;

/// Rules calls.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    policy: Policy,
}

/// What came of ruling a call.
pub struct Verdict {
    /// The call, if it may run.
    pub call: Option<Box<dyn PreparedCall>>,
    /// The input it was ruled with.
    pub input: RawJson,
    /// What it touches.
    pub access: Vec<Access>,
    /// Whether it may run twice.
    pub effect: Effect,
    /// What was decided.
    pub ruling: Ruling,
}

impl Gate {
    /// A gate with this policy.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy }
    }

    /// What it rules by.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Prepares a call and rules it.
    pub async fn rule(&self, tool: Arc<dyn DynTool>, input: &RawJson, cx: &ToolCx) -> Verdict {
        self.recheck(tool, input, cx)
    }

    /// Rules a call again that was ruled before a crash: by the rules alone, for hooks have had their say.
    #[must_use]
    pub fn recheck(&self, tool: Arc<dyn DynTool>, input: &RawJson, cx: &ToolCx) -> Verdict {
        let name = tool.spec().name.clone();
        // What is ruled and run is the input as it is meant.
        let input = &*match read_input(tool.spec(), input) {
            Ok(read) => read,
            Err(error) => return Verdict::impossible(input, error.text()),
        };
        // A tool's own code reads the input and names what it touches; a panic in it is a call that cannot be made.
        let prepared = catch_unwind(AssertUnwindSafe(|| tool.prepare(input, cx)));
        let call = match prepared {
            Ok(Ok(call)) => call,
            Ok(Err(error)) => return Verdict::impossible(input, error.text()),
            Err(_) => return Verdict::impossible(input, format!("{name} panicked when it read its input")),
        };
        let (access, effect) = (call.access().to_vec(), call.effect());
        let facts = CallFacts { tool: &name, input, access: &access, effect, cwd: cx.cwd() };
        let mut ruling = decide(&self.policy, &facts);
        bound(&mut ruling.reason);
        let call = (ruling.decision == Decision::Allow).then_some(call);
        Verdict { call, input: input.clone(), access, effect, ruling }
    }
}

impl Verdict {
    /// A call that cannot run, whatever the policy says.
    #[must_use]
    pub fn impossible(input: &RawJson, reason: impl Into<String>) -> Self {
        let mut reason: String = reason.into();
        bound(&mut reason);
        let ruling = Ruling { decision: Decision::Deny, layer: Layer::Call.into(), rule: None, reason };
        Self { call: None, input: input.clone(), access: Vec::new(), effect: Effect::ReadOnly, ruling }
    }
}

fn bound(reason: &mut String) {
    if reason.len() > MAX_REASON {
        reason.truncate(reason.floor_char_boundary(MAX_REASON));
        reason.push('…');
    }
}
