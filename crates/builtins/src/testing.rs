//! A context over a real folder, for the tests of parts that no call reaches.

use std::sync::Arc;

use open_agent_model::{CallId, Env, ResultBlock, Timestamp};
use open_agent_sandbox::{PlainFiles, PlainRunner, REMOVED_VARIABLES};
use open_agent_tool::{Absent, Clock, CxParts, Ports, SessionState, ToolCx, ToolOutput};
use serde_json::Value;
use tempfile::TempDir;
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

/// A folder with as many files of this content, `f0.txt` and so on.
pub(crate) fn folder_of_files(files: usize, content: &str) -> (TempDir, ToolCx) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for n in 0..files {
        std::fs::write(root.join(format!("f{n}.txt")), content).unwrap();
    }
    let cx = ToolCx::new(CxParts {
        call: CallId { turn: 1, index: 0 },
        session: open_agent_model::SessionId::from_number(1),
        run: None,
        agent: open_agent_model::AgentId::main(),
        parent: None,
        root: root.clone(),
        state: Arc::new(SessionState { cwd: root.clone(), ..SessionState::default() }),
        answers: Vec::new(),
        cancel: CancellationToken::new(),
        progress: Arc::new(|_, _| {}),
        blobs: Arc::new(open_agent_tool::Absent),
        ports: Ports {
            background: Arc::new(Absent),
            files: Arc::new(PlainFiles::new(None, root)),
            runner: Arc::new(PlainRunner::new(&Env::default(), REMOVED_VARIABLES)),
            clock: Arc::new(NoTime),
        },
    });
    (dir, cx)
}

/// The text and the details.
pub(crate) fn parts(output: &ToolOutput) -> (String, Value) {
    let text = output.content.iter().map(|block| match block {
        ResultBlock::Text { text } => text.as_str(),
        _ => "<block>",
    });
    (text.collect(), output.details.as_ref().unwrap().to().unwrap())
}
