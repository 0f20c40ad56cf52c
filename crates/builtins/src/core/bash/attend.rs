//! Waits for a command: reads what it writes until it has ended, its time is up or it is cancelled. Used for commands that a
//! call waits for and for those in the background; what they do otherwise is said by their [`Sink`].

use open_agent_tool::{Exit, LimitHit, Running};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::output::Side;
use super::process::{DRAIN, Pipes, read_some};

/// How a command came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Exited(Exit),
    TimedOut,
    /// It was killed because its cancellation was asked for.
    Cancelled,
}

impl End {
    fn of(exit: Exit) -> Self {
        match exit.limit {
            Some(LimitHit::Time) => Self::TimedOut,
            _ => Self::Exited(exit),
        }
    }

    pub(super) fn was_killed(self) -> bool {
        matches!(self, Self::TimedOut | Self::Cancelled)
    }
}

/// Where a command's output goes.
pub(super) trait Sink {
    /// Takes a piece of what the command wrote; an empty one when the stream is closed.
    fn push(&mut self, side: Side, bytes: &[u8]) -> impl Future<Output = ()> + Send;

    /// When it wants to show what it has next; `None` = not by itself. `is_running` is false once the command has ended and
    /// only the rest of its output is read.
    fn due(&self, is_running: bool) -> Option<Instant>;

    /// Shows what it has.
    fn show(&mut self) -> impl Future<Output = ()> + Send;
}

/// Reads what the command writes until it has ended, which the runner sees to in time, or it is cancelled.
pub(super) async fn attend(
    running: &mut dyn Running,
    pipes: &mut Pipes,
    sink: &mut impl Sink,
    cancel: &CancellationToken,
) -> End {
    let mut ended: Option<(End, Instant)> = None;
    let (mut out, mut err) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        let drained = ended.map(|(_, until)| until);
        if let Some((end, until)) = ended
            && (pipes.are_closed() || Instant::now() >= until)
        {
            return end;
        }
        let due = sink.due(ended.is_none());
        tokio::select! {
            n = read_some(&mut pipes.stdout, &mut out) => sink.push(Side::Out, &out[..n]).await,
            n = read_some(&mut pipes.stderr, &mut err) => sink.push(Side::Err, &err[..n]).await,
            exit = running.wait(), if ended.is_none() => {
                ended = Some((End::of(exit.unwrap_or_default()), Instant::now() + DRAIN));
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => sink.show().await,
            () = sleep_until(drained.unwrap_or_else(Instant::now)), if drained.is_some() => {}
            () = cancel.cancelled(), if ended.is_none() => {
                running.kill().await;
                ended = Some((End::Cancelled, Instant::now() + DRAIN));
            }
        }
    }
}
