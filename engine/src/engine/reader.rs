//! Reads a log from an offset on: an iterator for plain threads, a stream for async code.
//!
//! Owns the buffer, the place in the log, and the check of every batch: checksum, and offsets that only grow. Bytes come from
//! the page cache on the reader's own thread; the shard is asked where they lie, once for many of them, and for what
//! is not in the cache. What a length in the bytes claims is never reserved beyond the range that the shard has named.
//! Tested in `tests/engine/read.rs` and `tests/engine/truncate.rs`.
//!
//! The file may be cut while it is read. A truncation counts up the log's generation before it touches the file; bytes that
//! were read count only if the generation is still that of the plan.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;

use super::batch::Batch;
use super::config::ReadConfig;
use super::error::ReadError;
use super::handle::{LogHandle, REQUEST_BYTES};
use super::message::{Locate, Located, LogRequest};
use super::pending::{Pending, block_on};
use crate::io::IoError;
use crate::log::Defect;
use crate::record::{BatchError, BatchHeader, RecordBatch};
use crate::rt::LogFile;
use crate::rt::residency::{Wait, read_into};
use crate::types::{Offset, TimestampMs};

/// One answer of the shard is good for so many bytes.
const RANGE_BYTES: u32 = 16 << 20;
/// The first chunk; each is four times the one before, up to the configured size.
const FIRST_CHUNK_BYTES: u32 = 16 << 10;
/// The bounds of [`ReadConfig::chunk_bytes`].
const CHUNK_BYTES_MIN: u32 = 4 << 10;
const CHUNK_BYTES_MAX: u32 = 16 << 20;

/// A record that was found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp.
    pub timestamp: TimestampMs,
}

/// The batches of a log from an offset on, in order.
///
/// As an iterator it blocks: for the disk, and, if it follows the log, until there is more. For async code there is
/// [`into_stream`](Self::into_stream). After an error it gives nothing more; make another from
/// [`next_offset`](Self::next_offset).
#[derive(Debug)]
pub struct Reader {
    log: LogHandle,
    config: ReadConfig,
    /// The first offset that has not been given out.
    next: Offset,
    range: Option<Range>,
    /// Read from the range and not given out; begins with a batch.
    buffer: BytesMut,
    chunk_bytes: u32,
    asked: Option<Asked>,
    /// The log had nothing for us when it reached to here.
    nothing_at: Option<Offset>,
    /// The log's generation when a scan began: if it is another now, the end may never be reached.
    scan_of: Option<u64>,
    done: bool,
}

/// Where to read next.
#[derive(Debug)]
struct Range {
    file: Arc<LogFile>,
    position: u64,
    end: u64,
    generation: u64,
    /// No batch of it has been found yet.
    fresh: bool,
}

impl Range {
    fn left(&self) -> u64 {
        self.end - self.position
    }
}

/// What the shard has been asked.
#[derive(Debug)]
enum Asked {
    Locate(Pending<Option<Located>, ReadError>),
    Read(Pending<Bytes, ReadError>),
}

impl Reader {
    pub(super) fn new(log: LogHandle, from: Offset, mut config: ReadConfig) -> Self {
        config.chunk_bytes = config.chunk_bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        Self {
            chunk_bytes: config.chunk_bytes.min(FIRST_CHUNK_BYTES),
            log,
            config,
            next: from,
            range: None,
            buffer: BytesMut::new(),
            asked: None,
            nothing_at: None,
            scan_of: None,
            done: false,
        }
    }

    pub(super) fn scan(log: LogHandle, from: Offset) -> Self {
        // The generation first: a truncation in between is then noticed.
        let scan_of = Some(log.shared.generation());
        let config = ReadConfig {
            end: Some(log.shared.offsets().written),
            ..ReadConfig::default()
        };
        Self {
            scan_of,
            ..Self::new(log, from, config)
        }
    }

