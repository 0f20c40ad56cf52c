//! One prompt from the arguments to the exit code. Owns the order of things: options, agent, prompt, run, signals; prints
//! nothing itself.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_core::Stream as _;
use open_agent::session::NoticeKind;
use open_agent::{Agent, AgentError, AgentOptions, Open, PermissionMode, QueryResult, RunStream};

use crate::args::{RunArgs, ToolList};
use crate::exit::Exit;
use crate::output::{self, Needs, Output};
use crate::signals::Signals;
use crate::words::one_line;
use crate::{exit, hint, log, prompt};

/// How often a terminal shows that time passes.
const TICK: Duration = Duration::from_millis(500);

/// Answers a prompt.
pub(crate) fn run(args: RunArgs) -> Result<Exit> {
    if args.verbose {
        log::start();
    }
    // Without a prompt nothing else matters; with one, whoever made a mistake need not wait for stdin to hear of it.
    let early = args.prompt.is_empty().then(|| prompt::read(&args)).transpose()?;
    let agent = Agent::builder().options(options(&args)?).build()?;
    let prompt = match early {
        Some(prompt) => prompt,
        None => prompt::read(&args)?,
    };
    tracing::debug!(
        model = %agent.model(),
        key_source = agent.key_source(),
        session = %agent.session_id(),
        prompt_bytes = prompt.len(),
        "a run begins"
    );
    with_output(&agent, prompt, &mut *output::for_args(&args, &agent))
}

/// Answers a prompt, telling `output` about it.
pub(crate) fn with_output(agent: &Agent, prompt: String, output: &mut dyn Output) -> Result<Exit> {
    // One thread is enough for one agent: what blocks has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let kill = KillOnExit(agent);
    let exit = runtime.block_on(async {
        let exit = drive(agent, prompt, output).await;
        // Nothing that commands started outlives the program. Who expected that is told.
        let tasks = agent.background_work();
        agent.close().await;
        for status in tasks.iter().filter(|status| status.is_running()) {
            let (id, what) = (&status.work.id, one_line(&status.work.description));
            exit::warn(&format!("{id} was still running and ended with the program: {what}"));
        }
        exit
    });
    drop(kill);
    // Whatever still blocks (a file on a dead mount) must not hold the process.
    runtime.shutdown_background();
    exit
}

/// A panic must not leave processes behind either.
struct KillOnExit<'a>(&'a Agent);

impl Drop for KillOnExit<'_> {
    fn drop(&mut self) {
        self.0.kill_processes();
    }
}

fn options(args: &RunArgs) -> Result<AgentOptions> {
    let mut options = AgentOptions::default();
    options.model.clone_from(&args.model);
    options.fallback_model.clone_from(&args.fallback_model);
    options.provider.clone_from(&args.provider);
    options.base_url.clone_from(&args.base_url);
    options.max_turns = args.max_turns;
    options.max_budget_usd = args.max_budget_usd;
    options.budget_scope = args.budget_scope.unwrap_or_default();
    options.system_prompt = match &args.system_prompt_file {
        None => args.system_prompt.clone(),
        Some(path) => Some(prompt::read_file("--system-prompt-file", path)?),
    };
    options.append_system_prompt.clone_from(&args.append_system_prompt);
    let names = |lists: &[ToolList]| -> Vec<String> { lists.iter().flat_map(|l| l.0.clone()).collect() };
    if !args.tools.is_empty() {
        let names = names(&args.tools);
        options.tools = (names != ["default"]).then_some(names);
    }
    options.allowed_tools = names(&args.allowed_tools);
    options.disallowed_tools = names(&args.disallowed_tools);
    options.permission_mode = if args.dangerously_skip_permissions {
        PermissionMode::BypassPermissions
    } else {
        args.permission_mode.unwrap_or_default()
    };
    let betas = args.betas.iter().flat_map(|list| list.split([',', ' ']));
    options.betas = betas.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    options.thinking = args.thinking;
    options.effort = args.effort;
    if let Some(retries) = args.max_retries {
        options.retry.max_retries = retries;
    }
    if let Some(limit) = args.idle_timeout {
        options.idle_timeout = limit;
    }
    options.cwd.clone_from(&args.cwd);
    options.persist_session = !args.no_session_persistence;
    Ok(options)
}

async fn drive(agent: &Agent, prompt: String, output: &mut dyn Output) -> Result<Exit> {
    let to_kill = agent.clone();
    let signals = Signals::listen(move || to_kill.kill_processes());
    let mut signals = signals.context("cannot listen for signals")?;
    output.attach(signals.stdout());
    let run = match output.needs() {
        Needs::Pieces => agent.stream(prompt),
        Needs::Messages | Needs::Nothing => agent.stream_messages(prompt),
    };
    follow(run, &mut signals, output).await
}

