//! What is left of a failed sync for the next start: a marker, and how bytes are made durable after all.
//!
//! When a sync fails, Linux marks the pages clean. They read well for as long as they stay in memory, also
//! by the next process, and no later sync writes them: a log that read its end, synced it and called it
//! durable would be wrong. So a failed sync leaves a marker in the log's directory, and a log that is opened
//! over one writes what it has verified once more before it syncs. Knows nothing of batches. Tested in
//! `tests/log_faults.rs`.

use std::io;
use std::path::{Path, PathBuf};

use super::file_name::SYNC_FAILED;
use crate::io::{FileId, Storage};

/// Bytes read and written at once.
const CHUNK_BYTES: u64 = 256 * 1024;

/// The marker of the log in `dir`.
pub(super) fn marker(dir: &Path) -> PathBuf {
    dir.join(SYNC_FAILED)
}

/// Syncs `file` of the log in `dir`, and leaves the marker where that fails.
pub(super) fn sync_or_mark(file: FileId, dir: &Path, storage: &mut dyn Storage) -> io::Result<()> {
    let synced = storage.sync(file);
    if synced.is_err() {
        // A disk that does not take the marker either says so to nobody who could do more than is
        // done about the sync.
        let _ = storage.put_file(&marker(dir), b"");
    }
    synced
}

/// Writes the first `len_bytes` of `file` as they read, so that the next sync covers them.
pub(super) fn write_anew(file: FileId, len_bytes: u64, storage: &mut dyn Storage) -> io::Result<()> {
    let mut chunk = Vec::new();
    let mut position = 0;
    while position < len_bytes {
        let wanted = CHUNK_BYTES.min(len_bytes - position);
        chunk.resize(usize::try_from(wanted).expect("at most a chunk"), 0);
        let read = storage.read_at(file, position, &mut chunk)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        storage.write_at(file, position, &chunk[..read])?;
        position += read as u64;
    }
    Ok(())
}
