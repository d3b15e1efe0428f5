//! One client's connection: frames in, replies out in the order of the requests.
//!
//! Owns the socket. Requests are dispatched one after another, in order; their replies may become
//! ready in any order and are written in the order of the requests. A bound on the replies under
//! way stops the reading (`max.inflight.requests.per.connection`). Knows no API.
//! What a client does wrong costs its own connection only.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use ringlog_engine::rt::residency::ensure_resident;
use ringlog_engine::rt::{FileRange, send_file};
use tokio::io::AsyncWriteExt;

use super::budget::{Budget, RequestMemory};
use super::dispatch::{self, PendingReply};
use super::frame_reader::{FrameError, FrameReader};
use super::limited_log::LimitedLog;
use super::listener::Endpoints;
use super::response::Response;
use super::shard::Shard;
use crate::protocol::encode::Segment;

/// A request's bytes, or a client's reading of a reply, may stand still for so long.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// So much of a reply must be taken within [`STALL_LIMIT`]: a slow client is served, however long its
/// whole reply takes.
const SEND_BYTES: u32 = 128 * 1024;

/// What a request's handler may use.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) shard: Rc<Shard>,
    pub(crate) endpoints: Rc<Endpoints>,
    /// The listener the client came by; it is told that listener's addresses.
    pub(crate) listener: usize,
    pub(crate) peer: SocketAddr,
    /// Who breaks the protocol may do so as often as it likes.
    pub(crate) misbehaving: Rc<LimitedLog>,
    /// Who asks for what is not there yet asks again and again.
    pub(crate) unsupported: Rc<LimitedLog>,
}

struct QueuedReply {
    reply: PendingReply,
    /// The request's bytes count until its reply is ready.
    memory: RequestMemory,
}

/// Serves `stream` until the client leaves, errs, or the broker stops.
pub(crate) async fn serve(
    context: Context,
    stream: TcpStream,
    budget: Rc<Budget>,
    stop: watch::Receiver<bool>,
) {
    let (config, peer) = (context.shard.config(), context.peer);
    // Small replies must not wait for the client's acknowledgement of the one before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "connection lost");
        return;
    }
    unpace_loopback(&stream, peer);
    let (read, write) = stream.into_split();
    let reader = FrameReader::new(
        read,
        config.request_bytes_max,
        config.connection_idle_max,
        STALL_LIMIT,
    );
    let (queue, replies) = mpsc::channel(config.inflight_requests_max);
    let mut writing = std::pin::pin!(write_replies(&context, write, replies));
    let reading = std::pin::pin!(read_requests(&context, reader, &budget, queue, stop));
    let ended = tokio::select! {
        ended = reading => match ended {
            // The replies under way are still owed.
            Ok(()) => writing.await,
            Err(error) => Err(error),
        },
        ended = &mut writing => ended,
    };
    match ended {
        Ok(()) => {}
        Err(error @ (ConnectionError::Frame(_) | ConnectionError::Request(_))) => {
            context
                .misbehaving
                .log(|| tracing::warn!(%peer, %error, "connection closed"));
        }
        Err(error) => tracing::debug!(%peer, %error, "connection closed"),
    }
}

/// Congestion controls without pacing; the last is always there.
const UNPACED: [&[u8]; 2] = [b"cubic", b"reno"];

/// Takes a client on this machine off a congestion control that paces what it sends, as BBR does:
/// there is no network to spare, and the pacing timers cost more than the sending.
fn unpace_loopback(stream: &TcpStream, peer: SocketAddr) {
    if peer.ip().to_canonical().is_loopback() {
        let socket = SockRef::from(stream);
        // Where none is accepted the connection works as it is.
        let _ = UNPACED.iter().any(|name| socket.set_tcp_congestion(name).is_ok());
    }
}

#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    Frame(FrameError),
    #[error(transparent)]
    Request(#[from] dispatch::CloseReason),
    #[error("idle for {0:?} (connections.max.idle.ms)")]
    Idle(Duration),
    #[error("the client does not read its replies")]
    Stalled,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a reply's records cannot be read: {0}")]
    Storage(#[from] ringlog_engine::io::IoError),
}

impl From<FrameError> for ConnectionError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Io(error) => Self::Io(error),
            // Clients leave like this every day.
            FrameError::Idle(limit) => Self::Idle(limit),
            error => Self::Frame(error),
        }
    }
}

async fn read_requests(
    context: &Context,
    mut reader: FrameReader,
    budget: &Rc<Budget>,
    queue: mpsc::Sender<QueuedReply>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), ConnectionError> {
    loop {
        // A place in the queue comes first: without one the socket is not read.
        let Ok(place) = queue.reserve().await else {
            return Ok(());
        };
        let mut memory = budget.open();
        let frame = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
            frame = reader.next_frame(&mut memory) => frame?,
        };
        let Some(frame) = frame else { return Ok(()) };
        let reply = dispatch::dispatch(context, frame).await?;
        place.send(QueuedReply { reply, memory });
    }
}

async fn write_replies(
    context: &Context,
    mut socket: OwnedWriteHalf,
    mut replies: mpsc::Receiver<QueuedReply>,
) -> Result<(), ConnectionError> {
    while let Some(QueuedReply { reply, memory }) = replies.recv().await {
        let response = reply.await?;
        drop(memory);
        if let Some(response) = response {
            write_response(context, &mut socket, response).await?;
        }
    }
    Ok(())
}

async fn write_response(
    context: &Context,
    socket: &mut OwnedWriteHalf,
    response: Response,
) -> Result<(), ConnectionError> {
    for segment in response.frame.into_segments() {
        match segment {
            Segment::Bytes(bytes) => {
                for piece in bytes.chunks(usize::try_from(SEND_BYTES).expect("32 bits fit")) {
                    timeout(STALL_LIMIT, socket.write_all(piece))
                        .await
                        .map_err(|_| ConnectionError::Stalled)??;
                }
            }
            Segment::External { tag, .. } => {
                let payload = usize::try_from(tag).expect("32 bits fit");
                let range = &response.payloads[payload];
                // The first was seen to when the reply was made; a slow client may let the others grow cold.
                if payload > 0 {
                    ensure_resident(&context.shard.io, range).await?;
                }
                for piece in pieces(range) {
                    let sent = send_file(socket.as_ref(), &piece, context.shard.io.counters());
                    timeout(STALL_LIMIT, sent)
                        .await
                        .map_err(|_| ConnectionError::Stalled)??;
                }
            }
        }
    }
    Ok(())
}

/// `range` in parts of [`SEND_BYTES`].
fn pieces(range: &FileRange) -> impl Iterator<Item = FileRange> + '_ {
    let starts = (0..range.len_bytes).step_by(usize::try_from(SEND_BYTES).expect("32 bits fit"));
    starts.map(|start| FileRange {
        file: range.file.clone(),
        position: range.position + u64::from(start),
        len_bytes: (range.len_bytes - start).min(SEND_BYTES),
    })
}
