//! A session is an append-only log: its entries ([`SessionEntry`]), the fold to what a model gets ([`Transcript`]), and
//! the stores that keep it ([`SessionStore`], [`MemoryStore`], [`JsonlStore`]), with what is too large for a record beside it
//! ([`BlobStore`]). [`SessionWriter`] is the one way in.
//!
//! Interprets no entry but for the transcript: what a log means for a run is the engine's machine.

#[cfg(feature = "conformance")]
pub mod conformance;
mod entry;
mod log;
mod outline;
mod record;
mod store;
mod transcript;
mod withhold;
mod writer;

pub use entry::{
    BackgroundEnded, Done, Failure, ForkedFrom, MediaScope, ModelDone, ModelFailed, ModelSettings, Moved,
    Notice, NoticeKind, Opened, Origin, Owner, Queued, Retry, Ruled, RunEnded, RunLimits, RunStarted,
    SessionEntry, SessionStarted, ToolScheduling, ToolsChanged, UserMessage, Withheld,
};
pub use log::{Damage, DamageKind, Log, Newer, RawLine, RawLog};
pub use record::{Decoded, EncodedRecord, FORMAT_VERSION, Stored, decode, encode};
pub use store::{
    BlobStore, Claim, Durability, JsonlStore, Lease, MemoryStore, SessionStore, StoreError, blob_id,
};
pub use transcript::{Item, ItemContent, ItemOrigin, Transcript};
pub use writer::SessionWriter;
