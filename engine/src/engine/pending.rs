//! The answer to come: a future for any runtime, and a wait for plain threads.
//!
//! Owns the waiting and nothing else. What was asked is with the shard, or on its way there, whatever becomes of the
//! [`Pending`]. Needs no runtime: it is woken by whoever completes it. Tested in `tests/engine/runtimes.rs` and
//! `tests/engine/cancel.rs`.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::sync::oneshot;

use super::error::Gone;

/// The outcome of a call, to come.
///
/// In async code `.await` it, on any runtime. On a plain thread call [`wait`](Self::wait), which blocks.
///
/// The call itself was made when this was returned, if there was room; then dropping it changes nothing but that nobody
/// hears of the outcome. Where there was none ([`is_waiting_for_room`](Self::is_waiting_for_room)), the request goes once
/// there is room and this is polled, and is withdrawn if this is dropped before.
#[must_use = "the outcome is known only once this has been awaited or waited for"]
pub struct Pending<T, E> {
    state: State<T, E>,
}

enum State<T, E> {
    Done(Option<Result<T, E>>),
    Sent(oneshot::Receiver<Result<T, E>>),
    /// For room first.
    Waiting(Pin<Box<dyn Future<Output = Result<T, E>> + Send>>),
}

impl<T, E> Pending<T, E> {
    pub(super) fn done(result: Result<T, E>) -> Self {
        Self {
            state: State::Done(Some(result)),
        }
    }

    pub(super) fn sent(receiver: oneshot::Receiver<Result<T, E>>) -> Self {
        Self {
            state: State::Sent(receiver),
        }
    }

    pub(super) fn waiting(future: impl Future<Output = Result<T, E>> + Send + 'static) -> Self {
        Self {
            state: State::Waiting(Box::pin(future)),
        }
    }

    /// Whether the request has not been handed over, for want of room. It keeps its place among those that wait from
    /// the first poll on; requests made meanwhile may overtake it.
    #[must_use]
    pub fn is_waiting_for_room(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }
}

impl<T: Unpin, E: From<Gone> + Unpin> Pending<T, E> {
    /// Blocks the thread until the outcome is there. Not for async code, whose thread has other things to do.
    ///
    /// # Errors
    ///
    /// Those of the call that returned this.
    pub fn wait(self) -> Result<T, E> {
        block_on(self)
    }
}

impl<T: Unpin, E: From<Gone> + Unpin> Future for Pending<T, E> {
    type Output = Result<T, E>;

    /// # Panics
    ///
    /// After it has been ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        match &mut self.state {
            State::Done(result) => Poll::Ready(result.take().expect("polled after it was ready")),
            State::Sent(receiver) => Pin::new(receiver)
                .poll(cx)
                .map(|answer| answer.unwrap_or_else(|_| Err(Gone::Closed.into()))),
            State::Waiting(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T, E> fmt::Debug for Pending<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Done(_) => "Done",
            State::Sent(_) => "Sent",
            State::Waiting(_) => "Waiting",
        })
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static UNPARK_ME: RefCell<Waker> = RefCell::new(Waker::from(Arc::new(Unpark(thread::current()))));
}

/// Runs `future` on this thread, which sleeps meanwhile.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = UNPARK_ME.with_borrow(Waker::clone);
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        thread::park();
    }
}
