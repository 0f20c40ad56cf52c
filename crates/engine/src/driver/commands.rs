//! Commands to a run that goes on: what each becomes in the log, and its receipt.

use std::sync::Arc;

use open_agent_model::{Message, MessageId, QueueId, Role};
use open_agent_session::{Durability, Origin, Queued, SessionEntry};

use super::{Driver, prompt_content};
use crate::command::Letter;
use crate::{Command, EngineError, Receipt};

impl Driver {
    /// Carries out a command and gives its receipt. An error is the store's: the command that cannot be accepted is told to
    /// whoever sent it.
    pub(super) async fn obey(&mut self, letter: Letter) -> Result<(), EngineError> {
        let obeyed = self.command(letter.command).await;
        let (told, failed) = match obeyed {
            Err(EngineError::Store(error)) => (Err(EngineError::NoRun), Err(EngineError::Store(error))),
            other => (other, Ok(())),
        };
        if let Some(receipt) = letter.receipt {
            // Whoever sent it may have gone away.
            let _ = receipt.send(told);
        }
        failed
    }

    /// Carries out a command.
    ///
    /// # Errors
    ///
    /// Returns why the command cannot be accepted, or [`EngineError::Store`] if the log cannot be written.
    pub async fn command(&mut self, command: Command) -> Result<Receipt, EngineError> {
        let mut queued = None;
        match command {
            Command::Send { prompt, steer } => {
                let content = prompt_content(prompt)?;
                let clock = &self.host.ports.clock;
                let id = QueueId::from_number(clock.new_id());
                let message_id = MessageId::from_number(clock.new_id());
                let message = Arc::new(Message { id: message_id, role: Role::User, content, model: None });
                let entry = Queued { id, message, origin: Origin::Prompt.into(), steer };
                self.record(vec![SessionEntry::Queued(entry)], Durability::Synced).await?;
                queued = Some(id);
            }
            Command::Unqueue(id) => {
                if !self.machine.queue().iter().any(|queued| queued.id == id) {
                    return Err(EngineError::NotQueued(id));
                }
                self.record(vec![SessionEntry::Unqueued { id }], Durability::Synced).await?;
            }
            Command::Answer(ask, answer) => self.answer(ask, answer).await?,
            Command::Configure(settings) => self.configure(settings).await?,
            Command::StopBackground(id) => {
                let (background, owner) = (&self.host.ports.background, self.owner());
                if background.find(&owner, &id).is_none() {
                    return Err(EngineError::NoBackgroundWork(id));
                }
                // The run does not wait for the end; whoever asked may.
                drop(background.stop(&owner, &id));
            }
            Command::Interrupt => self.cancel.cancel(),
        }
        Ok(Receipt { seq: self.machine.seq(), queued })
    }

    /// Takes no further commands and carries out those that were sent before. Called when a run is over, so that no message
    /// is lost between its end and the next run.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Store`] if the log cannot be written.
    pub async fn close_inbox(&mut self) -> Result<(), EngineError> {
        let Some(mut inbox) = self.inbox.take() else { return Ok(()) };
        inbox.close();
        while let Some(letter) = inbox.try_next() {
            self.obey(letter).await?;
        }
        Ok(())
    }

    /// Takes no further commands and refuses those that wait: whoever sent one learns that no run goes on. Called when a
    /// run could not begin.
    pub fn refuse_inbox(&mut self) {
        self.inbox = None;
    }
}
