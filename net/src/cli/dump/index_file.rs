//! Offset and time indexes: sorted entries of 8 and 12 bytes, perhaps followed by zeros.
//!
//! ```text
//! .index      relative offset u32, position u32     of a batch: its last offset, where it starts
//! .timeindex  timestamp i64, relative offset u32    the first offset that reached the timestamp
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ringlog_engine::record::{BATCH_HEADER_LEN, BatchHeader};

use super::super::line::Line;
use super::report::Report;
use super::run::base_offset;

const OFFSET_ENTRY: usize = 8;
const TIME_ENTRY: usize = 12;

pub(super) fn dump_offsets(path: &Path, bytes: &[u8], report: &mut Report<impl Write>) -> io::Result<()> {
    let Some(base) = base(path, report)? else {
        return Ok(());
    };
    let segment = File::open(path.with_extension("log")).ok();
    let mut last: Option<(u32, u32)> = None;
    for (position, entry) in entries::<OFFSET_ENTRY>(path, bytes, report)? {
        let (relative, target) = (be_u32(&entry[..4]), be_u32(&entry[4..]));
        let offset = base.saturating_add(i64::from(relative));
        report.line(
            &Line::new()
                .with("offset", offset)
                .with("position", u64::from(target)),
            false,
        )?;
        if last.is_some_and(|(offset, position)| relative <= offset || target <= position) {
            report.fault(path, position, "an entry is not above the one before it")?;
        }
        last = Some((relative, target));
        if let Some(problem) = segment
            .as_ref()
            .and_then(|segment| mismatch(segment, offset, target))
        {
            report.fault(path, position, &problem)?;
        }
    }
    Ok(())
}

/// What is wrong with an entry in view of the segment: a batch must start at its position, and not above
/// its offset, or a reader that starts there would miss records.
fn mismatch(segment: &File, offset: i64, position: u32) -> Option<String> {
    let mut bytes = [0; BATCH_HEADER_LEN];
    if segment.read_exact_at(&mut bytes, position.into()).is_err() {
        return Some(format!("position {position} is past the end of the segment"));
    }
    match BatchHeader::peek(&bytes) {
        Ok(header) if header.base_offset().0 <= offset => None,
        Ok(header) => Some(format!(
            "the batch at position {position} begins at {}",
            header.base_offset()
        )),
        Err(error) => Some(format!("no batch starts at position {position}: {error}")),
    }
}

pub(super) fn dump_times(path: &Path, bytes: &[u8], report: &mut Report<impl Write>) -> io::Result<()> {
    let Some(base) = base(path, report)? else {
        return Ok(());
    };
    let mut last: Option<(i64, u32)> = None;
    for (position, entry) in entries::<TIME_ENTRY>(path, bytes, report)? {
        let timestamp = entry[..8]
            .iter()
            .fold(0_i64, |sum, &byte| (sum << 8) | i64::from(byte));
        let relative = be_u32(&entry[8..]);
        let offset = base.saturating_add(i64::from(relative));
        report.line(
            &Line::new().with("timestamp", timestamp).with("offset", offset),
            false,
        )?;
        if last.is_some_and(|(earlier, offset)| timestamp <= earlier || relative < offset) {
            report.fault(path, position, "an entry is not above the one before it")?;
        }
        last = Some((timestamp, relative));
    }
    Ok(())
}

fn base(path: &Path, report: &mut Report<impl Write>) -> io::Result<Option<i64>> {
    let base = base_offset(path);
    if base.is_none() {
        report.fault(path, 0, "the name must be the offset at which the segment begins")?;
    }
    Ok(base)
}

type Entries<'a, const LEN: usize> = Vec<(u64, &'a [u8])>;

/// The whole entries before the zeros at the end, with their positions.
fn entries<'a, const LEN: usize>(
    path: &Path,
    bytes: &'a [u8],
    report: &mut Report<impl Write>,
) -> io::Result<Entries<'a, LEN>> {
    let used = bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    let end = used.next_multiple_of(LEN);
    if end > bytes.len() || !bytes.len().is_multiple_of(LEN) {
        let cut = bytes.len() - bytes.len() % LEN;
        report.fault(path, cut as u64, "the file ends within an entry")?;
    }
    let whole = bytes[..end.min(bytes.len())].chunks_exact(LEN);
    Ok(whole
        .enumerate()
        .map(|(index, entry)| ((index * LEN) as u64, entry))
        .collect())
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, &byte| (sum << 8) | u32::from(byte))
}