async fn follow(mut run: RunStream, signals: &mut Signals, output: &mut dyn Output) -> Result<Exit> {
    let interrupter = run.interrupter();
    let mut broken: Option<io::Error> = None;
    if output.needs() != Needs::Nothing {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                biased;
                () = signals.next() => interrupter.interrupt(),
                more = next(&mut run, output) => {
                    if let Err(error) = output.flush() {
                        // Nobody reads. The run ends in good order, so that its session can be gone on with.
                        interrupter.interrupt();
                        broken = Some(error);
                        break;
                    }
                    if !more {
                        break;
                    }
                }
                _ = tick.tick(), if output.wants_ticks() => output.tick(),
            }
        }
    }
    let result = {
        let mut result = std::pin::pin!(run.result());
        loop {
            tokio::select! {
                biased;
                () = signals.next() => interrupter.interrupt(),
                result = &mut result => break result,
            }
        }
    };
    let done = match broken {
        Some(error) => Err(error.into()),
        None => finish(result, signals.first(), output),
    };
    match (done, signals.first()) {
        // A terminal that hangs up takes no output either, nor does a reader who sleeps: that is no failure of its own.
        (Err(error), Some(signal)) if error.is::<io::Error>() => Ok(Exit::Interrupted(signal)),
        (done, _) => done,
    }
}

/// Hands over an event and all that came with it. `false` if there will be none any more.
async fn next(run: &mut RunStream, output: &mut dyn Output) -> bool {
    let mut any = false;
    poll_fn(|cx| {
        loop {
            match Pin::new(&mut *run).poll_next(cx) {
                Poll::Ready(Some(event)) => {
                    any = true;
                    output.event(&event);
                }
                Poll::Ready(None) => return Poll::Ready(false),
                Poll::Pending if any => return Poll::Ready(true),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

fn finish(
    result: Result<QueryResult, AgentError>,
    signal: Option<i32>,
    output: &mut dyn Output,
) -> Result<Exit> {
    match result {
        Ok(result) => {
            tracing::debug!(
                status = result.status.as_str(),
                turns = result.turns,
                model_calls = result.model_calls,
                api_ms = result.duration_api_ms,
                "the run ended"
            );
            output.end(&result);
            output.flush()?;
            if !output.tells_notices() {
                result
                    .notices
                    .iter()
                    .filter(|n| is_worth_a_warning(&n.kind))
                    .for_each(|n| exit::warn(&n.text));
            }
            if !output.tells_refusals() {
                let refused: BTreeSet<&str> = result.denials.iter().map(|d| d.reason.as_str()).collect();
                refused.into_iter().for_each(exit::warn);
                if let Some(advice) = hint::to_allow(&result.denials) {
                    exit::advise(&advice);
                }
            }
            if !result.is_success() {
                exit::say(&reason(&result));
                output.afterword();
            }
            Ok(Exit::of(result.status, signal))
        }
        Err(error @ AgentError::Config(_)) => Err(error.into()),
        Err(error) => {
            let error = anyhow::Error::from(error);
            output.lost(&exit::explained(&error));
            output.flush()?;
            Err(error)
        }
    }
}

/// Whether whoever reads only the answer should know.
fn is_worth_a_warning(kind: &Open<NoticeKind>) -> bool {
    !matches!(kind.known(), Some(NoticeKind::VariablesRemoved | NoticeKind::UsageMissing))
}

/// Why a run did not do what it was asked, and what to do about it.
fn reason(result: &QueryResult) -> String {
    use open_agent::RunStatus;
    let failure = result.failure.as_ref();
    let said =
        hint::explained(&result.errors.join("; "), failure.and_then(|failure| failure.hint.as_deref()));
    let way_out = match result.status {
        RunStatus::ErrorMaxTurns => "raise --max-turns to go further",
        RunStatus::ErrorMaxBudgetUsd => "raise --max-budget-usd to go further",
        RunStatus::Cancelled => return "interrupted".to_owned(),
        RunStatus::Waiting => return "the run waits for an answer, which cannot be given here".to_owned(),
        _ => "",
    };
    match (said.is_empty(), way_out.is_empty()) {
        (true, _) => result.status.as_str().replace('_', " "),
        (false, true) => said,
        (false, false) => format!("{said}: {way_out}"),
    }
}
