//! A server that fails at random. Owns the choice of faults, which depends on a seed, the conversation and the number of
//! its request alone, and so not on the order in which conversations come.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::reply::{Answer, Body};
use crate::server::{Format, Pace, Recorded, Reply, Script, render};

/// What a chaotic server does; each is counted when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing is wrong.
    None,
    /// Too many requests, with or without a wait that is asked for.
    RateLimit,
    /// Overloaded, or another status that passes.
    Overload,
    /// A status that does not pass.
    Refusal,
    /// A web page.
    Html,
    /// The connection breaks.
    Cut,
    /// The stream ends early, but properly.
    Short,
    /// Nothing comes any more.
    Stall,
    /// It comes in small pieces.
    Drip,
    /// Bytes that mean nothing, instead of the answer or in it.
    Garbage,
    /// The stream goes on with an error.
    ErrorInStream,
    /// Calls share an id, or have none, or one that is not legal.
    BadIds,
    /// Another reason to stop than the true one.
    WrongStop,
    /// Arguments that are no JSON, or not what the tool takes, or a tool that does not exist.
    BadCall,
    /// Nothing in it.
    Empty,
    /// One JSON object although a stream was asked for.
    Plain,
}

/// All faults, and how many of a hundred requests each meets about.
const ODDS: [(Fault, u64); 16] = [
    (Fault::RateLimit, 5),
    (Fault::Overload, 5),
    (Fault::Refusal, 1),
    (Fault::Html, 1),
    (Fault::Cut, 6),
    (Fault::Short, 3),
    (Fault::Stall, 3),
    (Fault::Drip, 5),
    (Fault::Garbage, 5),
    (Fault::ErrorInStream, 5),
    (Fault::BadIds, 5),
    (Fault::WrongStop, 5),
    (Fault::BadCall, 5),
    (Fault::Empty, 2),
    (Fault::Plain, 3),
    (Fault::None, 41),
];

/// A tool that may be called, with an input that it takes.
#[derive(Clone, Debug)]
pub struct ChaosTool {
    /// Its name.
    pub name: String,
    /// An input.
    pub input: Value,
}

/// Chaos from a seed. Its [`Script`] asks it for replies.
#[derive(Debug)]
pub struct Chaos {
    seed: u64,
    tools: Vec<ChaosTool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Requests so far of each conversation.
    asked: HashMap<u64, u64>,
    faults: HashMap<Fault, usize>,
}

impl Chaos {
    /// Answers with text and with calls of these tools.
    #[must_use]
    pub fn new(seed: u64, tools: Vec<ChaosTool>) -> Self {
        Self { seed, tools, state: Mutex::default() }
    }

    /// How often each fault was met.
    #[must_use]
    pub fn faults(&self) -> HashMap<Fault, usize> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).faults.clone()
    }

    fn reply(&self, turn: usize, request: &Recorded) -> Reply {
        let conversation = hash(&first_prompt(&request.body));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = state.asked.entry(conversation).or_default();
        *asked += 1;
        let mut dice = Dice(self.seed ^ conversation.rotate_left(17) ^ asked.wrapping_mul(0x9E37_79B9));
        let fault = dice.fault();
        *state.faults.entry(fault).or_default() += 1;
        drop(state);
        let format = request.format.unwrap_or(Format::Anthropic);
        match fault {
            Fault::RateLimit => rate_limit(&mut dice),
            Fault::Overload => {
                let (status, kind) = dice.pick(&[
                    (529, "overloaded_error"),
                    (500, "api_error"),
                    (502, "api_error"),
                    (503, "overloaded_error"),
                ]);
                Reply::error(status, kind, "not now")
            }
            Fault::Refusal => {
                let (status, kind) = dice.pick(&[
                    (400, "invalid_request_error"),
                    (401, "authentication_error"),
                    (404, "not_found_error"),
                    (413, "request_too_large"),
                ]);
                Reply::error(status, kind, "never")
            }
            Fault::Html => {
                let status = dice.pick(&[200, 403, 502]);
                Reply::raw(status, "text/html", "<!DOCTYPE html><html><body>A gateway.</body></html>")
            }
            _ => {
                let answer = self.answer(&mut dice, fault);
                let (content_type, text) = render::answer(&answer, request, format, turn);
                spoil(&mut dice, fault, content_type, text)
            }
        }
    }

    /// An answer, with the faults that an answer can have by itself.
    fn answer(&self, dice: &mut Dice, fault: Fault) -> Answer {
        let mut reply = Reply::answer().delta(dice.up_to(12) + 1);
        if dice.one_in(4) {
            reply = reply.and_thinking("Let me see. Ä ẞ 🦀", "c2lnbmVk");
        }
        if dice.one_in(3) {
            reply = reply.and_text("I look. Grüße, 世界 🦀!");
        }
        let needs_calls = matches!(fault, Fault::BadIds | Fault::BadCall);
        let calls = if needs_calls { 1 + dice.up_to(3) } else { dice.up_to(4).saturating_sub(1) };
        for _ in 0..calls {
            let tool = &self.tools[dice.up_to(self.tools.len())];
            reply = reply.and_tool(&tool.name, tool.input.clone());
            if fault == Fault::BadIds {
                let long = "x".repeat(80);
                reply =
                    reply.with_id(dice.pick(&["same", "call_0_0", NO_ID, "not legal!", "ünïcode", &long]));
            }
        }
        if fault == Fault::BadCall {
            reply = match dice.up_to(3) {
                0 => reply.and_tool("no such tool!", json!({})),
                1 => reply.and_tool(&self.tools[0].name, json!({ "strange": [1, 2, 3] })),
                _ => reply.and_tool(&self.tools[0].name, json!(NO_JSON)),
            };
        }
        if calls == 0 && !needs_calls {
            reply = reply.and_text("Done.");
        }
        if fault == Fault::Empty {
            reply = Reply::answer();
            if dice.one_in(2) {
                reply = reply.and_text(" \n");
            }
        }
        if fault == Fault::WrongStop {
            reply = reply.stop(dice.pick(&[
                "end_turn",
                "tool_use",
                "max_tokens",
                "refusal",
                "pause_turn",
                "no such reason",
                "",
            ]));
        }
        if fault == Fault::ErrorInStream {
            let kind = dice.pick(&["overloaded_error", "api_error", "rate_limit_error", "strange"]);
            reply = reply.error_after(dice.up_to(6), kind, "it broke off");
        }
        if fault == Fault::Plain {
            reply = reply.plain();
        }
        match reply.body {
            Body::Answer(answer) => answer,
            Body::Raw(_) => unreachable!("made of parts above"),
        }
    }
}

