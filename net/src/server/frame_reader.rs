//! Cuts one connection's byte stream into request frames.
//!
//! Owns the read buffers. A frame's bytes are read once, into the buffer that the log later
//! writes from. Nothing is allocated on the claimed length beyond the pool's largest buffer: a larger
//! frame's grows as its bytes arrive. Knows no requests.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::timeout;

use super::budget::RequestMemory;
use super::frame_pool::BUFFER_BYTES_MAX;

/// What is read at once while the size of a frame is unknown: a whole small request, or little enough
/// of a large one that moving it to its own buffer costs nothing.
const HEAD_BYTES: usize = 4096;

const SIZE_BYTES: usize = 4;

/// Why a connection's frames end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The size field is negative or too large.
    #[error("a request of {size} bytes; at most {max} are accepted (socket.request.max.bytes)")]
    Size { size: i64, max: usize },
    /// The client closed or broke the connection within a frame.
    #[error("the connection ended within a request")]
    Cut,
    /// No byte came for too long within a frame.
    #[error("no bytes for {0:?} within a request")]
    Stalled(Duration),
    /// The memory for requests stayed used up: what this one holds is given to the others.
    #[error("no memory for the rest of a request for {0:?} (queued.max.request.bytes)")]
    NoMemory(Duration),
    /// The connection has had nothing to say for too long.
    #[error("idle for {0:?} (connections.max.idle.ms)")]
    Idle(Duration),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads frames from one socket.
#[derive(Debug)]
pub(crate) struct FrameReader {
    stream: OwnedReadHalf,
    /// Bytes read and not yet given out: less than a frame, or the start of the next ones.
    buffer: BytesMut,
    max_frame_bytes: usize,
    idle_limit: Duration,
    stall_limit: Duration,
}

impl FrameReader {
    pub(crate) fn new(
        stream: OwnedReadHalf,
        max_frame_bytes: usize,
        idle_limit: Duration,
        stall_limit: Duration,
    ) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            max_frame_bytes,
            idle_limit,
            stall_limit,
        }
    }

    /// The next frame without its size field, or `None` when the client has closed between frames.
    /// The frame's bytes are counted in `memory` as they arrive.
    ///
    /// # Cancel safety
    ///
    /// Bytes that were read stay in the reader, but `memory` forgets what it counted: do not go on
    /// after a cancelled call.
    pub(crate) async fn next_frame(
        &mut self,
        memory: &mut RequestMemory,
    ) -> Result<Option<BytesMut>, FrameError> {
        memory.add(self.buffer.len());
        let size = loop {
            if self.buffer.len() >= SIZE_BYTES {
                break self.frame_size()?;
            }
            let within_frame = !self.buffer.is_empty();
            self.buffer.reserve(HEAD_BYTES);
            if self.read(HEAD_BYTES, within_frame, memory).await? == 0 {
                return if within_frame {
                    Err(FrameError::Cut)
                } else {
                    Ok(None)
                };
            }
        };
        let whole = SIZE_BYTES + size;
        if self.buffer.len() < whole && self.buffer.capacity() < whole {
            // A buffer of its own, so that reading never runs into the next frame and never moves this one.
            let mut own = memory.pool().take(whole);
            own.extend_from_slice(&self.buffer);
            self.buffer = own;
        }
        while self.buffer.len() < whole {
            let missing = whole - self.buffer.len();
            if self.buffer.capacity() == self.buffer.len() {
                self.buffer.reserve(missing.min(self.buffer.len()));
            }
            if self.read(missing, true, memory).await? == 0 {
                return Err(FrameError::Cut);
            }
        }
        let mut frame = self.buffer.split_to(whole);
        if self.buffer.is_empty() && (HEAD_BYTES..=BUFFER_BYTES_MAX).contains(&whole) {
            memory.pool().give_back(std::mem::take(&mut self.buffer));
        }
        frame.advance(SIZE_BYTES);
        Ok(Some(frame))
    }

    fn frame_size(&self) -> Result<usize, FrameError> {
        let mut field = &self.buffer[..SIZE_BYTES];
        let size = field.get_i32();
        usize::try_from(size)
            .ok()
            .filter(|size| *size <= self.max_frame_bytes)
            .ok_or(FrameError::Size {
                size: size.into(),
                max: self.max_frame_bytes,
            })
    }

    async fn read(
        &mut self,
        limit: usize,
        within_frame: bool,
        memory: &mut RequestMemory,
    ) -> Result<usize, FrameError> {
        if within_frame {
            let ready = timeout(self.stall_limit, memory.ready()).await;
            ready.map_err(|_| FrameError::NoMemory(self.stall_limit))?;
        } else {
            memory.ready().await;
        }
        let limit = limit
            .min(memory.allowance())
            .min(self.buffer.capacity() - self.buffer.len());
        let wait = if within_frame {
            self.stall_limit
        } else {
            self.idle_limit
        };
        let mut target = (&mut self.buffer).limit(limit);
        let Ok(read) = timeout(wait, self.stream.read_buf(&mut target)).await else {
            return Err(if within_frame {
                FrameError::Stalled(wait)
            } else {
                FrameError::Idle(wait)
            });
        };
        let read = read?;
        memory.add(read);
        Ok(read)
    }
}
