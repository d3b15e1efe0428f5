//! A checkpoint: lines of text, a version, a count, then that many entries.
//!
//! `leader-epoch-checkpoint` has `epoch offset`; the offset checkpoints of a data directory have
//! `topic partition offset`.

use std::io::{self, Write};
use std::path::Path;

use super::super::line::Line;
use super::report::Report;

pub(super) fn dump(path: &Path, bytes: &[u8], report: &mut Report<impl Write>) -> io::Result<()> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return report.fault(path, 0, "not a text");
    };
    let mut position = 0;
    let mut lines = text.split_inclusive('\n').map(|line| {
        let start = position;
        position += line.len() as u64;
        (start, line.trim_end())
    });
    match lines.next() {
        Some((_, "0")) => {}
        other => return report.fault(path, 0, &format!("version {:?} where 0 is known", word(other))),
    }
    let (at, count) = lines.next().unwrap_or((2, ""));
    let Ok(count) = count.parse::<usize>() else {
        return report.fault(path, at, &format!("{count:?} is no number of entries"));
    };
    let mut found = 0;
    for (at, line) in lines {
        match entry(line) {
            Some(entry) => report.line(&entry, false)?,
            None => report.fault(path, at, &format!("{line:?} is no entry"))?,
        }
        found += 1;
    }
    if found != count {
        report.fault(path, at, &format!("{count} entries announced, {found} found"))?;
    }
    Ok(())
}

fn word(line: Option<(u64, &str)>) -> &str {
    line.map_or("", |(_, text)| text)
}

fn entry(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        [epoch, offset] => {
            let (epoch, offset) = (epoch.parse::<i32>().ok()?, offset.parse::<i64>().ok()?);
            Some(Line::new().with("epoch", epoch).with("start_offset", offset))
        }
        [topic, partition, offset] => {
            let (partition, offset) = (partition.parse::<i32>().ok()?, offset.parse::<i64>().ok()?);
            Some(
                Line::new()
                    .with("topic", topic)
                    .with("partition", partition)
                    .with("offset", offset),
            )
        }
        _ => None,
    }
}