impl Script {
    /// Replies as `chaos` says.
    #[must_use]
    pub fn chaos(chaos: std::sync::Arc<Chaos>) -> Self {
        Self::from_fn(move |turn, request| chaos.reply(turn, request))
    }
}

/// Stands for an id that is empty: the renderer would number it.
const NO_ID: &str = "chaos-no-id";
/// Becomes arguments that are no JSON.
const NO_JSON: &str = "chaos-no-json";

fn rate_limit(dice: &mut Dice) -> Reply {
    let reply = Reply::error(429, "rate_limit_error", "too many");
    match dice.up_to(5) {
        0 => reply,
        1 => reply.header("retry-after", "0"),
        2 => reply.header("retry-after", "0.01"),
        3 => reply.header("retry-after-ms", "7"),
        _ => reply.header("retry-after", "soon"),
    }
}

/// The faults of bytes and of their sending.
fn spoil(dice: &mut Dice, fault: Fault, content_type: &str, text: String) -> Reply {
    let text = text.replace(NO_ID, "").replace(&format!("\"{NO_JSON}\""), "{ no json");
    let at = dice.up_to(text.len());
    let mut bytes = text.into_bytes();
    let mut pace = Pace::Whole;
    match fault {
        Fault::Cut => pace = Pace::Cut(at),
        Fault::Short => bytes.truncate(at),
        Fault::Stall => pace = Pace::Stall(at),
        Fault::Drip => pace = Pace::Drip { size: 1 + dice.up_to(60), pause: Duration::ZERO },
        Fault::Garbage => {
            let noise: Vec<u8> = (0..1 + dice.up_to(40)).map(|_| dice.byte()).collect();
            match dice.up_to(3) {
                0 => bytes = noise,
                1 => bytes.splice(at..at, noise).for_each(drop),
                _ => bytes
                    .splice(at..at, b"\n\ndata: {\"type\":7,\"choices\":\"x\"}\n\n".to_owned())
                    .for_each(drop),
            }
        }
        _ => {}
    }
    Reply::raw(200, content_type, bytes).pace(pace)
}

/// The text of the first message that is a user's.
fn first_prompt(body: &Value) -> String {
    let messages = body.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let user = messages.iter().find(|m| m.get("role").is_some_and(|r| r == "user"));
    user.map(|m| m["content"].to_string()).unwrap_or_default()
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3))
}

/// A small generator (splitmix64): the same numbers for the same seed, on each machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Less than `end`; 0 if that is 0.
    fn up_to(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % (end.max(1) as u64)).unwrap_or_default()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.up_to(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.up_to(from.len())]
    }

    fn byte(&mut self) -> u8 {
        self.roll().to_le_bytes()[0]
    }

    fn fault(&mut self) -> Fault {
        let mut at = self.roll() % ODDS.iter().map(|(_, odds)| odds).sum::<u64>();
        for (fault, odds) in ODDS {
            if at < odds {
                return fault;
            }
            at -= odds;
        }
        Fault::None
    }
}
