//! How a new segment takes the place of those it was made from: names, their order, and what opening
//! makes of a replacement that was interrupted.
//!
//! ```text
//!   x.log.cleaned   x.log y.log           made and synced; may vanish at any time
//!   x.log.swap      x.log y.log           decided: from here on the new one counts
//!   x.log.swap      x.log.deleted y.log.deleted
//!   x.log           x.log.deleted y.log.deleted
//!   x.log
//! ```
//!
//! The indexes go along: a step renames them first and the `.log` last, so `x.log.swap` has all its
//! indexes, and while the old `x.log` is there no index of the new one has its final name. The old
//! segments are renamed from the last to the first. As the new segment keeps its last batch, its own
//! end tells which segments it replaces: those that begin below. Names, steps and their meaning are
//! Apache Kafka's. Tested below and, with a crash at each step, in `tests/log_compaction.rs`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::super::file_name::{FileKind, FileName, Suffix};
use super::super::open::{OpenError, Opening, io_error, remove_if_there};
use super::super::recovery::{OffsetRange, Walk, walk};
use crate::io::{DirEntry, OpenMode, Storage};
use crate::types::Offset;

/// From one name to another.
pub(super) type Renames = Vec<(PathBuf, PathBuf)>;

/// The indexes, then what they belong to.
const INDEXES_FIRST: [FileKind; 4] = [
    FileKind::OffsetIndex,
    FileKind::TimeIndex,
    FileKind::TransactionIndex,
    FileKind::Log,
];

/// Where a file of a new segment is made.
pub(super) fn cleaned_path(dir: &Path, kind: FileKind, base: Offset) -> PathBuf {
    Suffix::Cleaned.on(&kind.path(dir, base))
}

/// Deletes those files. Some may not be there, and what cannot be deleted is when the log is opened.
pub(super) fn remove_cleaned(dir: &Path, base: Offset, storage: &mut dyn Storage) {
    for kind in INDEXES_FIRST {
        let _ = storage.remove_file(&cleaned_path(dir, kind, base));
    }
}

/// The first step: the new segment counts, the old ones are out of the way. `replaced` are their base
/// offsets, the first of which is the new one's. May be repeated until it succeeds.
pub(super) fn replace(dir: &Path, replaced: &[Offset]) -> Renames {
    let base = replaced[0];
    let decide = INDEXES_FIRST.map(|kind| {
        let path = kind.path(dir, base);
        (Suffix::Cleaned.on(&path), Suffix::Swap.on(&path))
    });
    let retire = replaced_paths(dir, replaced).map(|path| {
        let deleted = Suffix::Deleted.on(&path);
        (path, deleted)
    });
    decide.into_iter().chain(retire).collect()
}

/// The second step: the new segment under its final name. May be repeated.
pub(super) fn settle(dir: &Path, base: Offset) -> Renames {
    let final_names = INDEXES_FIRST.map(|kind| {
        let path = kind.path(dir, base);
        (Suffix::Swap.on(&path), path)
    });
    final_names.to_vec()
}

/// What is left of the old segments after both steps.
pub(super) fn retired_paths(dir: &Path, replaced: &[Offset]) -> Vec<PathBuf> {
    replaced_paths(dir, replaced)
        .map(|path| Suffix::Deleted.on(&path))
        .collect()
}

/// The files of the old segments, from the last to the first, each with its `.log` last. The producers'
/// state at the first one's base offset is as good for the new one.
fn replaced_paths(dir: &Path, replaced: &[Offset]) -> impl Iterator<Item = PathBuf> {
    let later = replaced.iter().skip(1).rev().flat_map(move |&base| {
        let snapshot = FileKind::Snapshot.path(dir, base);
        std::iter::once(snapshot).chain(INDEXES_FIRST.map(|kind| kind.path(dir, base)))
    });
    later.chain(INDEXES_FIRST.map(|kind| kind.path(dir, replaced[0])))
}

