//! What tools get from an agent: inputs as they are meant, and an environment of its own.

use std::sync::{Arc, Mutex};

use open_agent::model::{Access, BoxFuture, Effect, RawJson, ToolSpec};
use open_agent::testing::{Reply, Scripted, newest_results};
use open_agent::tool::{DynTool, PreparedCall};
use open_agent::{AgentBuilder, Env, PermissionMode, ToolCx, ToolError, ToolOutput};

/// A tool that is known at run time only, as those of a server are. It says what it was given.
struct Raw {
    spec: ToolSpec,
    given: Arc<Mutex<Vec<String>>>,
}

struct Given(String);

impl DynTool for Raw {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(self: Arc<Self>, input: &RawJson, _: &ToolCx) -> Result<Box<dyn PreparedCall>, ToolError> {
        self.given.lock().unwrap().push(input.get().to_owned());
        Ok(Box::new(Given(input.get().to_owned())))
    }
}

impl PreparedCall for Given {
    fn access(&self) -> &[Access] {
        &[]
    }
    fn effect(&self) -> Effect {
        Effect::ReadOnly
    }
    fn run(self: Box<Self>, _: ToolCx) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async move { Ok(format!("given {}", self.0).into()) })
    }
}

#[tokio::test]
async fn h_tol_01_inputs_are_read_leniently_before_every_tool() {
    let schema =
        r#"{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}},"required":["s"]}"#;
    let spec = ToolSpec {
        name: "raw".into(),
        description: "Any.".into(),
        input_schema: RawJson::parse(schema.to_owned()).unwrap(),
    };
    let given = Arc::new(Mutex::new(Vec::new()));
    let raw = Arc::new(Raw { spec, given: Arc::clone(&given) });
    let model = Scripted::new([
        Reply::call("raw", r#"{"n":"7","s":"8"}"#),
        Reply::call("raw", r#"{"n":"seven","s":"8"}"#),
        Reply::call("Bash", r#"{"command":"echo done","timeout":"5000","run_in_background":"False"}"#),
        Reply::text("ok"),
    ]);
    let path = ("PATH".to_owned(), std::env::var("PATH").unwrap());
    let agent = AgentBuilder::with_env([path].into_iter().collect())
        .provider(model.clone())
        .tool(raw)
        .permission_mode(PermissionMode::BypassPermissions)
        .configure(|o| o.persist_session = false)
        .build()
        .unwrap();
    agent.prompt("x").await.unwrap();
    let requests = model.requests();
    let results: Vec<String> = requests[1..].iter().map(|request| newest_results(request).concat()).collect();
    assert_eq!(results[0], r#"given {"n":7,"s":"8"}"#);
    assert!(results[1].contains(r#"n has to be a whole number, but is a string "seven""#), "{}", results[1]);
    assert_eq!(results[2], "done\n");
    assert_eq!(*given.lock().unwrap(), [r#"{"n":7,"s":"8"}"#], "and what cannot be read never reaches it");
    // What the model wrote stays in its history as it wrote it.
    let history = format!("{:?}", requests[1].messages);
    assert!(history.contains(r#"input: {"n":"7","s":"8"}"#), "{history}");
}

#[tokio::test]
async fn temporary_files_go_where_the_agents_own_environment_says() {
    let dir = tempfile::tempdir().unwrap();
    let env: Env = [
        ("TMPDIR".to_owned(), dir.path().display().to_string()),
        ("PATH".to_owned(), std::env::var("PATH").unwrap()),
    ]
    .into_iter()
    .collect();
    let command = r#"{"command":"head -c 300000 /dev/zero | tr '\\0' y"}"#;
    let model = Scripted::new([Reply::call("Bash", command), Reply::text("ok")]);
    let agent = AgentBuilder::with_env(env)
        .provider(model.clone())
        .permission_mode(PermissionMode::BypassPermissions)
        .configure(|o| o.persist_session = false)
        .build()
        .unwrap();
    agent.prompt("x").await.unwrap();
    let seen = newest_results(&model.requests()[1]).concat();
    let folder = format!("{}/open-agent-", dir.path().display());
    assert!(seen.contains(&folder), "{}", &seen[seen.len() - 300..]);
}
