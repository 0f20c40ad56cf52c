//! The agent loop. [`Machine`] is the fold of a session's log and says what has to happen next; [`Driver`] does it and
//! writes down what came of it; [`scheduler`] decides which calls may go on; [`Budget`] what may be spent; [`EventSink`]
//! and [`AgentEvent`] tell others about it; [`wire`] puts events in the dialects that other programs speak.

mod background;
mod budget;
mod clock;
mod command;
mod driver;
mod event;
mod host;
mod machine;
mod prompt;
mod retry;
pub mod scheduler;
mod sink;
mod summary;
pub mod wire;

pub use background::BackgroundSet;
pub use budget::{AgentBudget, Budget, BudgetError, BudgetExceeded, BudgetScope, Reservation, logged_cost};
pub use clock::SystemClock;
pub use command::{Command, Inbox, Mailbox, Receipt, mailbox};
pub use driver::{Driver, Progress, TokenCount};
pub use event::{
    AgentEvent, AnswerStarted, AssistantMessage, BackgroundEnded, BlockDelta, BlockKind, BlockStarted,
    Configured, DeltaKind, EVENT_VERSION, Envelope, MessageQueued, MessageUnqueued, MessagesDelivered,
    ModelFailed, QuestionAnswered, QuestionAsked, RunEnded, RunStarted, ToolFinished, ToolProgress,
    ToolRuled, UserMessage, replay,
};
pub use host::{EngineError, Host, Identity, RunSpec, SectionSource};
pub use machine::{Call, Machine, RunFold, Step};
pub use prompt::{FixedSection, Surroundings};
pub use retry::RetryConfig;
pub use sink::{EventSink, EventStream, Subscribers};
pub use summary::{Denial, ModelUse, RunSummary, Totals, Words};
