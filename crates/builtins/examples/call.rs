//! Calls one tool once and prints its answer: `call FOLDER TOOL JSON`. The bench measures the tools with it.

#![expect(clippy::print_stdout, reason = "an example prints its answer")]

use std::path::PathBuf;
use std::sync::Arc;

use open_agent_builtins::core_tools;
use open_agent_model::{CallId, Env, RawJson, ResultBlock, Timestamp};
use open_agent_sandbox::{PlainFiles, PlainRunner, REMOVED_VARIABLES};
use open_agent_tool::{Absent, Clock, CxParts, Ports, SessionState, ToolCx, ToolSet};
use tokio_util::sync::CancellationToken;

struct NoTime;

impl Clock for NoTime {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
    fn new_id(&self) -> u128 {
        0
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, tool, input] = &args[..] else { return Err("usage: call FOLDER TOOL JSON".into()) };
    let root = PathBuf::from(folder).canonicalize()?;
    let env = Env::from_process();
    let cx = ToolCx::new(CxParts {
        call: CallId { turn: 0, index: 0 },
        session: open_agent_model::SessionId::from_number(1),
        run: None,
        agent: open_agent_model::AgentId::main(),
        parent: None,
        root: root.clone(),
        state: Arc::new(SessionState { cwd: root, ..SessionState::default() }),
        answers: Vec::new(),
        cancel: CancellationToken::new(),
        progress: Arc::new(|_, _| {}),
        blobs: Arc::new(open_agent_tool::Absent),
        ports: Ports {
            files: Arc::new(PlainFiles::new(env.get("HOME").map(PathBuf::from), std::env::temp_dir())),
            runner: Arc::new(PlainRunner::new(&env, REMOVED_VARIABLES)),
            background: Arc::new(Absent),
            clock: Arc::new(NoTime),
        },
    });
    let tools = ToolSet::new(core_tools());
    let tool = tools.get(tool).ok_or("no such tool")?;
    let prepared =
        Arc::clone(tool).prepare(&RawJson::parse(input.as_str())?, &cx).map_err(|e| e.text().to_owned())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let output = runtime.block_on(prepared.run(cx)).map_err(|e| e.text().to_owned())?;
    for block in &output.content {
        if let ResultBlock::Text { text } = block {
            println!("{text}");
        }
    }
    Ok(())
}
