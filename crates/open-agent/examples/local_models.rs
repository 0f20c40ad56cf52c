//! Use a model that runs on your own machine: a base URL, no key. Here a server of the test kit stands for it; put the
//! address of llama.cpp, Ollama or vLLM in its place.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use open_agent::ModelInfo;
use open_agent_testkit::server::{ModelServer, Reply, Script};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (provider, window) in [("llama.cpp", 4_096), ("ollama", 8_192), ("vllm", 32_768)] {
        let server = ModelServer::start(Script::new([Reply::text(format!("Hello from {provider}."))]))?;
        let agent = open_agent::Agent::builder()
            .model("my-model")
            // What is not in the catalogue can be added: here the window, and no price.
            .register_model(ModelInfo { context_tokens: Some(window), ..ModelInfo::unknown("my-model") })
            .configure(|options| {
                options.provider = Some(provider.into());
                options.base_url = Some(server.url());
                options.tools = Some(Vec::new());
                options.persist_session = false;
            })
            .build()?;

        let result = agent.prompt("Hello?").await?;

        let request = &server.requests()[0];
        println!("{provider}: {} ({}, cost {:?})", result.text, request.path, result.cost);
    }
    Ok(())
}
