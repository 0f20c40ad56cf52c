//! What is logged at the highest level: enough to see what was skipped, and never a key.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use open_agent_providers::provider;
use open_agent_testkit::in_own_process;
use open_agent_testkit::server::{ModelServer, Reply, Script};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{KEY, at, collect, hello, provider_for};

/// Keeps everything that anybody logs.
#[derive(Clone, Default)]
struct Everything(Arc<Mutex<String>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Fields(&mut self.0.lock().unwrap()));
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut self.0.lock().unwrap()));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = self.0.lock().unwrap();
        write!(text, "\n{} {}", event.metadata().level(), event.metadata().target()).unwrap();
        event.record(&mut Fields(&mut text));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn h_log_01_no_key_is_logged_at_the_highest_level() {
    // `tracing` remembers for the whole process which places in the code nobody listens to.
    in_own_process!();
    let logs = Everything::default();
    let _guard = tracing::subscriber::set_default(logs.clone());
    for name in ["anthropic", "openai"] {
        for reply in [Reply::text("x"), Reply::error(401, "authentication_error", KEY)] {
            let server = ModelServer::start(Script::new([reply])).unwrap();
            let _ = collect(&*provider_for(name, &server), hello()).await;
        }
    }
    let text = logs.0.lock().unwrap();
    assert!(!text.is_empty());
    assert!(!text.contains(KEY), "{text}");
}

#[tokio::test]
async fn h_str_12_what_is_skipped_leaves_one_debug_record() {
    // `tracing` remembers for the whole process which places in the code nobody listens to.
    in_own_process!();
    let logs = Everything::default();
    let _guard = tracing::subscriber::set_default(logs.clone());
    let body = "data: {\"type\":\"news\"}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
    let server = ModelServer::start(Script::new([Reply::sse(body)])).unwrap();
    collect(&*provider_for("anthropic", &server), hello()).await.unwrap();
    let text = logs.0.lock().unwrap();
    let records: Vec<&str> = text.lines().filter(|l| l.contains("news")).collect();
    assert_eq!(records.len(), 1, "{text}");
    assert!(records[0].starts_with("DEBUG open_agent_providers"), "{}", records[0]);
}

#[tokio::test]
async fn an_odd_part_leaves_one_debug_record() {
    // `tracing` remembers for the whole process which places in the code nobody listens to.
    in_own_process!();
    let logs = Everything::default();
    let _guard = tracing::subscriber::set_default(logs.clone());
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}],\"usage\":\"n/a\"}\n\n";
    let server = ModelServer::start(Script::new([Reply::sse(body)])).unwrap();
    collect(&*provider_for("openai", &server), hello()).await.unwrap();
    let text = logs.0.lock().unwrap();
    let records: Vec<&str> = text.lines().filter(|l| l.contains("odd part")).collect();
    assert_eq!(records.len(), 1, "{text}");
    assert!(records[0].starts_with("DEBUG open_agent_providers"), "{}", records[0]);
    assert!(records[0].contains("a text") && records[0].contains("an object"), "{}", records[0]);
}

/// A caller may write the key into the wrong place, and a server may send it back in any field.
#[tokio::test]
async fn h_log_01_a_key_is_hidden_wherever_it_was_put() {
    let hidden = |what: &str, text: String| {
        let lower = text.to_ascii_lowercase();
        let canary = (0..KEY.len() - 7).find(|at| lower.contains(&KEY[*at..at + 8]));
        assert!(canary.is_none() && text.contains("***"), "{what}: {text}");
    };
    for name in ["anthropic", "openai"] {
        let server = ModelServer::start(Script::always(Reply::raw(404, "text/plain", "no"))).unwrap();
        let config = at(name, &format!("{}/{KEY}/v1", server.url()));
        hidden("config", format!("{config:?} {}", config.shown_address()));
        let error = collect(&*provider(config).unwrap(), hello()).await.unwrap_err();
        hidden("path", format!("{error} {error:?}"));
        let mut request = hello();
        request.model = KEY.into();
        let error = collect(&*provider_for(name, &server), request).await.unwrap_err();
        hidden("model", format!("{error} {error:?}"));
        for part in
            [&KEY[4..16], &KEY.to_ascii_uppercase(), &format!("key{KEY}"), &format!("x{}", &KEY[..14])]
        {
            let server = ModelServer::start(Script::always(Reply::error(401, "x", part))).unwrap();
            let error = collect(&*provider_for(name, &server), hello()).await.unwrap_err();
            hidden(part, format!("{error} {error:?}"));
        }
    }
    let chunk = format!(
        r#"{{"id":"{KEY}","model":"m-{KEY}","choices":[{{"index":0,"delta":{{"content":"a"}},"finish_reason":"bad {KEY}"}}]}}"#
    );
    let start = format!(r#"{{"type":"message_start","message":{{"id":"{KEY}","model":"m-{KEY}"}}}}"#);
    let end = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"bad {KEY}"}}}}"#);
    for (name, frames) in [("openai", vec![chunk]), ("anthropic", vec![start, end])] {
        let body: String = frames.iter().map(|f| format!("data: {f}\n\n")).collect();
        let server = ModelServer::start(Script::always(Reply::sse(body))).unwrap();
        let answer = collect(&*provider_for(name, &server), hello()).await.unwrap();
        hidden(name, format!("{answer:?}"));
        assert_eq!((answer.id.as_deref(), answer.model.as_deref()), (Some("***"), Some("m-***")));
        assert_eq!(answer.stop.as_str(), "bad ***");
    }
}
