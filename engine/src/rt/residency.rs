//! Whether bytes of a file are in the page cache, and how they get there without blocking.
//!
//! The probe is a read that refuses to wait (`RWF_NOWAIT`). Neither `cachestat` nor a fadvise
//! would do: both call pages ready while they are still being read. Where a file system cannot
//! answer, bytes count as cold: a needless ring read costs less than a blocked shard.
//! Tested in `tests/sendfile.rs`.

use std::io;
use std::os::fd::AsRawFd;

use bytes::BytesMut;

use super::log_file::LogFile;
use super::sendfile::FileRange;
use super::shard_io::ShardIo;
use crate::io::IoError;

/// Memory one warming read takes at most.
const WARM_CHUNK_BYTES: u32 = 1024 * 1024;

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It gives what is in the page cache.
    No,
    /// It blocks the thread.
    ForDisk,
}

/// Reads into `buf` what the page cache has from `position` on, without waiting for the disk.
/// `None` if the first byte is not there. Fewer bytes than asked for: the file ends, or what is
/// cached does.
///
/// # Errors
///
/// The operating system's.
pub fn read_nowait(file: &LogFile, position: u64, buf: &mut [u8]) -> io::Result<Option<usize>> {
    let vector = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    // SAFETY: `vector` describes `buf`, which is borrowed for us alone.
    unsafe { read_vector(file, position, &vector, Wait::No) }
}

/// Appends to `into` up to `len_bytes` from `position` on, as [`read_nowait`] does, or waiting for the
/// disk. The room is reserved at once, and nothing is cleared beforehand.
///
/// # Errors
///
/// The operating system's.
pub fn read_into(
    file: &LogFile,
    position: u64,
    len_bytes: usize,
    wait: Wait,
    into: &mut BytesMut,
) -> io::Result<Option<usize>> {
    into.reserve(len_bytes);
    let vector = libc::iovec {
        iov_base: into.spare_capacity_mut().as_mut_ptr().cast(),
        iov_len: len_bytes,
    };
    // SAFETY: `vector` describes the start of the spare capacity, which was just reserved and is ours alone.
    let read = unsafe { read_vector(file, position, &vector, wait)? };
    let len = into.len() + read.unwrap_or(0);
    // SAFETY: the kernel has filled the bytes up to `len`, which lies within the capacity.
    unsafe { into.set_len(len) };
    Ok(read)
}

/// # Safety
///
/// `vector` describes memory that may be written to until this returns.
unsafe fn read_vector(
    file: &LogFile,
    position: u64,
    vector: &libc::iovec,
    wait: Wait,
) -> io::Result<Option<usize>> {
    let offset = libc::off_t::try_from(position)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a position beyond any file"))?;
    let flags = match wait {
        Wait::No => libc::RWF_NOWAIT,
        Wait::ForDisk => 0,
    };
    loop {
        // SAFETY: the descriptor is open, and the caller answers for `vector`.
        let result = unsafe { libc::preadv2(file.as_raw_fd(), vector, 1, offset, flags) };
        if let Ok(count) = usize::try_from(result) {
            return Ok(Some(count));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS) if wait == Wait::No => return Ok(None),
            _ => return Err(error),
        }
    }
}

/// Whether the first and the last byte of `range` are in the page cache. What lies between was
/// written or read with them, but may have been evicted since: a probe, not a promise.
///
/// # Errors
///
/// The operating system's.
pub fn is_resident(range: &FileRange) -> io::Result<bool> {
    let Some(last) = range.len_bytes.checked_sub(1) else {
        return Ok(true);
    };
    let mut byte = [0];
    for position in [range.position, range.position + u64::from(last)] {
        if read_nowait(&range.file, position, &mut byte)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits until `range` is in the page cache, reading it through the shard's ring if it is cold.
/// A file that ends within the range is not an error here.
///
/// # Errors
///
/// The operating system's, naming the file.
///
/// # Cancel safety
///
/// Safe: see [`ShardIo::read`].
pub async fn ensure_resident(io: &ShardIo, range: &FileRange) -> Result<(), IoError> {
    let resident = is_resident(range)
        .map_err(|source| IoError::new(format!("read {}", range.file.path().display()), source))?;
    if resident {
        return Ok(());
    }
    io.counters().residency_misses.add(1);
    let mut position = range.position;
    let end = range.position + u64::from(range.len_bytes);
    while position < end {
        let chunk = u32::try_from(end - position).map_or(WARM_CHUNK_BYTES, |left| left.min(WARM_CHUNK_BYTES));
        let read = io.read(range.file.clone(), position, chunk).await?;
        io.counters().fetch_bytes_copied.add(read.len() as u64);
        if read.len() < chunk as usize {
            return Ok(());
        }
        position += u64::from(chunk);
    }
    Ok(())
}
