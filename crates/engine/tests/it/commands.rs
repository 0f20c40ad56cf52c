//! Commands that reach a run while it goes on, each with its receipt.

use std::sync::Arc;

use open_agent_engine::{Command, EngineError, Progress, mailbox};
use open_agent_model::scripted::{Reply, Scripted, newest_results};
use open_agent_model::{Answer, AskId, CallId, Question, RunStatus};
use open_agent_session::RunLimits;
use open_agent_tool::{DynTool, ToolSet, ToolSource, read_only_tool_fn};
use tokio::sync::Notify;

use crate::world::{Input, Options, World, spec, status};

/// `reads_long` reads until it is released; `asks` asks before it reads. Both only read, so that they run together.
fn world(release: &Arc<Notify>, begun: &Arc<Notify>) -> World {
    let (release, begun) = (Arc::clone(release), Arc::clone(begun));
    let long: Arc<dyn DynTool> = read_only_tool_fn("reads_long", "Reads long.", move |_: Input, _| {
        let (release, begun) = (Arc::clone(&release), Arc::clone(&begun));
        async move {
            begun.notify_one();
            release.notified().await;
            Ok("read at last")
        }
    });
    let asks: Arc<dyn DynTool> = read_only_tool_fn("asks", "Asks.", |_: Input, cx| async move {
        let answer = cx.ask(Question::text("which?")).await?;
        Ok(answer.to_text())
    });
    let extra: Vec<Arc<dyn ToolSource>> = vec![Arc::new(Arc::new(ToolSet::new([long, asks])))];
    let calls = Reply::call("reads_long", "{}").and_call("asks", "{}");
    World::with(Scripted::new([calls, Reply::text("done")]), Options { extra, ..Options::default() })
}

#[tokio::test]
async fn a_question_is_answered_while_another_call_still_runs() {
    let (release, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let world = world(&release, &begun);
    let mut driver = world.open().await;
    let (mailbox, inbox) = mailbox();
    driver.set_inbox(inbox);
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    let ask = AskId::of_tool(CallId { turn: 0, index: 1 }, 0);
    let (progress, ()) = tokio::join!(driver.run(), async {
        begun.notified().await;
        // The question may not be put yet: then there is none to answer.
        let receipt = loop {
            match mailbox.send(Command::Answer(ask, Answer::text("the blue one"))).await {
                Err(EngineError::NoQuestion { .. }) => tokio::task::yield_now().await,
                other => break other.unwrap(),
            }
        };
        assert!(receipt.seq.0 > 0 && receipt.queued.is_none());
        let again = mailbox.send(Command::Answer(ask, Answer::text("red"))).await;
        assert!(matches!(again, Err(EngineError::NoQuestion { .. })), "{again:?}");
        release.notify_one();
    });
    assert_eq!(progress.unwrap(), Progress::Done);
    assert_eq!(newest_results(&world.model.requests()[1]), ["read at last", "the blue one"]);
}

/// How calls ended stands in their results, not only in the words for the model.
#[tokio::test]
async fn the_kind_of_a_tools_failure_is_its_outcome() {
    use open_agent_engine::AgentEvent;
    use open_agent_model::Outcome;
    use open_agent_tool::{ToolErrorKind, ToolOutput};

    let tool = |name: &'static str, output: ToolOutput| -> Arc<dyn DynTool> {
        read_only_tool_fn(name, "Ends so.", move |_: Input, _| {
            let output = output.clone();
            async move { Ok(output) }
        })
    };
    let late = ToolOutput::text("half").as_error_of(ToolErrorKind::TimedOut);
    let stopped = ToolOutput::text("half").as_error_of(ToolErrorKind::Cancelled);
    let set = ToolSet::new([
        tool("fine", ToolOutput::text("whole")),
        tool("late", late),
        tool("plain", ToolOutput::text("no").as_error()),
        tool("stopped", stopped),
    ]);
    let extra: Vec<Arc<dyn ToolSource>> = vec![Arc::new(Arc::new(set))];
    let calls = ["fine", "late", "plain", "stopped"];
    let calls = calls.into_iter().fold(Reply::default(), |reply, name| reply.and_call(name, "{}"));
    let world =
        World::with(Scripted::new([calls, Reply::text("done")]), Options { extra, ..Options::default() });
    let (_, events) = world.run(RunLimits::default()).await;
    let mut outcomes: Vec<(u16, Outcome)> = events
        .iter()
        .filter_map(|e| match &e.event {
            AgentEvent::ToolFinished(f) => Some((f.call.index, *f.outcome.known().unwrap())),
            _ => None,
        })
        .collect();
    outcomes.sort_by_key(|(index, _)| *index);
    let want = [Outcome::Ok, Outcome::TimedOut, Outcome::Error, Outcome::Interrupted];
    assert_eq!(outcomes.into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>(), want);
}

#[tokio::test]
async fn an_interrupt_by_command_ends_the_run_and_later_commands_are_refused() {
    let (release, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let world = world(&release, &begun);
    let mut driver = world.open().await;
    let (mailbox, inbox) = mailbox();
    driver.set_inbox(inbox);
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    tokio::time::pause();
    let (progress, ()) = tokio::join!(driver.run(), async {
        begun.notified().await;
        mailbox.send(Command::Interrupt).await.unwrap();
    });
    assert_eq!(progress.unwrap(), Progress::Done);
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Cancelled);
    driver.close_inbox().await.unwrap();
    let late = mailbox.send(Command::Interrupt).await;
    assert!(matches!(late, Err(EngineError::NoRun)), "{late:?}");
    assert!(!mailbox.post(Command::Interrupt));
}
