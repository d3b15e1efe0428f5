//! A snapshot of the producers' state: version i16, CRC-32C u32 of the rest, count i32, entries.

use std::io::{self, Write};
use std::path::Path;

use bytes::Buf;

use super::super::line::Line;
use super::report::Report;

const HEADER: usize = 2 + 4 + 4;
const ENTRY: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;
const VERSION: i16 = 1;

pub(super) fn dump(path: &Path, bytes: &[u8], report: &mut Report<impl Write>) -> io::Result<()> {
    if bytes.len() < HEADER {
        return report.fault(path, 0, "the file ends within its header");
    }
    let mut input = bytes;
    let version = input.get_i16();
    if version != VERSION {
        return report.fault(path, 0, &format!("version {version} where {VERSION} is known"));
    }
    let (stored, computed) = (input.get_u32(), crc32c::crc32c(input));
    if stored != computed {
        let problem = format!("the checksum is {computed:#010x}, the header says {stored:#010x}");
        return report.fault(path, 2, &problem);
    }
    let count = input.get_i32();
    if usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(ENTRY))
        != Some(input.len())
    {
        let problem = format!(
            "{count} entries of {ENTRY} bytes where {} bytes are left",
            input.len()
        );
        return report.fault(path, 6, &problem);
    }
    for mut entry in input.chunks_exact(ENTRY) {
        let line = Line::new()
            .with("producer_id", entry.get_i64())
            .with("producer_epoch", i32::from(entry.get_i16()))
            .with("last_sequence", entry.get_i32())
            .with("last_offset", entry.get_i64())
            .with("offset_delta", entry.get_i32())
            .with("timestamp", entry.get_i64())
            .with("coordinator_epoch", entry.get_i32())
            .with("txn_first_offset", entry.get_i64());
        report.line(&line, false)?;
    }
    Ok(())
}