    /// The first offset that has not been given out.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.next
    }

    /// The same as a stream, for any runtime.
    #[must_use]
    pub fn into_stream(self) -> ReaderStream {
        ReaderStream { reader: self }
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>, wait: Wait) -> Poll<Option<Result<Batch, ReadError>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let batch = ready!(self.poll_next_batch(cx, wait));
        if !matches!(batch, Ok(Some(_))) {
            self.done = true;
            (self.range, self.buffer) = (None, BytesMut::new());
        }
        Poll::Ready(batch.transpose())
    }

    fn poll_next_batch(
        &mut self,
        cx: &mut Context<'_>,
        wait: Wait,
    ) -> Poll<Result<Option<Batch>, ReadError>> {
        loop {
            if let Some(asked) = &mut self.asked {
                match asked {
                    Asked::Locate(pending) => {
                        let located = ready!(Pin::new(pending).poll(cx));
                        self.asked = None;
                        match located {
                            // The log may have grown again meanwhile.
                            Err(ReadError::OutOfRange(range))
                                if self.is_truncated() && range.offset >= range.log_end_offset =>
                            {
                                return Poll::Ready(Ok(None));
                            }
                            located => self.handle_located(located?),
                        }
                    }
                    Asked::Read(pending) => {
                        let bytes = ready!(Pin::new(pending).poll(cx));
                        self.asked = None;
                        self.handle_read(bytes?.as_ref())?;
                    }
                }
            }
            let end = self.config.end.unwrap_or(Offset(i64::MAX));
            if self.next >= end {
                return Poll::Ready(Ok(None));
            }
            match self.take_batch()? {
                Some(batch) if batch.base_offset() >= end => return Poll::Ready(Ok(None)),
                Some(batch) => return Poll::Ready(Ok(Some(batch))),
                None => {}
            }
            if self.range.as_ref().is_some_and(|range| range.left() > 0) {
                self.read_chunk(wait)?;
            } else if self.is_cut_short() {
                return Poll::Ready(Ok(None));
            } else if !self.locate_if_there_is_more() {
                self.log.shared.wait_for_change(cx.waker());
                if self.locate_if_there_is_more() {
                    continue;
                }
                if let Some(ended) = self.log.shared.ended() {
                    return Poll::Ready(Err(ended));
                }
                return Poll::Pending;
            }
        }
    }

    /// Whether this is a scan of a log that has been truncated to less than has been scanned.
    fn is_cut_short(&self) -> bool {
        self.is_truncated() && self.next >= self.log.shared.visible(self.config.visibility)
    }

    /// Whether this is a scan of a log that has been truncated since it began.
    fn is_truncated(&self) -> bool {
        self.scan_of
            .is_some_and(|generation| generation != self.log.shared.generation())
    }

    fn locate_if_there_is_more(&mut self) -> bool {
        let visible = self.log.shared.visible(self.config.visibility);
        // Asked also for what is out of range, which the shard then says.
        let there_is_more = self.next != visible && self.nothing_at != Some(visible);
        if there_is_more {
            self.nothing_at = Some(visible);
            let wanted = Locate {
                offset: self.next,
                max_bytes: RANGE_BYTES,
                visibility: self.config.visibility,
            };
            let pending = self
                .log
                .request(REQUEST_BYTES, |reply| LogRequest::Locate(wanted, reply));
            self.asked = Some(Asked::Locate(pending));
        }
        there_is_more
    }

    fn handle_located(&mut self, located: Option<Located>) {
        self.buffer.clear();
        self.range = located.map(|located| {
            self.nothing_at = None;
            Range {
                file: located.file,
                position: located.position,
                end: located.position + u64::from(located.len_bytes),
                generation: located.generation,
                fresh: true,
            }
        });
    }

    /// Reads on, at least to the end of the batch that the buffer begins with.
    fn read_chunk(&mut self, wait: Wait) -> Result<(), ReadError> {
        let range = self.range.as_mut().expect("the caller has looked");
        let begun = BatchHeader::peek(&self.buffer).map_or(0, BatchHeader::len_bytes);
        let missing = begun.saturating_sub(self.buffer.len()) as u64;
        // A batch beyond the range has been refused when it was looked at.
        let len_bytes = missing.max(u64::from(self.chunk_bytes)).min(range.left());
        let len_bytes = u32::try_from(len_bytes).expect("a range is named by 32 bits");
        self.chunk_bytes = self.chunk_bytes.saturating_mul(4).min(self.config.chunk_bytes);
        let position = range.position;
        let read = read_into(&range.file, position, len_bytes as usize, wait, &mut self.buffer)
            .map_err(|source| IoError::new(format!("read {}", range.file.path().display()), source))?;
        match read {
            Some(count) => self.advance(count as u64),
            None => {
                let file = Arc::clone(&range.file);
                let pending = self.log.request(REQUEST_BYTES, |reply| LogRequest::Read {
                    file,
                    position,
                    len_bytes,
                    reply,
                });
                self.asked = Some(Asked::Read(pending));
                Ok(())
            }
        }
    }

    fn handle_read(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        self.buffer.extend_from_slice(bytes);
        self.advance(bytes.len() as u64)
    }

    /// `count` bytes have come; they count only if the file is still what it was when the range was named.
    fn advance(&mut self, count: u64) -> Result<(), ReadError> {
        let Some(range) = &mut self.range else {
            return Ok(());
        };
        self.log.shared.counters.read_bytes.add(count);
        if self.log.shared.generation() != range.generation {
            self.range = None;
            self.buffer.clear();
        } else if count == 0 {
            return Err(self.damaged(Defect::Torn));
        } else {
            range.position += count;
        }
        Ok(())
    }

    /// The batch that the buffer begins with, if it is whole.
    fn take_batch(&mut self) -> Result<Option<Batch>, ReadError> {
        loop {
            let Some(range) = &self.range else { return Ok(None) };
            let header = match BatchHeader::peek(&self.buffer) {
                Ok(header) => header,
                Err(BatchError::Incomplete { .. }) if range.left() > 0 => return Ok(None),
                Err(BatchError::Incomplete { .. }) => return self.past_the_range(),
                Err(error) => return Err(self.damaged(error.into())),
            };
            let len_bytes = header.len_bytes();
            if self.buffer.len() < len_bytes {
                if (len_bytes - self.buffer.len()) as u64 > range.left() {
                    return self.past_the_range();
                }
                return Ok(None);
            }
            let batch = RecordBatch::parse(&self.buffer[..len_bytes]);
            let checked = batch.and_then(|batch| {
                batch.verify_crc()?;
                Ok((batch.header().base_offset(), batch.header().last_offset()))
            });
            let (base_offset, last_offset) = checked.map_err(|error| self.damaged(error.into()))?;
            let fresh = self
                .range
                .as_mut()
                .is_some_and(|range| std::mem::take(&mut range.fresh));
            if !fresh && base_offset < self.next {
                let expected = self.next;
                return Err(self.damaged(Defect::OffsetBack {
                    base_offset,
                    expected,
                }));
            }
            let bytes = self.buffer.split_to(len_bytes).freeze();
            // The first of a range holds the offset, or what follows it, unless the index was too sparse to tell.
            if last_offset >= self.next {
                let from = std::mem::replace(&mut self.next, last_offset.plus(1));
                return Ok(Some(Batch::new(bytes, from)));
            }
        }
    }

    /// The range ends within the batch: the next one begins with it. If this one did already, it claims too much.
    fn past_the_range(&mut self) -> Result<Option<Batch>, ReadError> {
        if self.range.as_ref().is_some_and(|range| range.fresh) {
            return Err(self.damaged(Defect::Torn));
        }
        self.range = None;
        self.buffer.clear();
        Ok(None)
    }

    fn damaged(&self, source: Defect) -> ReadError {
        let (path, position) = self.range.as_ref().map_or_else(Default::default, |range| {
            let unread = self.buffer.len() as u64;
            (
                range.file.path().to_owned(),
                range.position.saturating_sub(unread),
            )
        });
        ReadError::Damaged {
            path,
            position,
            offset: self.next,
            source,
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Batch, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(poll_fn(|cx| self.poll_batch(cx, Wait::ForDisk)))
    }
}

/// A [`Reader`] for async code.
///
/// # Cancel safety
///
/// A dropped wait for the next batch has taken none.
#[derive(Debug)]
pub struct ReaderStream {
    reader: Reader,
}

impl ReaderStream {
    /// The first offset that has not been given out.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.reader.next
    }

    /// The next batch, for those who have no stream extensions at hand; `None` at the end.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub async fn next_batch(&mut self) -> Option<Result<Batch, ReadError>> {
        poll_fn(|cx| self.reader.poll_batch(cx, Wait::No)).await
    }
}

impl Stream for ReaderStream {
    type Item = Result<Batch, ReadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.reader.poll_batch(cx, Wait::No)
    }
}
