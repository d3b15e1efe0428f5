//! Zeros written ahead of the data, past the page cache.
//!
//! Written through the page cache they would have to be flushed by every sync of the data before them.
//! So the room is allocated, which extends the file, and the zeros go there by a second descriptor, open
//! for the one request, whose writes the device takes from memory. Knows no log. Tested in
//! `tests/io_backends.rs`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Zeros at an address that suits the device. Never written, so that no memory stands behind it.
#[repr(align(4096))]
struct Zeros([u8; 1 << 20]);

static ZEROS: Zeros = Zeros([0; 1 << 20]);

/// So many zeros in pieces.
pub(crate) fn pieces(len_bytes: usize) -> impl Iterator<Item = &'static [u8]> {
    let whole = std::iter::repeat_n(&ZEROS.0[..], len_bytes / ZEROS.0.len());
    let rest = &ZEROS.0[..len_bytes % ZEROS.0.len()];
    whole.chain(std::iter::once(rest).filter(|rest| !rest.is_empty()))
}

/// A second descriptor of `file` for writes past the page cache.
///
/// # Errors
///
/// Where the file system has no such writes.
pub(crate) fn open_direct(file: &File) -> io::Result<File> {
    // The file itself, whatever has become of its name.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
}

/// Allocates the room and writes the zeros.
///
/// # Errors
///
/// The operating system's; the file may be longer then.
pub(crate) fn write_blocking(file: &File, mut position: u64, len_bytes: u32) -> io::Result<()> {
    let offset = libc::off_t::try_from(position).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: takes integers only, and the descriptor is open.
    let allocated = unsafe { libc::fallocate(file.as_raw_fd(), 0, offset, libc::off_t::from(len_bytes)) };
    if allocated != 0 {
        return Err(io::Error::last_os_error());
    }
    let direct = open_direct(file)?;
    for zeros in pieces(len_bytes as usize) {
        direct.write_all_at(zeros, position)?;
        position += zeros.len() as u64;
    }
    Ok(())
}
