//! Requests of each profile, as they go out. The files are checked in; `UPDATE_GOLDEN=1` writes them anew.

use std::path::Path;

use open_agent_model::{Effort, ModelRequest, ThinkingMode, ToolChoice};
use open_agent_providers::{Profile, provider};
use open_agent_testkit::server::{ModelServer, Recorded, Reply, Script};
use serde_json::Value;

use crate::support::{collect, config, everything, hello, tools};

async fn sent(name: &str, request: ModelRequest) -> Recorded {
    let server = ModelServer::start(Script::new([Reply::text("ok")])).unwrap();
    let mut config = config(name, &server);
    config.context_window = Some(32_768);
    config.betas = vec!["one".into(), "two".into()];
    let provider = provider(config).unwrap();
    assert_eq!(request.check(), Ok(()));
    collect(&*provider, request).await.unwrap();
    assert_eq!(server.violations(), [""; 0]);
    server.requests().remove(0)
}

fn compare(name: &str, request: &Recorded) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/requests");
    let path = folder.join(format!("{name}.json"));
    let headers = ["content-type", "anthropic-version", "anthropic-beta", "x-api-key", "authorization"];
    let shown: serde_json::Map<String, Value> = headers
        .iter()
        .filter(|name| !request.header(name).is_empty())
        .map(|name| ((*name).to_owned(), request.header(name).into()))
        .collect();
    let whole = serde_json::json!({ "path": request.path, "headers": shown, "body": request.body });
    let text = serde_json::to_string_pretty(&whole).unwrap() + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, want, "{}", path.display());
}

#[tokio::test]
async fn a_conversation_with_everything_in_it() {
    for profile in Profile::all() {
        compare(profile.name, &sent(profile.name, everything()).await);
    }
}

#[tokio::test]
async fn all_options() {
    for profile in Profile::all() {
        let mut request = hello();
        request.prefix = tools();
        request.options.temperature = Some(0.5);
        request.options.stop_sequences = vec!["END".into()];
        request.options.tool_choice = ToolChoice::Tool("Read".into());
        request.options.effort = Some(Effort::High);
        compare(&format!("{}.options", profile.name), &sent(profile.name, request).await);
    }
}

#[tokio::test]
async fn thinking_with_a_budget() {
    for profile in Profile::all() {
        let mut request = hello();
        request.options.thinking = Some(ThinkingMode::Enabled { budget_tokens: 2000 });
        compare(&format!("{}.thinking", profile.name), &sent(profile.name, request).await);
    }
}
