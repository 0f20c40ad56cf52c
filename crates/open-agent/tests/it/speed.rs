//! What one process bears: many conversations at once, and each further one for next to nothing. What a query costs is
//! counted in requests and connections; the bench has the times.

use std::collections::BTreeSet;

use open_agent::{AgentBuilder, Env, RunStatus};
use open_agent_testkit::server::{ModelServer, Recorded, Reply, Script};
use serde_json::json;

fn builder(url: String) -> AgentBuilder {
    AgentBuilder::with_env(Env::default()).configure(|o| {
        o.base_url = Some(url);
        o.model = Some("claude-sonnet-4-6".into());
    })
}

#[tokio::test]
async fn h_prf_01_a_second_query_costs_little() {
    let server = ModelServer::start(Script::always(Reply::text("ok"))).unwrap();
    let home = tempfile::tempdir().unwrap();
    let builder = builder(server.url()).configure(|o| o.sessions_dir = Some(home.path().to_owned()));
    let first = builder.clone().build().unwrap();
    assert_eq!(first.prompt("one").await.unwrap().status, RunStatus::Success);
    for n in 0..10 {
        let agent = if n % 2 == 0 { first.clone() } else { builder.clone().build().unwrap() };
        assert_eq!(agent.prompt("another").await.unwrap().status, RunStatus::Success);
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 11, "a query is one request");
    let peers: BTreeSet<_> = requests.iter().map(|request| request.peer).collect();
    assert_eq!(peers.len(), 1, "all agents of one builder share their connections");
}

/// Has the file read that the question names, and answers with what it says.
fn reads_and_tells(_: usize, request: &Recorded) -> Reply {
    let messages = request.body["messages"].as_array().unwrap();
    let asked = messages[0]["content"].to_string();
    let number: String =
        asked.split_once("number ").unwrap().1.chars().take_while(char::is_ascii_digit).collect();
    match messages.len() {
        1 => Reply::tool("Read", json!({ "file_path": format!("{number}.txt") })),
        _ => {
            let result = messages[2]["content"].to_string();
            let word = result.split_once("word-").unwrap().1.split('!').next().unwrap();
            Reply::text(format!("{number} says {word}"))
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h_prf_01_a_hundred_sessions_at_once_in_one_process() {
    let server = ModelServer::start(Script::from_fn(reads_and_tells)).unwrap();
    let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let builder = builder(server.url()).configure(|o| {
        o.sessions_dir = Some(home.path().to_owned());
        o.cwd = Some(project.path().to_owned());
    });
    let mut runs = tokio::task::JoinSet::new();
    for n in 0..100 {
        std::fs::write(project.path().join(format!("{n}.txt")), format!("word-{}!", n * 7)).unwrap();
        let agent = builder.clone().build().unwrap();
        runs.spawn(async move { (n, agent.prompt(format!("Read number {n} please.")).await) });
    }
    while let Some(run) = runs.join_next().await {
        let (n, result) = run.unwrap();
        let result = result.unwrap();
        assert_eq!(result.status, RunStatus::Success, "{n}: {:?}", result.errors);
        assert_eq!(result.text, format!("{n} says {}", n * 7));
    }
    assert_eq!(server.violations(), [""; 0]);
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 100, "each has a log of its own");
}
