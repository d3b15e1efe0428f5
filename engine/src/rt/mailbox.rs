//! Bounded mailboxes: how one shard (or any thread) hands work to another.
//!
//! Knows nothing of what is sent. A full mailbox makes senders wait: backpressure reaches the
//! connection that causes the load, whose socket is then not read. Invariant: messages of one
//! sender arrive in order, none is lost while the receiver lives.

use std::fmt;

use tokio::sync::mpsc;

/// Makes one mailbox of at most `capacity` waiting messages per shard, `shards` in all.
///
/// # Panics
///
/// If `capacity` is 0.
#[must_use]
pub fn mailboxes<T>(shards: usize, capacity: usize) -> (Vec<Mailbox<T>>, Vec<MailboxReceiver<T>>) {
    (0..shards)
        .map(|_| {
            let (sender, receiver) = mpsc::channel(capacity);
            (Mailbox { sender }, MailboxReceiver { receiver })
        })
        .unzip()
}

/// The sending end of one shard's mailbox; cheap to clone, usable from any thread.
pub struct Mailbox<T> {
    sender: mpsc::Sender<T>,
}

impl<T> Mailbox<T> {
    /// Sends `message`, waiting while the mailbox is full.
    ///
    /// Send from the task that has the work (a connection's), never from the one that drains this
    /// shard's own mailbox: two full shards whose drains send to each other would wait for ever.
    /// For the same reason answers travel in a oneshot channel, which always has room.
    ///
    /// # Errors
    ///
    /// The message, if the receiving shard has ended.
    ///
    /// # Cancel safety
    ///
    /// A dropped send has sent nothing, and its message is dropped with it.
    pub async fn send(&self, message: T) -> Result<(), MailboxClosed<T>> {
        self.sender
            .send(message)
            .await
            .map_err(|refused| MailboxClosed(refused.0))
    }

    /// Sends `message` if there is room at once.
    ///
    /// # Errors
    ///
    /// The message, if the mailbox is full or the receiving shard has ended.
    pub fn try_send(&self, message: T) -> Result<(), MailboxRefused<T>> {
        self.sender.try_send(message).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(message) => MailboxRefused::Full(message),
            mpsc::error::TrySendError::Closed(message) => MailboxRefused::Closed(message),
        })
    }
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
        }
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("room", &self.sender.capacity())
            .finish_non_exhaustive()
    }
}

/// The receiving end of one shard's mailbox.
pub struct MailboxReceiver<T> {
    receiver: mpsc::Receiver<T>,
}

impl<T> MailboxReceiver<T> {
    /// The next message; `None` once all senders are gone and all messages taken.
    ///
    /// # Cancel safety
    ///
    /// A dropped receive has taken no message.
    pub async fn recv(&mut self) -> Option<T> {
        self.receiver.recv().await
    }

    /// Waits for a message, then moves up to `max` of those there are into `into`; returns how
    /// many, 0 once all senders are gone.
    ///
    /// # Cancel safety
    ///
    /// A dropped receive has taken no message.
    pub async fn recv_many(&mut self, into: &mut Vec<T>, max: usize) -> usize {
        self.receiver.recv_many(into, max).await
    }
}

impl<T> MailboxReceiver<T> {
    /// Refuses what is sent from now on, and drops what was sent before: whoever waits for an answer to it learns
    /// that there is none. Dropping the receiver leaves a message behind that is being sent at this moment.
    pub async fn finish(mut self) {
        self.receiver.close();
        while self.receiver.recv().await.is_some() {}
    }
}

impl<T> fmt::Debug for MailboxReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxReceiver")
            .field("waiting", &self.receiver.len())
            .finish_non_exhaustive()
    }
}

/// The receiving shard has ended; here is the message back.
#[derive(thiserror::Error)]
#[error("the shard has ended")]
pub struct MailboxClosed<T>(pub T);

/// The message was not taken; here it is back.
#[derive(thiserror::Error)]
pub enum MailboxRefused<T> {
    /// As many messages wait as the mailbox holds.
    #[error("the shard's mailbox is full")]
    Full(T),
    /// The receiving shard has ended.
    #[error("the shard has ended")]
    Closed(T),
}

impl<T> fmt::Debug for MailboxClosed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MailboxClosed")
    }
}

impl<T> fmt::Debug for MailboxRefused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Closed(_) => "Closed",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn full_mailbox_makes_the_sender_wait_for_room() {
        let (senders, mut receivers) = mailboxes(1, 1);
        senders[0].try_send(1).unwrap();
        assert!(matches!(senders[0].try_send(2), Err(MailboxRefused::Full(2))));
        let mut cx = Context::from_waker(Waker::noop());
        let mut send = pin!(senders[0].send(2));
        assert!(send.as_mut().poll(&mut cx).is_pending());
        assert!(matches!(
            pin!(receivers[0].recv()).poll(&mut cx),
            Poll::Ready(Some(1))
        ));
        assert!(matches!(send.as_mut().poll(&mut cx), Poll::Ready(Ok(()))));
        assert!(matches!(
            pin!(receivers[0].recv()).poll(&mut cx),
            Poll::Ready(Some(2))
        ));
    }

    #[test]
    fn whoever_asks_while_the_shard_ends_learns_that_there_is_no_answer() {
        for _ in 0..2000 {
            let (mailboxes, mut receivers) = mailboxes::<std::sync::mpsc::Sender<()>>(1, 4);
            let asks = std::thread::spawn({
                let mailbox = mailboxes[0].clone();
                move || {
                    let (reply, answer) = std::sync::mpsc::channel();
                    let sent = mailbox.try_send(reply).is_ok();
                    (sent, answer.recv_timeout(std::time::Duration::from_secs(60)))
                }
            });
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(receivers.remove(0).finish());
            let (_, answer) = asks.join().unwrap();
            assert_eq!(answer, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
        }
    }

    #[test]
    fn message_to_an_ended_shard_comes_back() {
        let (senders, receivers) = mailboxes(1, 1);
        drop(receivers);
        assert!(matches!(
            senders[0].try_send("work"),
            Err(MailboxRefused::Closed("work"))
        ));
    }
}
