//! Tool calls: ruled, started, awaited, stopped.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use open_agent_model::{Access, AskId, CallId, Decision, Effect, Outcome, RawJson};
use open_agent_policy::Verdict;
use open_agent_session::{Done, Durability, Ruled, SessionEntry};
use open_agent_tool::{CxParts, PreparedCall, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSet};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::bound::bound;
use super::tell::Teller;
use super::{Driver, Prepared, changes_of, next_letter};
use crate::EngineError;

/// How long calls may take to stop before they are aborted, and how long that may take.
const GRACE: Duration = Duration::from_secs(2);
const ABORT: Duration = Duration::from_millis(200);

/// Calls that are running: futures, of which the log knows only that they were started.
#[derive(Default)]
pub(super) struct LiveCalls {
    tasks: JoinSet<Result<ToolOutput, ToolError>>,
    by_task: HashMap<Id, Live>,
    /// What is to be kept of results that were cut.
    cut_texts: Vec<String>,
    cancel: tokio_util::sync::CancellationToken,
}

struct Live {
    call: CallId,
    cx: ToolCx,
    began: Instant,
}

impl Driver {
    pub(super) async fn rule(&mut self, calls: Vec<CallId>) -> Result<(), EngineError> {
        let tools = self.tools.clone().unwrap_or_else(|| self.snapshot());
        let mut entries = Vec::new();
        for id in calls {
            let Some(call) = self.machine.call(id) else { continue };
            let (name, input) = (call.tool_use.name.clone(), call.tool_use.input.clone());
            let cx = self.cx(id);
            let verdict = match tools.get(&name) {
                Some(tool) => self.host.gate.rule(Arc::clone(tool), &input, &cx).await,
                None => self.unknown_tool(&tools, &name, &input),
            };
            tracing::debug!(call = %id, tool = name, decision = ?verdict.ruling.decision, "a call is ruled");
            let (entry, prepared) = ruled(id, &input, verdict);
            // What comes after a call that writes is ruled when that call is finished.
            let last = prepared.as_ref().is_some_and(|call| call.effect() != Effect::ReadOnly);
            entries.push(entry);
            if let Some(call) = prepared {
                self.prepared.insert(id, Prepared { call, cwd: cx.cwd().to_owned() });
            }
            if last {
                break;
            }
        }
        self.record(entries, Durability::Written).await
    }

    pub(super) async fn run_calls(&mut self, calls: Vec<CallId>) -> Result<(), EngineError> {
        for id in calls {
            if !self.live.has(id) && !self.start(id).await? {
                return Ok(());
            }
        }
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => {
                self.cancel = tokio_util::sync::CancellationToken::new();
                self.interrupt(Vec::new()).await
            }
            // An answer may let another call go on.
            letter = next_letter(self.inbox.as_mut()) => self.obey(letter).await,
            done = self.live.finished() => {
                let mut entries = self.started_background();
                entries.extend(done);
                self.record(entries, Durability::Written).await
            }
        }
    }

    /// Starts a call. `false` if the rules of today refuse what was allowed before a restart.
    async fn start(&mut self, id: CallId) -> Result<bool, EngineError> {
        let cx = self.cx(id);
        // A call that was ruled in another folder touches something else now.
        let prepared = match self.prepared.remove(&id).filter(|p| p.cwd == cx.cwd()) {
            Some(prepared) => prepared.call,
            None => {
                let Some(call) = self.machine.call(id) else { return Ok(false) };
                let tools = self.tools.clone().unwrap_or_else(|| self.snapshot());
                let (name, input) = (call.tool_use.name.clone(), call.input().clone());
                let verdict = match tools.get(&name) {
                    Some(tool) => self.host.gate.recheck(Arc::clone(tool), &input, &cx),
                    None => self.unknown_tool(&tools, &name, &input),
                };
                let is_as_ruled = verdict.access == call.access();
                match ruled(id, &call.tool_use.input, verdict) {
                    (_, Some(call)) if is_as_ruled => call,
                    (entry, Some(call)) => {
                        self.record(vec![entry], Durability::Written).await?;
                        call
                    }
                    (entry, None) => {
                        self.record(vec![entry], Durability::Written).await?;
                        return Ok(false);
                    }
                }
            }
        };
        if prepared.effect() != Effect::ReadOnly {
            let runs_command = prepared.access().iter().any(|a| matches!(a, Access::Exec(_)));
            let mut entries: Vec<SessionEntry> =
                runs_command.then(|| self.variables_notice()).flatten().into_iter().collect();
            // On disk before it begins: after a crash it must be known that it may have run.
            entries.push(SessionEntry::Started { call: id });
            self.record(entries, Durability::Synced).await?;
        }
        self.live.start(id, prepared, cx);
        Ok(true)
    }

    fn unknown_tool(&self, tools: &ToolSet, name: &str, input: &RawJson) -> Verdict {
        let was_offered = self.machine.prefix().is_some_and(|p| p.tools.iter().any(|tool| tool.name == name));
        if was_offered {
            return Verdict::impossible(input, format!("{name} was removed and cannot be called any more."));
        }
        let nearest = tools.nearest(name);
        let hint = if nearest.is_empty() {
            "There are no tools.".into()
        } else {
            format!("Did you mean {}?", nearest.join(", "))
        };
        Verdict::impossible(input, format!("There is no tool {name:?}. {hint}"))
    }

    fn cx(&self, call: CallId) -> ToolCx {
        ToolCx::new(CxParts {
            call,
            session: self.writer.id().clone(),
            run: self.machine.run().map(crate::RunFold::id),
            agent: self.host.identity.agent.clone(),
            parent: self.host.identity.parent.clone(),
            root: self.host.identity.root.clone(),
            state: Arc::clone(self.machine.state()),
            answers: self.machine.call(call).map(|c| c.answers.clone()).unwrap_or_default(),
            cancel: self.live.cancel.child_token(),
            progress: Teller { turn: call.turn, ..self.teller() }.progress(),
            blobs: Arc::new(self.session_blobs()),
            ports: self.host.ports.clone(),
        })
    }
}

