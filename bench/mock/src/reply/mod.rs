//! Answers: what to say, and how each API says it, streamed and whole.

mod anthropic;
mod chat;
mod responses;

use serde_json::Value;

use crate::request::Api;

pub enum Act {
    Calls(Vec<Call>),
    Text { count: usize, delta: String },
}

pub struct Call {
    pub id: String,
    pub name: String,
    pub input: Value,
    pub custom: bool,
}

pub type Events = Box<dyn Iterator<Item = String> + Send + Sync>;

pub fn events(api: Api, act: Act, model: String, id: String) -> Events {
    match api {
        Api::Anthropic => anthropic::events(act, &model, &id),
        Api::Chat => chat::events(act, model, id),
        Api::Responses => responses::events(act, &model, &id),
    }
}

pub fn whole(api: Api, act: Act, model: &str, id: &str) -> Value {
    match api {
        Api::Anthropic => anthropic::whole(act, model, id),
        Api::Chat => chat::whole(act, model, id),
        Api::Responses => responses::whole(act, model, id),
    }
}

/// An event whose name is its data's type.
fn named(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or(""))
}

/// The same event again and again between a beginning and an end: rendered once, since the bench measures the reader.
fn repeated(before: Vec<String>, delta: String, count: usize, after: Vec<String>) -> Events {
    Box::new(before.into_iter().chain((0..count).map(move |_| delta.clone())).chain(after))
}
