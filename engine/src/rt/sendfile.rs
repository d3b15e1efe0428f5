//! Sends a range of a file to a socket without the bytes entering user space.
//!
//! Owns nothing but the call; knows no log and no record. A cold page would block the thread
//! within sendfile(2): see [`residency`](super::residency). Tested in `tests/sendfile.rs`.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::TcpStream;

use super::counters::Counters;
use super::log_file::LogFile;

/// The most one system call moves: a fast reader must not keep the shard for longer.
const CHUNK_BYTES: usize = 256 * 1024;

/// Bytes of an open file.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file; open as long as the range lives.
    pub file: Arc<LogFile>,
    /// Bytes from the start of the file.
    pub position: u64,
    /// How many bytes.
    pub len_bytes: u32,
}

/// Sends the whole of `range` to `stream`, waiting for the socket as often as it is full and
/// letting other tasks run between chunks. Returns the bytes sent, all of the range.
///
/// # Errors
///
/// The socket's or the file's; `UnexpectedEof` if the file ends within the range. Part of the
/// range may have been sent then, so the connection can only be closed.
///
/// # Cancel safety
///
/// None: a dropped send leaves an unknown part of the range sent. Close the connection.
pub async fn send_file(stream: &TcpStream, range: &FileRange, counters: &Counters) -> io::Result<u64> {
    let wanted = u64::from(range.len_bytes);
    let mut sent = 0;
    while sent < wanted {
        let chunk = usize::try_from(wanted - sent).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let at = range.position + sent;
        let moved = stream
            .async_io(Interest::WRITABLE, || sendfile(stream, &range.file, at, chunk))
            .await?;
        if moved == 0 {
            let message = format!(
                "{} ends at {at}, within a range of {wanted} bytes from {}",
                range.file.path().display(),
                range.position
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        counters.sendfile_calls.add(1);
        counters.sendfile_bytes.add(moved as u64);
        sent += moved as u64;
        if sent < wanted {
            tokio::task::yield_now().await;
        }
    }
    Ok(sent)
}

/// One sendfile(2): up to `len_bytes`, 0 only at the end of the file, `WouldBlock` if the socket
/// is full.
fn sendfile(stream: &TcpStream, file: &LogFile, position: u64, len_bytes: usize) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(position)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a position beyond any file"))?;
    loop {
        // SAFETY: both descriptors are open, owned by the arguments, and `offset` outlives the call.
        let result =
            unsafe { libc::sendfile(stream.as_raw_fd(), file.as_raw_fd(), &raw mut offset, len_bytes) };
        if let Ok(moved) = usize::try_from(result) {
            return Ok(moved);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
