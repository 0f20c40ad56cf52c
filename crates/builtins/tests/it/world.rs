//! A folder, an agent's session state over it, and calls as the loop makes them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use open_agent_builtins::core_tools;
use open_agent_engine::BackgroundSet;
use open_agent_model::{Access, CallId, Change, Env, RawJson, ResultBlock, Timestamp};
use open_agent_sandbox::{PlainFiles, PlainRunner, REMOVED_VARIABLES};
use open_agent_tool::{Clock, CxParts, Ports, SessionState, ToolCx, ToolError, ToolOutput, ToolSet};
use serde_json::Value;
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

pub(crate) struct World {
    _dir: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) state: Mutex<SessionState>,
    pub(crate) tools: ToolSet,
    pub(crate) runner: Arc<PlainRunner>,
    pub(crate) background: Arc<BackgroundSet>,
    pub(crate) cancel: CancellationToken,
    pub(crate) progress: Arc<Mutex<Vec<String>>>,
    files: Arc<PlainFiles>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::inside(tempfile::tempdir().unwrap())
    }

    /// For trees so large that making them on a disk takes long.
    pub(crate) fn in_memory() -> Self {
        Self::inside(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn inside(dir: tempfile::TempDir) -> Self {
        let real = dir.path().canonicalize().unwrap();
        let root = real.join("project");
        std::fs::create_dir(&root).unwrap();
        let state = SessionState { cwd: root.clone(), ..SessionState::default() };
        let mut env: Vec<(String, String)> =
            std::env::vars().filter(|(name, _)| name == "PATH" || name.starts_with("LLVM")).collect();
        env.push(("HOME".into(), real.join("home").display().to_string()));
        env.push(("TEST_WORLD".into(), root.display().to_string()));
        env.push(("ANTHROPIC_API_KEY".into(), "sk-canary".into()));
        Self {
            files: Arc::new(PlainFiles::new(Some(real.join("home")), real.join("scratch"))),
            runner: Arc::new(PlainRunner::new(&env.into_iter().collect::<Env>(), REMOVED_VARIABLES)),
            background: Arc::new(BackgroundSet::new(Arc::new(NoTime))),
            _dir: dir,
            root,
            state: Mutex::new(state),
            tools: ToolSet::new(core_tools()),
            cancel: CancellationToken::new(),
            progress: Arc::default(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn cx(&self) -> ToolCx {
        let progress = Arc::clone(&self.progress);
        let runner: Arc<PlainRunner> = Arc::clone(&self.runner);
        let files: Arc<PlainFiles> = Arc::clone(&self.files);
        let background: Arc<BackgroundSet> = Arc::clone(&self.background);
        ToolCx::new(CxParts {
            call: CallId { turn: 1, index: 0 },
            session: owner().session,
            run: None,
            agent: owner().agent,
            parent: None,
            root: self.root.clone(),
            state: Arc::new(self.state.lock().unwrap().clone()),
            answers: Vec::new(),
            cancel: self.cancel.clone(),
            progress: Arc::new(move |_, line| progress.lock().unwrap().push(line.to_owned())),
            blobs: Arc::new(open_agent_tool::Absent),
            ports: Ports { files, runner, background, clock: Arc::new(NoTime) },
        })
    }

    /// Runs a call and applies its changes.
    pub(crate) async fn call(&self, tool: &str, input: Value) -> Result<ToolOutput, ToolError> {
        let output = self.call_only(tool, input).await?;
        self.apply(&output);
        Ok(output)
    }

    fn apply(&self, output: &ToolOutput) {
        let mut state = self.state.lock().unwrap();
        for change in &output.changes {
            match change {
                Change::Cwd(path) => state.cwd.clone_from(path),
                Change::FileSeen(seen) => {
                    state.seen.insert(seen.path.clone(), seen.stamp);
                }
                _ => {}
            }
        }
    }

    /// Prepares a call, does `meanwhile`, and runs it, unless something that it names lies outside of the project: such a
    /// call no policy would let run.
    pub(crate) async fn within_project(
        &self,
        tool: &str,
        input: &Value,
        meanwhile: impl FnOnce(),
    ) -> Option<Result<ToolOutput, ToolError>> {
        let cx = self.cx();
        let tool = Arc::clone(self.tools.get(tool).unwrap());
        let prepared = tool.prepare(&RawJson::of(input).unwrap(), &cx).unwrap();
        let is_inside = |access: &Access| match access {
            Access::Read(path) | Access::Write(path) => path.starts_with(&self.root),
            _ => false,
        };
        if !prepared.access().iter().all(is_inside) {
            return None;
        }
        meanwhile();
        let output = prepared.run(cx).await;
        if let Ok(output) = &output {
            self.apply(output);
        }
        Some(output)
    }

    pub(crate) async fn call_only(&self, tool: &str, input: Value) -> Result<ToolOutput, ToolError> {
        let cx = self.cx();
        let tool = Arc::clone(self.tools.get(tool).unwrap());
        let prepared = tool.prepare(&RawJson::of(&input).unwrap(), &cx)?;
        prepared.run(cx).await
    }

    /// The text of a call that must not fail.
    pub(crate) async fn ok(&self, tool: &str, input: Value) -> String {
        let output = self.call(tool, input).await.unwrap();
        assert!(!output.is_error, "{}", text(&output));
        text(&output)
    }

    /// The text of a call that must fail.
    pub(crate) async fn fails(&self, tool: &str, input: Value) -> String {
        match self.call(tool, input).await {
            Ok(output) => {
                assert!(output.is_error, "{}", text(&output));
                text(&output)
            }
            Err(error) => error.text().to_owned(),
        }
    }

    /// Command lines of all processes that came out of this world and still run.
    pub(crate) fn processes(&self) -> Vec<String> {
        let mine = format!("TEST_WORLD={}", self.root.display());
        let mut all = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            if read("environ").split(|b| *b == 0).any(|v| v == mine.as_bytes()) {
                let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
                if !line.is_empty() {
                    all.push(line);
                }
            }
        }
        all
    }

    pub(crate) async fn read(&self, path: &Path) {
        self.ok("Read", serde_json::json!({ "file_path": path })).await;
    }
}

pub(crate) fn text(output: &ToolOutput) -> String {
    let texts = output.content.iter().map(|block| match block {
        ResultBlock::Text { text } => text.as_str(),
        _ => "<block>",
    });
    texts.collect::<Vec<_>>().join("\n")
}

pub(crate) fn details(output: &ToolOutput) -> Value {
    output.details.as_ref().unwrap().to().unwrap()
}

/// Whose background work it is.
pub(crate) fn owner() -> open_agent_model::BackgroundOwner {
    open_agent_model::BackgroundOwner {
        session: open_agent_model::SessionId::from_number(1),
        agent: open_agent_model::AgentId::main(),
    }
}
