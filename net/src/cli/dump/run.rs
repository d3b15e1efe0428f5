//! Which reader a file gets, by its name.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use super::super::args::DumpArguments;
use super::super::error::CliError;
use super::super::line::Line;
use super::report::Report;
use super::{checkpoint_file, index_file, segment_file, snapshot_file, txn_index_file};

/// Indexes, snapshots and checkpoints are read whole; Kafka's own limit for an index is far below.
const SMALL_FILE_MAX: u64 = 256 << 20;
const NAMES: &str = "*.log, *.index, *.timeindex, *.txnindex, *.snapshot, *-checkpoint";
/// Enough to see how they are named.
const ADVISED_MAX: usize = 6;

pub(in super::super) fn run(arguments: &DumpArguments) -> Result<(), CliError> {
    let mut report = Report::new(BufWriter::new(io::stdout().lock()), arguments.json);
    let mut files = 0;
    for path in &arguments.files {
        let before = report.faults();
        report.line(&Line::new().with("file", path.display().to_string()), false)?;
        dump(path, arguments.records, &mut report)?;
        files += usize::from(report.faults() > before);
    }
    report.finish()?;
    if files == 0 {
        Ok(())
    } else {
        Err(CliError::Corrupt { files })
    }
}

/// Errors are those of the output; what is wrong with the file goes into the report.
fn dump(path: &Path, records: bool, report: &mut Report<impl Write>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let file = match File::open(path).and_then(|file| Ok((file.metadata()?, file))) {
        Ok((metadata, file)) if metadata.is_file() => file,
        Ok((metadata, _)) if metadata.is_dir() => return report.unreadable(path, &advice(path)),
        Ok(_) => return report.unreadable(path, "not a regular file"),
        Err(error) => return report.unreadable(path, &error.to_string()),
    };
    match extension.as_ref() {
        "log" => segment_file::dump(path, file, records, report),
        "index" => index_file::dump_offsets(path, &small(path, file, report)?, report),
        "timeindex" => index_file::dump_times(path, &small(path, file, report)?, report),
        "txnindex" => txn_index_file::dump(path, &small(path, file, report)?, report),
        "snapshot" => snapshot_file::dump(path, &small(path, file, report)?, report),
        _ if name.ends_with("-checkpoint") => {
            checkpoint_file::dump(path, &small(path, file, report)?, report)
        }
        _ => report.unreadable(path, &format!("the name is none of {NAMES}")),
    }
}

/// What to name in place of a directory: its files, the first few of many.
fn advice(dir: &Path) -> String {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| has_reader(name))
        .collect();
    names.sort();
    let more = if names.len() > ADVISED_MAX { ", ..." } else { "" };
    names.truncate(ADVISED_MAX);
    match names.as_slice() {
        [] => format!("a directory without a file that can be dumped: {NAMES}"),
        names => format!("a directory; name files in it: {}{more}", names.join(", ")),
    }
}

fn has_reader(name: &str) -> bool {
    let extension = Path::new(name).extension().unwrap_or_default().to_string_lossy();
    matches!(
        extension.as_ref(),
        "log" | "index" | "timeindex" | "txnindex" | "snapshot"
    ) || name.ends_with("-checkpoint")
}

fn small(path: &Path, file: File, report: &mut Report<impl Write>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match file.take(SMALL_FILE_MAX).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 == SMALL_FILE_MAX => {
            report.fault(
                path,
                SMALL_FILE_MAX,
                "too large for such a file; the rest is not read",
            )?;
        }
        Ok(_) => {}
        Err(error) => report.fault(path, bytes.len() as u64, &error.to_string())?,
    }
    Ok(bytes)
}

/// The first offset of a segment, from the name of any of its files.
pub(super) fn base_offset(path: &Path) -> Option<i64> {
    let stem = path.file_stem()?.to_str()?;
    if !stem.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    stem.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringlog_engine::record::{Compression, RecordBatchBuilder};
    use ringlog_engine::types::TimestampMs;

    /// Bytes with the shape of one of the files, so that damage goes deep.
    fn sound(name: &str) -> Vec<u8> {
        match name {
            "00000000000000000000.log" => {
                let mut builder = RecordBatchBuilder::new().compression(Compression::Lz4);
                for number in 0..20_i64 {
                    builder
                        .append(TimestampMs(number), Some(b"k"), Some(b"value"), &[])
                        .expect("small");
                }
                builder.build().expect("built").repeat(3)
            }
            "leader-epoch-checkpoint" => b"0\n2\n0 0\n4 17\n".to_vec(),
            _ => (0..120).collect(),
        }
    }

    proptest! {
        #[test]
        fn damaged_files_give_findings_and_never_panic(
            kind in 0..6_usize,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let names = [
                "00000000000000000000.log",
                "00000000000000000000.index",
                "00000000000000000000.timeindex",
                "00000000000000000000.txnindex",
                "00000000000000000000.snapshot",
                "leader-epoch-checkpoint",
            ];
            let name = names[kind];
            let mut bytes = sound(name);
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join(name);
            fs::write(&path, bytes).expect("written");
            let mut report = Report::new(Vec::new(), true);
            dump(&path, true, &mut report).expect("memory can be written to");
        }
    }
}
