//! A session is an append-only log: its entries ([`SessionEntry`]), the fold to what a model gets ([`Transcript`]), and
//! the stores that keep it ([`SessionStore`], [`MemoryStore`], [`JsonlStore`]). [`SessionWriter`] is the one way in.
//!
//! Interprets no entry but for the transcript: what a log means for a run is the engine's machine.

#[cfg(feature = "conformance")]
pub mod conformance;
mod entry;
mod store;
mod transcript;
mod withhold;
mod writer;

pub use entry::{
    BackgroundEnded, Done, FORMAT_VERSION, Failure, ForkedFrom, MediaScope, ModelDone, ModelFailed, ModelSettings, Moved,
    Notice, NoticeKind,
    Opened, Origin, Owner, Queued, Retry, Ruled, RunEnded, RunLimits, RunStarted, SessionEntry, SessionStarted, Stored,
    ToolScheduling, ToolsChanged, UserMessage, Withheld,
};
pub use store::{Claim, Durability, JsonlStore, Lease, MemoryStore, SessionStore, StoreError};
pub use transcript::{Item, ItemContent, ItemOrigin, Transcript};
pub use writer::SessionWriter;
