//! The llama peer as installed: it answers on both servers that the other peer tests use. Where these fail, the peer
//! is at fault, not the product.

use std::env;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(template: Option<&str>) -> Result<Server> {
        let peer = env::var_os("OPEN_AGENT_PEER_LLAMA").context("run me with `cargo xtask peers llama`")?;
        let peer = PathBuf::from(peer);
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(peer.join("bin/llama-server"));
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--jinja", "--no-webui"]);
        command.args(["-c", "4096", "-np", "1", "-t", "2", "-m"]).arg(peer.join("model.gguf"));
        if let Some(file) = template {
            command.arg("--chat-template-file").arg(peer.join(file));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server { child: command.spawn().context("the server does not start")?, port };
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            if server.ask("GET", "/health", "").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return Ok(server);
            }
            sleep(Duration::from_millis(50));
        }
        bail!("not healthy after 30 s")
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
#[ignore = "needs the peer: cargo xtask peers llama"]
fn peer_llama_streams_text() -> Result<()> {
    let server = Server::start(None)?;
    let body =
        r#"{"model":"m","max_tokens":16,"stream":true,"messages":[{"role":"user","content":"Say hello."}]}"#;
    let answer = server.ask("POST", "/v1/messages", body)?;
    for part in ["HTTP/1.1 200", "event: message_start", "text_delta", "event: message_stop"] {
        assert!(answer.contains(part), "no {part} in {answer}");
    }
    Ok(())
}

#[test]
#[ignore = "needs the peer: cargo xtask peers llama"]
fn peer_llama_is_forced_to_call_a_tool() -> Result<()> {
    let server = Server::start(Some("functionary.jinja"))?;
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