impl Opening<'_> {
    /// Completes the replacements that were decided, undoes the others, and deletes what is left of
    /// segments that are gone. Whether anything was done, so that the directory is to be listed anew.
    pub(in super::super) fn finish_swaps(&mut self, entries: &[DirEntry]) -> Result<bool, OpenError> {
        let (mut suffixed_files, mut logs, mut decided) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            match FileName::parse(&entry.name) {
                FileName::Suffixed(kind, base, suffix) => {
                    suffixed_files.push((kind, base, suffix));
                    // One without a batch says of none that it goes.
                    if kind == FileKind::Log && suffix == Suffix::Swap && entry.len_bytes > 0 {
                        decided.push(base);
                    }
                }
                FileName::Numbered(FileKind::Log, base) => logs.push(base),
                _ => {}
            }
        }
        // What is damaged is found before anything is changed.
        let ends = decided.iter().map(|&base| self.end_of_swap(base));
        let ends = ends.collect::<Result<Vec<_>, _>>()?;
        for &(kind, base, suffix) in &suffixed_files {
            let path = kind.path(self.dir, base);
            let from = suffix.on(&path);
            match suffix {
                Suffix::Swap if decided.contains(&base) => {}
                // Kafka renames the `.log` first.
                Suffix::Cleaned if kind != FileKind::Log && decided.contains(&base) => {
                    rename_if_there(&from, &Suffix::Swap.on(&path), self.storage)?;
                }
                _ => remove_if_there(from, self.storage)?,
            }
        }
        for (&base, end) in decided.iter().zip(ends) {
            let is_replaced = |log: &Offset| *log == base || *log > base && *log < end;
            let replaced: Vec<Offset> = logs.iter().copied().filter(is_replaced).collect();
            self.remove_replaced(base, replaced)?;
            for (from, to) in settle(self.dir, base) {
                rename_if_there(&from, &to, self.storage)?;
            }
        }
        Ok(!suffixed_files.is_empty())
    }

    /// Removes what is left of the old segments at `replaced`, in the order in which they go. Where the
    /// one at `base` is not among them, the indexes of that name are the new one's.
    fn remove_replaced(&mut self, base: Offset, mut replaced: Vec<Offset>) -> Result<(), OpenError> {
        replaced.sort_unstable();
        for &old in replaced.iter().rev() {
            if old != base {
                remove_if_there(FileKind::Snapshot.path(self.dir, old), self.storage)?;
            }
            for kind in INDEXES_FIRST {
                remove_if_there(kind.path(self.dir, old), self.storage)?;
            }
        }
        Ok(())
    }

    /// Where the new segment at `base` ends.
    fn end_of_swap(&mut self, base: Offset) -> Result<Offset, OpenError> {
        let path = Suffix::Swap.on(&FileKind::Log.path(self.dir, base));
        let file = self.new_file();
        let opened = self.storage.open(file, &path, OpenMode::Existing);
        let len_bytes = opened.map_err(|source| io_error("open", path.clone(), source))?;
        let bounds = Walk {
            file,
            position: 0,
            end: len_bytes,
            offsets: OffsetRange {
                from: base,
                limit: Offset(base.0.saturating_add(i64::from(i32::MAX) + 1)),
            },
            verify_from: Some(base),
        };
        let walked = walk(self.storage, bounds, |_, _, _| true);
        self.storage.close(file);
        let walked = walked.map_err(|source| io_error("read", path.clone(), source))?;
        if walked.defect.is_some() || walked.position < len_bytes {
            let position = walked.position;
            return Err(OpenError::DamagedSwap { path, position });
        }
        Ok(walked.next_offset)
    }
}

fn rename_if_there(from: &Path, to: &Path, storage: &mut dyn Storage) -> Result<(), OpenError> {
    match storage.rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed.map_err(|source| io_error("rename", from.to_owned(), source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: impl IntoIterator<Item = PathBuf>) -> Vec<String> {
        let name = |path: PathBuf| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .trim_start_matches('0')
                .to_owned()
        };
        paths.into_iter().map(name).collect()
    }

    #[test]
    fn the_new_segment_counts_before_any_old_one_goes_and_each_log_is_the_last_of_its_files() {
        let dir = Path::new("d");
        let (from, to): (Vec<_>, Vec<_>) = replace(dir, &[Offset(1), Offset(2)]).into_iter().unzip();
        assert_eq!(
            names(to),
            [
                "1.index.swap",
                "1.timeindex.swap",
                "1.txnindex.swap",
                "1.log.swap",
                "2.snapshot.deleted",
                "2.index.deleted",
                "2.timeindex.deleted",
                "2.txnindex.deleted",
                "2.log.deleted",
                "1.index.deleted",
                "1.timeindex.deleted",
                "1.txnindex.deleted",
                "1.log.deleted",
            ]
        );
        assert_eq!(names(from)[3..5], ["1.log.cleaned", "2.snapshot"]);
        assert_eq!(
            names(settle(dir, Offset(1)).into_iter().map(|(_, to)| to)),
            ["1.index", "1.timeindex", "1.txnindex", "1.log"]
        );
    }
}
