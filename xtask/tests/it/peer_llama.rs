//! The llama peer as installed: it answers on both servers that the other peer tests use. Where these fail, the peer
//! is at fault, not the product.

use anyhow::Result;
use open_agent_testkit::llama::{Llama, Template};

#[test]
#[ignore = "needs the peer: cargo xtask peers llama"]
fn peer_llama_streams_text() -> Result<()> {
    let server = Llama::start(Template::Own, 4096)?;
    let body =
        r#"{"model":"m","max_tokens":16,"stream":true,"messages":[{"role":"user","content":"Say hello."}]}"#;
    let answer = server.ask("POST", "/v1/messages", body)?;
    // Not `message_start`: now and then this server leaves it out.
    for part in ["HTTP/1.1 200", "text_delta", "event: message_stop"] {
        assert!(answer.contains(part), "no {part} in {answer}");
    }
    Ok(())
}

#[test]
#[ignore = "needs the peer: cargo xtask peers llama"]
fn peer_llama_is_forced_to_call_a_tool() -> Result<()> {
    let server = Llama::start(Template::Functionary, 4096)?;
    let body = r#"{"model":"m","max_tokens":100,"temperature":0,"tool_choice":{"type":"any"},
        "tools":[{"name":"get_weather","description":"The weather of a city.","input_schema":{"type":"object",
            "properties":{"city":{"type":"string"}},"required":["city"]}}],
        "messages":[{"role":"user","content":"What is the weather in Paris?"}]}"#;
    let answer = server.ask("POST", "/v1/messages", body)?;
    for part in
        ["HTTP/1.1 200", r#""type":"tool_use""#, r#""name":"get_weather""#, r#""stop_reason":"tool_use""#]
    {
        assert!(answer.contains(part), "no {part} in {answer}");
    }
    Ok(())
}
