//! The aborted transactions of a segment: version i16, then producer id, first, last and last stable offset.

use std::io::{self, Write};
use std::path::Path;

use bytes::Buf;

use super::super::line::Line;
use super::report::Report;

const ENTRY: usize = 2 + 4 * 8;

pub(super) fn dump(path: &Path, bytes: &[u8], report: &mut Report<impl Write>) -> io::Result<()> {
    let entries = bytes.chunks_exact(ENTRY);
    let cut = bytes.len() - entries.remainder().len();
    for (mut entry, position) in entries.zip((0_u64..).step_by(ENTRY)) {
        let version = entry.get_i16();
        if version != 0 {
            report.fault(path, position, &format!("version {version} where 0 is known"))?;
        }
        let line = Line::new()
            .with("producer_id", entry.get_i64())
            .with("first_offset", entry.get_i64())
            .with("last_offset", entry.get_i64())
            .with("last_stable_offset", entry.get_i64());
        report.line(&line, false)?;
    }
    if cut < bytes.len() {
        report.fault(path, cut as u64, "the file ends within an entry")?;
    }
    Ok(())
}
