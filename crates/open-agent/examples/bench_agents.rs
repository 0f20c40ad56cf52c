//! For the benchmark: many agents in one process, of which 100 run at once and the others are idle, before or after their
//! run. Arguments: the server's address, the number of agents.
#![expect(clippy::print_stdout, reason = "the benchmark reads the line that this prints")]

use std::time::Instant;

use open_agent::{PermissionMode, RunStatus};

/// How many agents run at the same time.
const AT_ONCE: usize = 100;

/// Bytes of memory in use, as Linux tells it.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or_default() * 4096.0
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("usage: bench_agents URL [AGENTS]")?;
    let agents: u32 = args.next().map_or(Ok(1), |n| n.parse())?;
    let (before, began) = (resident(), Instant::now());
    let builder =
        open_agent::Agent::builder().permission_mode(PermissionMode::BypassPermissions).configure(|o| {
            o.base_url = Some(url);
            o.max_turns = None;
            o.max_model_calls = u32::MAX;
        });
    let mut runs = tokio::task::JoinSet::new();
    let (mut keep, mut messages, mut begun) = (Vec::new(), 0, 0);
    loop {
        while begun < agents && runs.len() < AT_ONCE {
            let agent = builder.clone().build()?;
            runs.spawn(async move {
                let result = agent.prompt("Read the files.").await;
                (agent, result)
            });
            begun += 1;
        }
        let Some(run) = runs.join_next().await else { break };
        let (agent, result) = run?;
        let result = result?;
        if result.status != RunStatus::Success {
            return Err(format!("a run ended as {:?}: {:?}", result.status, result.errors).into());
        }
        messages += result.messages.len();
        keep.push(agent);
    }
    let after = resident();
    println!(
        "{{\"wall_s\":{},\"base_mb\":{},\"end_mb\":{},\"per_agent_kb\":{},\"items\":{messages}}}",
        began.elapsed().as_secs_f64(),
        before / 1e6,
        after / 1e6,
        (after - before) / f64::from(agents) / 1e3,
    );
    Ok(())
}
