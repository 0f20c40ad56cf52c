//! The one way in which others reach a run that goes on: a bounded mailbox of commands, each of which gets a receipt.

use open_agent_model::{Answer, AskId, BackgroundId, Block, QueueId, Seq};
use open_agent_session::ModelSettings;
use tokio::sync::{mpsc, oneshot};

use crate::EngineError;

/// The most commands that wait for the driver.
const MAX_WAITING: usize = 256;

/// Something that is asked of a run from outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Sends a message.
    Send {
        /// What it says.
        prompt: Vec<Block>,
        /// True: the run's next request carries it. False: it waits until the run has ended and starts the next one.
        steer: bool,
    },
    /// Takes a message back that was not delivered yet.
    Unqueue(QueueId),
    /// Answers a question.
    Answer(AskId, Answer),
    /// Uses these model settings from the next request on.
    Configure(ModelSettings),
    /// Asks background work to stop. Its end is told as any other.
    StopBackground(BackgroundId),
    /// Stops the run.
    Interrupt,
}

/// What became of a command that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The log's last record once the command was carried out.
    pub seq: Seq,
    /// The name of the message that was queued.
    pub queued: Option<QueueId>,
}

/// The sending end of a run's mailbox. Clones send to the same run.
#[derive(Clone, Debug)]
pub struct Mailbox(mpsc::Sender<Box<Letter>>);

/// The driver's end of the mailbox.
#[derive(Debug)]
pub struct Inbox(mpsc::Receiver<Box<Letter>>);

/// A command and the way back to whoever sent it. Boxed in the mailbox, which has room for some dozens from the beginning.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) command: Command,
    pub(crate) receipt: Option<oneshot::Sender<Result<Receipt, EngineError>>>,
}

/// Makes a mailbox for a run.
#[must_use]
pub fn mailbox() -> (Mailbox, Inbox) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    (Mailbox(sender), Inbox(receiver))
}

impl Mailbox {
    /// Sends a command and waits for its receipt. Waits while the mailbox is full.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoRun`] if the run has ended, and otherwise why the command was not accepted.
    pub async fn send(&self, command: Command) -> Result<Receipt, EngineError> {
        let (receipt, received) = oneshot::channel();
        let letter = Box::new(Letter { command, receipt: Some(receipt) });
        self.0.send(letter).await.map_err(|_| EngineError::NoRun)?;
        received.await.unwrap_or(Err(EngineError::NoRun))
    }

    /// Sends a command without waiting for its receipt. Returns false if the run has ended or the mailbox is full.
    pub fn post(&self, command: Command) -> bool {
        self.0.try_send(Box::new(Letter { command, receipt: None })).is_ok()
    }
}

impl Inbox {
    /// Returns the next command; never, once nobody can send any more.
    pub(crate) async fn next(&mut self) -> Letter {
        match self.0.recv().await {
            Some(letter) => *letter,
            None => std::future::pending().await,
        }
    }

    /// Returns a command that waits already.
    pub(crate) fn try_next(&mut self) -> Option<Letter> {
        self.0.try_recv().ok().map(|letter| *letter)
    }

    /// Takes no further commands; those that wait can still be read.
    pub(crate) fn close(&mut self) {
        self.0.close();
    }
}
