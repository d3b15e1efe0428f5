//! The yardstick: a bare io_uring loop of the same pattern, without a log around it.
//!
//! Every writer has its batches outstanding. What the writers of one log have ready goes in one `writev`,
//! two of them in flight; one fdatasync for each log covers the writes that have completed; its completion
//! acknowledges their batches. No checksum, offsets, index or other thread: what an engine could reach that
//! did nothing else. Knows no engine.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use io_uring::{IoUring, opcode, squeue, types};

use super::case::{Case, Outcome};

/// How the files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// Each write makes the file longer.
    Appending,
    /// Over zeros that were written, and made durable, before the clock started.
    Zeroed,
    /// The same past the page cache; groups are padded to whole blocks.
    ZeroedDirect,
}

const GROUP_BYTES_MAX: usize = 256 * 1024;
const WRITES_IN_FLIGHT_MAX: usize = 2;
/// Zeroed files are used around and around: what is measured is the writing, not the room.
const ZEROED_BYTES: u64 = 128 << 20;
const BLOCK: usize = 4096;
const IS_SYNC: u64 = 1 << 63;
const LOG_SHIFT: u32 = 32;

struct Group {
    /// Since when each of its batches has been under way.
    batches: Vec<Instant>,
    /// Kept for the kernel.
    iovecs: Vec<libc::iovec>,
    token: u64,
    done: bool,
}

struct Log {
    number: u64,
    file: File,
    position: u64,
    waiting: VecDeque<Instant>,
    writes: VecDeque<Group>,
    groups_made: u32,
    written: Vec<Instant>,
    syncing: Option<Vec<Instant>>,
}

/// Runs `case` and says what it took.
pub(crate) fn run(case: &Case, files: Files, dir: &Path) -> io::Result<Outcome> {
    let mut ring = IoUring::new(512)?;
    let payload = Payload::new(GROUP_BYTES_MAX.max(case.batch_bytes()));
    let file_bytes = ZEROED_BYTES / case.logs as u64;
    let mut logs = (0..case.logs)
        .map(|number| Log::create(number as u64, dir, files, file_bytes))
        .collect::<io::Result<Vec<_>>>()?;
    let mut outcome = Outcome::start();
    let started = Instant::now();
    for writer in 0..case.writers {
        let batches = vec![started; case.batches_under_way()];
        logs[writer % case.logs].waiting.extend(batches);
    }
    let end = started + case.run;
    let mut in_flight = 0;
    loop {
        for log in &mut logs {
            log.poll_writes(case, files, file_bytes, &payload, &mut ring, &mut in_flight);
            log.poll_sync(case, &mut ring, &mut in_flight);
        }
        if in_flight == 0 {
            return Ok(outcome.stop());
        }
        ring.submit_and_wait(1)?;
        let completed: Vec<_> = ring
            .completion()
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        let now = Instant::now();
        for (token, result) in completed {
            in_flight -= 1;
            if result < 0 {
                return Err(io::Error::from_raw_os_error(-result));
            }
            let number = token >> LOG_SHIFT & 0xffff;
            let log = &mut logs[usize::try_from(number).expect("16 bits")];
            let mut acknowledged = if token & IS_SYNC != 0 {
                log.syncing.take().expect("a sync completes once")
            } else {
                log.handle_write(token);
                Vec::new()
            };
            if !case.durable {
                acknowledged.append(&mut log.written);
            }
            for since in acknowledged {
                outcome.acknowledge(case.batch_bytes(), since);
                if now < end {
                    log.waiting.push_back(Instant::now());
                }
            }
        }
    }
}

impl Log {
    fn create(number: u64, dir: &Path, files: Files, file_bytes: u64) -> io::Result<Self> {
        let path = dir.join(number.to_string());
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        if files != Files::Appending {
            let zeros = vec![0; 1 << 20];
            for position in (0..file_bytes).step_by(zeros.len()) {
                file.write_all_at(&zeros, position)?;
            }
        }
        file.sync_all()?;
        if files == Files::ZeroedDirect {
            file = OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_DIRECT)
                .open(&path)?;
        }
        Ok(Self {
            number,
            file,
            position: 0,
            waiting: VecDeque::new(),
            writes: VecDeque::new(),
            groups_made: 0,
            written: Vec::new(),
            syncing: None,
        })
    }

    fn poll_writes(
        &mut self,
        case: &Case,
        files: Files,
        file_bytes: u64,
        payload: &Payload,
        ring: &mut IoUring,
        in_flight: &mut usize,
    ) {
        while self.writes.len() < WRITES_IN_FLIGHT_MAX && !self.waiting.is_empty() {
            let room = (GROUP_BYTES_MAX / case.batch_bytes()).max(1);
            let batches: Vec<_> = self.waiting.drain(..room.min(self.waiting.len())).collect();
            let mut len_bytes = batches.len() * case.batch_bytes();
            let mut iovecs = vec![payload.iovec(case.batch_bytes()); batches.len()];
            if files == Files::ZeroedDirect {
                len_bytes = len_bytes.next_multiple_of(BLOCK);
                iovecs = vec![payload.iovec(len_bytes)];
            }
            if files != Files::Appending && self.position + len_bytes as u64 > file_bytes {
                self.position = 0;
            }
            let token = self.number << LOG_SHIFT | u64::from(self.groups_made);
            self.groups_made = self.groups_made.wrapping_add(1);
            let count = u32::try_from(iovecs.len()).expect("256 at most");
            let entry = opcode::Writev::new(types::Fd(self.file.as_raw_fd()), iovecs.as_ptr(), count)
                .offset(self.position)
                .build();
            self.position += len_bytes as u64;
            let group = Group {
                batches,
                iovecs,
                token,
                done: false,
            };
            self.writes.push_back(group);
            push(ring, &entry.user_data(token));
            *in_flight += 1;
        }
    }

    fn poll_sync(&mut self, case: &Case, ring: &mut IoUring, in_flight: &mut usize) {
        if case.durable && self.syncing.is_none() && !self.written.is_empty() {
            self.syncing = Some(mem::take(&mut self.written));
            let entry = opcode::Fsync::new(types::Fd(self.file.as_raw_fd()))
                .flags(types::FsyncFlags::DATASYNC)
                .build();
            push(ring, &entry.user_data(IS_SYNC | self.number << LOG_SHIFT));
            *in_flight += 1;
        }
    }

    fn handle_write(&mut self, token: u64) {
        let group = self.writes.iter_mut().find(|group| group.token == token);
        group.expect("a write completes once").done = true;
        while self.writes.front().is_some_and(|group| group.done)
            && let Some(group) = self.writes.pop_front()
        {
            drop(group.iovecs);
            self.written.extend(group.batches);
        }
    }
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) {
    // SAFETY: what the entry points to, the payload and its group's list, is kept until the loop has seen its
    // completion; an error ends the process.
    let pushed = unsafe { ring.submission().push(entry) };
    pushed.expect("each log has three in flight at most");
}

/// Bytes that begin at a block, written again and again.
struct Payload {
    bytes: Vec<u8>,
    start: usize,
}

impl Payload {
    fn new(len_bytes: usize) -> Self {
        let bytes = vec![0x5a; len_bytes + BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Self { bytes, start }
    }

    fn iovec(&self, len_bytes: usize) -> libc::iovec {
        let slice = &self.bytes[self.start..self.start + len_bytes];
        libc::iovec {
            iov_base: slice.as_ptr().cast_mut().cast(),
            iov_len: slice.len(),
        }
    }
}
