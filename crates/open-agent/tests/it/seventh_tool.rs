//! A seventh tool: this file and one line where it is registered (`.tool(…)` below) are all it takes.

use open_agent::testing::{Reply, Scripted, newest_results};
use open_agent::tool::Tool;
use open_agent::{Agent, RunStatus, ToolCx, ToolError, ToolOutput, erase};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Input {
    /// What to turn around.
    text: String,
}

struct Reverse;

impl Tool for Reverse {
    const NAME: &'static str = "Reverse";
    type Input = Input;

    fn description(&self) -> String {
        "Turns a text around.".into()
    }

    fn access(&self, _: &Input, _: &ToolCx) -> Vec<open_agent::model::Access> {
        Vec::new()
    }

    fn effect(&self, _: &Input) -> open_agent::model::Effect {
        open_agent::model::Effect::ReadOnly
    }

    async fn call(&self, input: Input, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        cx.progress("turning");
        Ok(input.text.chars().rev().collect::<String>().into())
    }
}

#[tokio::test]
async fn a_seventh_tool_is_one_file_and_one_line() {
    let model = Scripted::new([Reply::call("Reverse", r#"{"text": "abc"}"#), Reply::text("done")]);
    let agent = Agent::builder()
        .provider(model.clone())
        .configure(|o| o.persist_session = false)
        .tool(erase(Reverse))
        .build()
        .unwrap();
    let result = agent.prompt("Turn abc around.").await.unwrap();
    assert_eq!(result.status, RunStatus::Success);
    let requests = model.requests();
    assert_eq!(newest_results(&requests[1]), ["cba"]);
    let names: Vec<&str> = requests[0].prefix.tools.iter().map(|t| t.name.as_str()).collect();
    assert!(names.len() >= 7 && names.is_sorted() && names.contains(&"Reverse"), "{names:?}");
}
