//! Servers that stop saying anything.

use std::time::Duration;

use open_agent::{AgentBuilder, Env, RetryConfig};
use open_agent_testkit::server::{ModelServer, Pace, Reply, Script};
use tokio::time::Instant;

/// The clock stands still until nobody has anything to do but to wait; then it is late at once.
#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_given_up() {
    let limit = Duration::from_secs(7);
    for provider in ["anthropic", "generic"] {
        // Nothing of the answer comes; the head may.
        let server = ModelServer::start(Script::always(Reply::text("late").pace(Pace::Stall(0)))).unwrap();
        let agent = AgentBuilder::with_env(Env::default())
            .configure(|o| {
                o.persist_session = false;
                o.provider = Some(provider.into());
                o.base_url = Some(server.url());
                o.model = Some("m".into());
                o.retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
                o.idle_timeout = limit;
            })
            .build()
            .unwrap();
        let began = Instant::now();
        let failed = agent.prompt("hello").await.unwrap();
        assert!(failed.errors[0].contains("nothing for 7s"), "{provider}: {:?}", failed.errors);
        let took = began.elapsed();
        assert!(took >= limit && took < limit * 3, "{provider}: {took:?}");
    }
}
