//! All data that is stored, sent or crosses two ports: messages, stream events and the one assembler, usage, cost,
//! prices, the catalogue, requests and their validator, what calls touch and change, and the [`Provider`] port.
//!
//! Does no IO, spawns nothing, reads no clock. (`Env::from_process` is called by binaries only.)

mod assemble;
mod background;
mod blob;
mod call;
mod catalogue;
mod check;
mod checker;
mod cost;
mod hint;
mod ids;
mod json;
mod message;
mod messages;
pub mod millis;
mod model_info;
mod open;
pub mod path_text;
mod provider;
mod question;
mod request;
#[cfg(feature = "scripted")]
pub mod scripted;
mod secret;
mod stream;
mod usage;
#[cfg(feature = "scripted")]
mod visits;

pub use assemble::{Assembled, Assembler, Landed};
pub use background::{
    BackgroundEnd, BackgroundId, BackgroundKind, BackgroundOutcome, BackgroundOwner, BackgroundWork,
    OutputRef,
};
pub use blob::{BadBlobId, Blob, BlobId, BlobUse, ResultText};
pub use call::{
    Access, Change, Decision, Effect, FileSeen, FileStamp, InodeStamp, Layer, Outcome, PermissionMode,
    Provenance, Ruling, RunStatus, Slot,
};
pub use catalogue::{Catalogue, PRICES_AS_OF};
pub use check::Invalid;
pub use checker::Checker;
pub use cost::{Cost, CostSource, Price};
pub use hint::{Changes, ProviderHint};
pub use ids::{
    AgentId, AskId, AskSource, BadSessionId, CallId, MessageId, QueueId, RunId, Seq, SessionId, Timestamp,
    ToolUseId, is_legal_name,
};
pub use json::RawJson;
pub use message::{Block, BrokenInput, Message, ResultBlock, Role, Source, Thinking, ToolResult, ToolUse};
pub use messages::{Chunk, Messages, MessagesIter};
pub use model_info::{ModelInfo, ThinkingKinds};
pub use open::Open;
pub use provider::{BoxFuture, ModelStream, Provider, ProviderError, ProviderErrorKind};
pub use question::{Answer, Chosen, Question, QuestionItem, QuestionKind, QuestionOption};
pub use request::{
    Effort, ModelRequest, Prefix, RequestOptions, Section, ThinkingMode, ToolChoice, ToolSpec,
};
pub use secret::{Env, Secret};
pub use stream::{ModelEvent, StopReason, ToolFragment};
pub use usage::{Usage, UsageUpdate};
#[cfg(feature = "scripted")]
pub use visits::visits;