impl LiveCalls {
    /// Returns the whole texts of results that were cut, which their notes refer to.
    pub(super) fn take_cut_texts(&mut self) -> Vec<String> {
        std::mem::take(&mut self.cut_texts)
    }

    fn has(&self, call: CallId) -> bool {
        self.by_task.values().any(|live| live.call == call)
    }

    /// On a task of its own, so that a panic is a failed call and not the end of the run.
    fn start(&mut self, call: CallId, prepared: Box<dyn PreparedCall>, cx: ToolCx) {
        let own = cx.clone();
        let task = self.tasks.spawn(async move { prepared.run(own).await });
        self.by_task.insert(task.id(), Live { call, cx, began: Instant::now() });
    }

    /// Waits for one call, and takes along those that are finished as well.
    async fn finished(&mut self) -> Vec<SessionEntry> {
        let mut entries = Vec::new();
        if let Some(joined) = self.tasks.join_next_with_id().await {
            entries.extend(self.entry(joined));
        }
        while let Some(joined) = self.tasks.try_join_next_with_id() {
            entries.extend(self.entry(joined));
        }
        entries
    }

    /// Asks all calls to stop, gives them a moment, aborts the rest. What finished in time has its result.
    pub(super) async fn stop(&mut self) -> Vec<SessionEntry> {
        if self.tasks.is_empty() {
            return Vec::new();
        }
        self.cancel.cancel();
        let deadline = Instant::now() + GRACE;
        let mut entries = Vec::new();
        while let Ok(Some(joined)) = tokio::time::timeout_at(deadline, self.tasks.join_next_with_id()).await {
            entries.extend(self.entry(joined));
        }
        self.tasks.abort_all();
        let deadline = Instant::now() + ABORT;
        while let Ok(Some(joined)) = tokio::time::timeout_at(deadline, self.tasks.join_next_with_id()).await {
            entries.extend(self.entry(joined));
        }
        // A call that blocks its thread cannot be waited for; it is left to itself.
        self.tasks.detach_all();
        self.by_task.clear();
        self.cancel = tokio_util::sync::CancellationToken::new();
        entries
    }

    fn entry(
        &mut self,
        joined: Result<(Id, Result<ToolOutput, ToolError>), JoinError>,
    ) -> Option<SessionEntry> {
        let (task, returned) = match joined {
            Ok((task, returned)) => (task, returned),
            Err(error) => (error.id(), Err(crashed(error))),
        };
        let live = self.by_task.remove(&task)?;
        let ms = u64::try_from(live.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let done = match returned {
            Ok(output) => Done {
                call: live.call,
                outcome: outcome(output.is_error, output.error_kind).into(),
                content: bound(output.content, &mut self.cut_texts),
                details: output.details,
                provenance: output.provenance,
                changes: changes_of(output.is_error, output.changes),
                ms,
            },
            Err(error) if error.kind() == ToolErrorKind::Suspended => match live.cx.pending_question() {
                Some((n, question)) => {
                    return Some(SessionEntry::Asked { ask: AskId::of_tool(live.call, n), question });
                }
                None => {
                    let text = "The tool waits for an answer to a question that it did not put.";
                    Done::without_result(live.call, Outcome::Error, text)
                }
            },
            Err(error) => failed(live.call, &error, ms, &mut self.cut_texts),
        };
        tracing::debug!(call = %done.call, is_error = done.is_error(), ms, "a call is finished");
        Some(SessionEntry::Done(done))
    }
}

fn failed(call: CallId, error: &ToolError, ms: u64, cut_texts: &mut Vec<String>) -> Done {
    if let Some(source) = error.source() {
        tracing::debug!(%call, error = %source, "a tool failed");
    }
    let text = if error.text().is_empty() { "The tool failed without saying why." } else { error.text() };
    let done = Done::without_result(call, outcome(true, Some(error.kind())), text);
    Done { content: bound(done.content.clone(), cut_texts), ms, ..done }
}

fn outcome(is_error: bool, kind: Option<ToolErrorKind>) -> Outcome {
    match kind {
        _ if !is_error => Outcome::Ok,
        Some(ToolErrorKind::TimedOut) => Outcome::TimedOut,
        Some(ToolErrorKind::Cancelled) => Outcome::Interrupted,
        _ => Outcome::Error,
    }
}

/// `written` is the input that the model wrote: another one is stored with the ruling.
fn ruled(call: CallId, written: &RawJson, verdict: Verdict) -> (SessionEntry, Option<Box<dyn PreparedCall>>) {
    let Verdict { call: prepared, input, access, effect, ruling } = verdict;
    let prepared = prepared.filter(|_| ruling.decision == Decision::Allow);
    let input = (input != *written).then_some(input);
    (SessionEntry::Ruled(Ruled { call, input, access, effect, ruling }), prepared)
}

fn crashed(error: JoinError) -> ToolError {
    if !error.is_panic() {
        return ToolError::new("The call was aborted because it did not stop in time.")
            .with_kind(ToolErrorKind::Cancelled);
    }
    let payload: Box<dyn Any + Send> = error.into_panic();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
    ToolError::new(format!("The tool panicked: {text}"))
}
