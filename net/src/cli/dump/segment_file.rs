//! A segment: record batches one after another, perhaps followed by zeros.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use ringlog_engine::record::{BATCH_HEADER_LEN, BatchError, BatchHeader, RecordBatch};
use ringlog_engine::types::ProducerId;

use super::super::line::Line;
use super::report::Report;
use super::run::base_offset;

/// What a batch may decompress to before it is called a bomb.
const DECOMPRESSED_MAX: usize = 256 << 20;

/// Walks the batches; a wrong checksum is reported and passed over, a header that makes no sense ends the
/// walk, since nothing says where the next batch begins.
pub(super) fn dump(
    path: &Path,
    file: File,
    with_records: bool,
    report: &mut Report<impl Write>,
) -> io::Result<()> {
    let mut input = BufReader::with_capacity(256 << 10, file);
    let mut bytes = Vec::new();
    let mut position = 0_u64;
    let mut offset_min = base_offset(path).unwrap_or(0);
    loop {
        bytes.clear();
        if let Err(error) = read_up_to(&mut input, &mut bytes, BATCH_HEADER_LEN) {
            return report.fault(path, position, &error.to_string());
        }
        if bytes.iter().all(|&byte| byte == 0) {
            return zeros(path, &mut input, position, bytes.len() as u64, report);
        }
        let problem = match BatchHeader::peek(&bytes).map(BatchHeader::len_bytes) {
            Ok(len_bytes) => read_up_to(&mut input, &mut bytes, len_bytes)
                .err()
                .map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            return report.fault(path, position, &problem);
        }
        let batch = match RecordBatch::parse(&bytes) {
            Ok(batch) => batch,
            Err(error @ BatchError::Incomplete { .. }) => {
                return report.fault(path, position, &format!("the file ends within a batch: {error}"));
            }
            Err(error) => {
                report.fault(path, position, &error.to_string())?;
                position += bytes.len() as u64;
                continue;
            }
        };
        report.line(&describe(position, &batch), false)?;
        if batch.header().base_offset().0 < offset_min {
            let problem = format!(
                "offset {} where {offset_min} or more was due",
                batch.header().base_offset()
            );
            report.fault(path, position, &problem)?;
        }
        offset_min = batch.header().next_offset().0;
        if let Err(error) = batch.verify_crc() {
            report.fault(path, position, &error.to_string())?;
        } else if with_records {
            records(path, position, &batch, report)?;
        }
        position += bytes.len() as u64;
    }
}

/// Reads until `bytes` holds `len_bytes` or the file ends; the buffer grows with what is really there.
fn read_up_to(input: &mut impl Read, bytes: &mut Vec<u8>, len_bytes: usize) -> io::Result<()> {
    let missing = len_bytes.saturating_sub(bytes.len());
    input.take(missing as u64).read_to_end(bytes).map(|_| ())
}

fn describe(position: u64, batch: &RecordBatch<'_>) -> Line {
    let header = batch.header();
    let attributes = header.attributes();
    let codec = attributes
        .compression()
        .map_or_else(|error| error.to_string(), |codec| codec.name().to_owned());
    let mut line = Line::new()
        .with("position", position)
        .with("base_offset", header.base_offset().0)
        .with("last_offset", header.last_offset().0)
        .with("size", header.len_bytes() as u64)
        .with("records", header.records_count())
        .with("codec", codec)
        .with("timestamp_type", format!("{:?}", attributes.timestamp_type()))
        .with("base_timestamp", header.base_timestamp().0)
        .with("max_timestamp", header.max_timestamp().0)
        .with("leader_epoch", header.partition_leader_epoch().0)
        .with("crc", format!("{:#010x}", header.crc()));
    if header.producer_id() != ProducerId::NONE {
        line = line
            .with("producer_id", header.producer_id().0)
            .with("producer_epoch", i32::from(header.producer_epoch().0))
            .with("base_sequence", header.base_sequence().0);
    }
    if attributes.is_transactional() || attributes.is_control() {
        let control = if attributes.is_control() {
            "control"
        } else {
            "transactional"
        };
        line = line.with("kind", control);
    }
    line
}

fn records(
    path: &Path,
    position: u64,
    batch: &RecordBatch<'_>,
    report: &mut Report<impl Write>,
) -> io::Result<()> {
    let records = match batch.records(DECOMPRESSED_MAX) {
        Ok(records) => records,
        Err(error) => return report.fault(path, position, &error.to_string()),
    };
    for record in &records {
        match record {
            Ok(record) => report.line(&Line::record(None, &record), true)?,
            Err(error) => report.fault(path, position, &error.to_string())?,
        }
    }
    Ok(())
}

/// Zeros to the end are room made ahead of the log, or the end itself; anything after them is not.
fn zeros(
    path: &Path,
    input: &mut impl Read,
    start: u64,
    seen: u64,
    report: &mut Report<impl Write>,
) -> io::Result<()> {
    let mut count = seen;
    let mut chunk = vec![0; 64 << 10];
    loop {
        let len = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return report.fault(path, start + count, &error.to_string()),
        };
        if let Some(index) = chunk[..len].iter().position(|&byte| byte != 0) {
            let problem = format!("bytes after {} zeros from position {start}", count + index as u64);
            return report.fault(path, start + count + index as u64, &problem);
        }
        count += len as u64;
    }
    if count > 0 {
        report.line(&Line::new().with("position", start).with("zeros", count), false)?;
    }
    Ok(())
}
