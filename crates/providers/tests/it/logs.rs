//! What is logged at the highest level: enough to see what was skipped, and never a key.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use open_agent_testkit::server::{ModelServer, Reply, Script};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{KEY, collect, hello, provider_for};

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
