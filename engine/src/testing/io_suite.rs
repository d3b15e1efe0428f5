//! One conformance suite for everything that executes storage requests: the ring, the helper
//! thread, simulated disks.
//!
//! A device runs requests and offers the blocking half over the same files. Each case is a
//! function with the name of the behaviour; [`io_suite!`](crate::io_suite) makes a test of each.
//! Knows no executor. Cases ask nothing of the order in which completions come.

#![expect(clippy::unwrap_used, reason = "a case fails by panicking, as a test does")]

use std::future::Future;
use std::path::Path;

use bytes::Bytes;

use crate::io::{FileId, IoCompletion, IoError, IoOp, IoOutput, IoRequest, IoToken, OpenMode, Storage};
use crate::types::LogId;

/// Something that executes storage requests.
pub trait Device {
    /// Runs all `requests` and returns their completions, in any order.
    fn run(&mut self, requests: Vec<IoRequest>) -> impl Future<Output = Vec<IoCompletion>>;
    /// Uses the blocking half over the same files.
    fn storage<R>(&mut self, f: impl FnOnce(&mut dyn Storage) -> R) -> R;
}

/// Makes a test of each case: `io_suite!(run)`, where the macro `run!(case)` must run
/// `case(&mut device, &dir).await` on a fresh device with a fresh directory.
#[macro_export]
macro_rules! io_suite {
    ($run:ident) => {
        $crate::io_suite!(@cases $run:
            written_buffers_are_read_back_without_gaps
            writes_at_positions_may_complete_in_any_order
            empty_write_completes
            write_of_a_mebibyte_from_many_buffers_is_whole
            more_buffers_than_one_system_call_takes_are_written
            burst_larger_than_any_queue_completes_each_request_once
            read_past_the_end_is_short
            zeros_extend_the_file_and_take_data
            zeros_beside_writes_leave_them_as_they_are
            file_is_cut_and_extended
            synced_bytes_are_in_the_file
            create_of_an_existing_file_fails_and_names_it
            create_in_a_missing_directory_fails_and_names_the_file
            open_gives_an_existing_file_its_name
            put_replaces_the_whole_file_and_leaves_nothing_beside
            puts_of_one_file_at_once_leave_one_of_them
            renames_happen_in_order_for_what_exists
            rename_keeps_open_files_as_they_are
            each_of_many_files_stays_itself_whatever_its_name_becomes
            failed_rename_names_both_files
            remove_deletes_what_exists
            close_keeps_reads_under_way_alive
            closed_file_is_refused
            unknown_file_is_refused
            storage_sees_what_requests_wrote
            storage_writes_where_it_is_told
            storage_reads_small_files_within_a_limit
            storage_renames_directories
        );
    };
    (@cases $run:ident: $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $run!($crate::testing::io_suite::$case);
            }
        )*
    };
}

const LOG: LogId = LogId(7);

fn file(number: u32) -> FileId {
    FileId { log: LOG, number }
}

fn write(file: FileId, position: u64, buffers: &[&[u8]]) -> IoOp {
    let buffers = buffers
        .iter()
        .map(|buffer| Bytes::copy_from_slice(buffer))
        .collect();
    IoOp::Write {
        file,
        position,
        buffers,
    }
}

fn zero(file: FileId, position: u64, len_bytes: u32) -> IoOp {
    IoOp::Zero {
        file,
        position,
        len_bytes,
    }
}

fn read(file: FileId, position: u64, len_bytes: u32) -> IoOp {
    IoOp::Read {
        file,
        position,
        len_bytes,
    }
}

/// Runs `ops` and returns their results in the order of `ops`; checks that each completed once.
async fn run(device: &mut impl Device, ops: Vec<IoOp>) -> Vec<Result<IoOutput, IoError>> {
    let count = ops.len();
    let requests = ops
        .into_iter()
        .enumerate()
        .map(|(index, op)| IoRequest {
            log: LOG,
            token: IoToken(index as u64),
            op,
        })
        .collect();
    let mut completions = device.run(requests).await;
    completions.sort_by_key(|completion| completion.token);
    let tokens: Vec<_> = completions
        .iter()
        .map(|completion| (completion.log, completion.token.0))
        .collect();
    assert_eq!(
        tokens,
        (0..count as u64).map(|token| (LOG, token)).collect::<Vec<_>>()
    );
    completions
        .into_iter()
        .map(|completion| completion.result)
        .collect()
}

async fn run_one(device: &mut impl Device, op: IoOp) -> Result<IoOutput, IoError> {
    run(device, vec![op]).await.remove(0)
}

async fn done(device: &mut impl Device, op: IoOp) {
    assert_eq!(
        run_one(device, op).await.expect("the request succeeds"),
        IoOutput::Done
    );
}

async fn bytes(device: &mut impl Device, op: IoOp) -> Bytes {
    match run_one(device, op).await.expect("the read succeeds") {
        IoOutput::Read(bytes) => bytes,
        IoOutput::Done => panic!("a read yields bytes"),
    }
}

async fn created(device: &mut impl Device, dir: &Path, number: u32) -> FileId {
    let path = dir.join(format!("{number}.log"));
    done(
        device,
        IoOp::Create {
            file: file(number),
            path,
        },
    )
    .await;
    file(number)
}

/// Bytes that differ from place to place and from seed to seed.
fn pattern(seed: usize, len_bytes: usize) -> Vec<u8> {
    (0..len_bytes)
        .map(|at| ((at * 31 + at / 251 + seed * 17) % 256) as u8)
        .collect()
}

pub async fn written_buffers_are_read_back_without_gaps(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    done(device, write(file, 0, &[b"one", b"", b"two", b"three"])).await;
    assert_eq!(bytes(device, read(file, 0, 11)).await, "onetwothree");
    assert_eq!(bytes(device, read(file, 3, 3)).await, "two");
    assert_eq!(bytes(device, read(file, 3, 0)).await, "");
}

pub async fn writes_at_positions_may_complete_in_any_order(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    let parts: Vec<_> = (0..16).map(|index| pattern(index, 4096)).collect();
    let ops = [3, 0, 15, 1, 2, 9, 8, 7, 6, 5, 4, 14, 13, 12, 11, 10]
        .map(|index| write(file, index as u64 * 4096, &[&parts[index]]));
    for result in run(device, Vec::from(ops)).await {
        assert_eq!(result.unwrap(), IoOutput::Done);
    }
    assert_eq!(bytes(device, read(file, 0, 16 * 4096)).await, parts.concat());
}

pub async fn empty_write_completes(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    done(device, write(file, 5, &[])).await;
    done(device, write(file, 5, &[b""])).await;
    assert_eq!(bytes(device, read(file, 0, 10)).await, "");
}

pub async fn write_of_a_mebibyte_from_many_buffers_is_whole(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    let whole = pattern(1, 1 << 20);
    let buffers: Vec<_> = whole.chunks(16 * 1024 + 7).collect();
    done(device, write(file, 100, &buffers)).await;
    assert_eq!(bytes(device, read(file, 100, 1 << 20)).await, whole);
    assert_eq!(bytes(device, read(file, 0, 100)).await, vec![0; 100]);
}

pub async fn more_buffers_than_one_system_call_takes_are_written(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    let whole = pattern(2, 3000);
    let buffers: Vec<_> = whole.chunks(1).collect();
    done(device, write(file, 0, &buffers)).await;
    assert_eq!(bytes(device, read(file, 0, 4000)).await, whole);
}

pub async fn burst_larger_than_any_queue_completes_each_request_once(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    let whole = pattern(3, 5000 * 16);
    let ops = whole
        .chunks(16)
        .enumerate()
        .map(|(index, part)| write(file, index as u64 * 16, &[part]));
    for result in run(device, ops.collect()).await {
        assert_eq!(result.unwrap(), IoOutput::Done);
    }
    let reads = (0..5000).map(|index| read(file, index * 16, 16)).collect();
    for (result, part) in run(device, reads).await.into_iter().zip(whole.chunks(16)) {
        assert_eq!(result.unwrap(), IoOutput::Read(Bytes::copy_from_slice(part)));
    }
}

pub async fn read_past_the_end_is_short(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    done(device, write(file, 0, &[b"0123456789"])).await;
    assert_eq!(bytes(device, read(file, 6, 100)).await, "6789");
    assert_eq!(bytes(device, read(file, 10, 100)).await, "");
    assert_eq!(bytes(device, read(file, 1 << 40, 1)).await, "");
}

pub async fn zeros_extend_the_file_and_take_data(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    done(device, write(file, 0, &[b"0123456789"])).await;
    // More than one piece, and more than one system call takes.
    for (position, len_bytes) in [(4096, 4096), (8192, (5 << 20) + 4096), (4096, 4096)] {
        done(device, zero(file, position, len_bytes)).await;
    }
    let len_bytes = 8192 + (5 << 20) + 4096;
    assert_eq!(bytes(device, read(file, len_bytes - 6, 100)).await, vec![0; 6]);
    done(device, write(file, 10, &[b"abc"])).await;
    done(device, IoOp::Sync { file }).await;
    done(device, write(file, 5000, &[b"within zeros"])).await;
    done(device, IoOp::Sync { file }).await;
    let mut wanted = vec![0; usize::try_from(len_bytes).unwrap()];
    wanted[..13].copy_from_slice(b"0123456789abc");
    wanted[5000..5012].copy_from_slice(b"within zeros");
    assert!(bytes(device, read(file, 0, u32::try_from(len_bytes).unwrap() + 1)).await == wanted);
}

pub async fn zeros_beside_writes_leave_them_as_they_are(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    let parts: Vec<_> = (0..16).map(|index| pattern(index, 65536)).collect();
    for (index, part) in parts.iter().enumerate() {
        let position = index as u64 * 65536;
        let ops = vec![
            write(file, position, &[part]),
            zero(file, position + 65536, 65536),
            IoOp::Sync { file },
        ];
        for result in run(device, ops).await {
            assert_eq!(result.unwrap(), IoOutput::Done);
        }
    }
    let written = bytes(device, read(file, 0, 17 * 65536)).await;
    assert!(written[..16 * 65536] == parts.concat());
    assert!(written[16 * 65536..] == vec![0; 65536]);
}

pub async fn file_is_cut_and_extended(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    done(device, write(file, 0, &[b"0123456789"])).await;
    done(device, zero(file, 4096, 8192)).await;
    let set_len = |len_bytes| IoOp::SetLen { file, len_bytes };
    done(device, set_len(10)).await;
    assert_eq!(bytes(device, read(file, 0, 100)).await, "0123456789");
    done(device, set_len(5)).await;
    done(device, set_len(7)).await;
    assert_eq!(bytes(device, read(file, 0, 100)).await, "01234\0\0");
    let entries = device.storage(|storage| storage.list(dir)).unwrap();
    assert_eq!(entries[0].len_bytes, 7);
}

pub async fn synced_bytes_are_in_the_file(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    done(device, write(file, 0, &[b"kept"])).await;
    let results = run(device, vec![IoOp::Sync { file }, write(file, 4, &[b" and more"])]).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    done(device, IoOp::Sync { file }).await;
    assert_eq!(bytes(device, read(file, 0, 100)).await, "kept and more");
}

pub async fn create_of_an_existing_file_fails_and_names_it(device: &mut impl Device, dir: &Path) {
    let path = dir.join("0.log");
    let first = created(device, dir, 0).await;
    done(device, write(first, 0, &[b"first"])).await;
    let error = run_one(
        device,
        IoOp::Create {
            file: file(1),
            path: path.clone(),
        },
    )
    .await
    .unwrap_err();
    assert_eq!(error.source.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(error.operation.contains(&path.display().to_string()), "{error}");
    assert_eq!(bytes(device, read(first, 0, 10)).await, "first");
    assert!(run_one(device, read(file(1), 0, 1)).await.is_err());
}

pub async fn create_in_a_missing_directory_fails_and_names_the_file(device: &mut impl Device, dir: &Path) {
    let path = dir.join("missing").join("0.log");
    let error = run_one(
        device,
        IoOp::Create {
            file: file(0),
            path: path.clone(),
        },
    )
    .await
    .unwrap_err();
    assert_eq!(error.source.kind(), std::io::ErrorKind::NotFound);
    assert!(error.operation.contains(&path.display().to_string()), "{error}");
}

pub async fn open_gives_an_existing_file_its_name(device: &mut impl Device, dir: &Path) {
    let path = dir.join("x.log");
    device.storage(|storage| storage.put_file(&path, b"here").unwrap());
    let opened = |number| IoOp::Open {
        file: file(number),
        path: path.clone(),
    };
    done(device, opened(4)).await;
    done(device, opened(5)).await;
    done(device, IoOp::Close { file: file(5) }).await;
    done(device, write(file(4), 4, &[b" too"])).await;
    assert_eq!(bytes(device, read(file(4), 0, 100)).await, "here too");
    device.storage(|storage| storage.remove_file(&path).unwrap());
    assert_eq!(bytes(device, read(file(4), 0, 100)).await, "here too");
    assert!(run_one(device, opened(6)).await.is_err());
}

pub async fn put_replaces_the_whole_file_and_leaves_nothing_beside(device: &mut impl Device, dir: &Path) {
    let path = dir.join("checkpoint");
    for contents in [pattern(4, 9000), b"short".to_vec()] {
        let bytes = Bytes::copy_from_slice(&contents);
        done(
            device,
            IoOp::Put {
                path: path.clone(),
                bytes,
            },
        )
        .await;
        assert_eq!(
            device
                .storage(|storage| storage.read_file(&path, 10_000))
                .unwrap(),
            contents
        );
    }
    let entries = device.storage(|storage| storage.list(dir)).unwrap();
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["checkpoint"]);
}

pub async fn puts_of_one_file_at_once_leave_one_of_them(device: &mut impl Device, dir: &Path) {
    let path = dir.join("checkpoint");
    let contents: Vec<_> = (0..6).map(|index| pattern(index, 1000 + index * 500)).collect();
    let puts = contents.iter().map(|contents| IoOp::Put {
        path: path.clone(),
        bytes: Bytes::copy_from_slice(contents),
    });
    for result in run(device, puts.collect()).await {
        assert_eq!(result.unwrap(), IoOutput::Done);
    }
    let left = device
        .storage(|storage| storage.read_file(&path, 10_000))
        .unwrap();
    assert!(contents.contains(&left), "{} bytes of no put", left.len());
}

fn rename(dir: &Path, renames: &[(&str, &str)]) -> IoOp {
    let renames = renames
        .iter()
        .map(|(from, to)| (dir.join(from), dir.join(to)))
        .collect();
    IoOp::Rename { renames }
}

pub async fn renames_happen_in_order_for_what_exists(device: &mut impl Device, dir: &Path) {
    device.storage(|storage| {
        for name in ["a", "b", "c"] {
            storage.put_file(&dir.join(name), name.as_bytes()).unwrap();
        }
    });
    // The order shows: `a` makes room for `b`, and `c` is replaced by what was `a`.
    let renames = [("never", "b"), ("a", "a.old"), ("b", "a"), ("a.old", "c")];
    done(device, rename(dir, &renames)).await;
    done(device, rename(dir, &[])).await;
    device.storage(|storage| {
        let entries = storage.list(dir).unwrap();
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(storage.read_file(&dir.join("a"), 10).unwrap(), b"b");
        assert_eq!(storage.read_file(&dir.join("c"), 10).unwrap(), b"a");
    });
}

pub async fn rename_keeps_open_files_as_they_are(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    done(device, write(file, 0, &[b"kept"])).await;
    done(device, rename(dir, &[("0.log", "0.log.deleted")])).await;
    done(device, write(file, 4, &[b" and more"])).await;
    assert_eq!(bytes(device, read(file, 0, 100)).await, "kept and more");
    let path = dir.join("0.log.deleted");
    let renamed = device.storage(|storage| storage.read_file(&path, 100)).unwrap();
    assert_eq!(renamed, b"kept and more");
}

pub async fn each_of_many_files_stays_itself_whatever_its_name_becomes(device: &mut impl Device, dir: &Path) {
    let mut files = Vec::new();
    for number in 0..10_u8 {
        let file = created(device, dir, u32::from(number)).await;
        done(device, write(file, 0, &[&[number; 8]])).await;
        done(device, IoOp::Sync { file }).await;
        files.push((file, number));
    }
    done(
        device,
        rename(dir, &[("0.log", "0.log.deleted"), ("1.log", "0.log")]),
    )
    .await;
    for &(file, number) in files.iter().chain(files.iter().rev()) {
        assert_eq!(bytes(device, read(file, 0, 100)).await, vec![number; 8]);
    }
}

pub async fn failed_rename_names_both_files(device: &mut impl Device, dir: &Path) {
    let (file, in_the_way) = (dir.join("a"), dir.join("b"));
    device.storage(|storage| {
        storage.put_file(&file, b"a").unwrap();
        storage.create_dir(&in_the_way).unwrap();
    });
    let error = run_one(device, rename(dir, &[("a", "b")])).await.unwrap_err();
    for path in [file, in_the_way] {
        assert!(error.operation.contains(&path.display().to_string()), "{error}");
    }
}

pub async fn remove_deletes_what_exists(device: &mut impl Device, dir: &Path) {
    created(device, dir, 0).await;
    created(device, dir, 1).await;
    let paths = ["never.log", "0.log"].map(|name| dir.join(name));
    done(
        device,
        IoOp::Remove {
            paths: Vec::from(paths),
        },
    )
    .await;
    let entries = device.storage(|storage| storage.list(dir)).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].name, "1.log");
}

pub async fn close_keeps_reads_under_way_alive(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    let whole = pattern(5, 1 << 20);
    done(device, write(file, 0, &[&whole])).await;
    let mut ops: Vec<_> = (0..8).map(|_| read(file, 0, 1 << 20)).collect();
    ops.push(IoOp::Close { file });
    let mut results = run(device, ops).await;
    assert_eq!(results.pop().expect("the close").unwrap(), IoOutput::Done);
    for result in results {
        assert_eq!(result.unwrap(), IoOutput::Read(Bytes::copy_from_slice(&whole)));
    }
}

pub async fn closed_file_is_refused(device: &mut impl Device, dir: &Path) {
    let file = created(device, dir, 0).await;
    done(device, IoOp::Close { file }).await;
    for op in [
        read(file, 0, 1),
        write(file, 0, &[b"x"]),
        zero(file, 0, 4096),
        IoOp::SetLen { file, len_bytes: 0 },
        IoOp::Sync { file },
        IoOp::Close { file },
    ] {
        assert!(run_one(device, op).await.is_err());
    }
    let path = dir.join("0.log");
    let len_bytes = device
        .storage(|storage| storage.open(self::file(1), &path, OpenMode::Existing))
        .unwrap();
    assert_eq!(len_bytes, 0);
}

pub async fn unknown_file_is_refused(device: &mut impl Device, _dir: &Path) {
    let error = run_one(device, IoOp::Sync { file: file(99) }).await.unwrap_err();
    assert!(error.to_string().contains("99"), "{error}");
}

pub async fn storage_sees_what_requests_wrote(device: &mut impl Device, dir: &Path) {
    let id = created(device, dir, 0).await;
    done(device, write(id, 0, &[b"0123456789"])).await;
    let mut buf = [0; 8];
    device.storage(|storage| {
        assert_eq!(storage.read_at(id, 4, &mut buf).unwrap(), 6);
        assert_eq!(&buf[..6], b"456789");
        storage.set_len(id, 5).unwrap();
        storage.sync(id).unwrap();
        let entries = storage.list(dir).unwrap();
        assert_eq!((entries[0].len_bytes, entries[0].is_dir), (5, false));
        let other = dir.join("other.log");
        assert_eq!(storage.open(file(1), &other, OpenMode::CreateNew).unwrap(), 0);
        let again = storage.open(file(2), &other, OpenMode::CreateNew).unwrap_err();
        assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
        let missing = storage
            .open(file(2), &dir.join("missing"), OpenMode::Existing)
            .unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    });
    assert_eq!(bytes(device, read(id, 0, 10)).await, "01234");
    done(device, write(file(1), 0, &[b"via storage"])).await;
    assert_eq!(bytes(device, read(file(1), 4, 10)).await, "storage");
}

pub async fn storage_writes_where_it_is_told(device: &mut impl Device, dir: &Path) {
    let path = dir.join("a.log");
    device.storage(|storage| {
        storage.open(file(0), &path, OpenMode::CreateNew).unwrap();
        storage.write_at(file(0), 0, b"one three").unwrap();
        storage.write_at(file(0), 4, b"two").unwrap();
        storage.sync(file(0)).unwrap();
        assert_eq!(storage.read_file(&path, 100).unwrap(), b"one twoee");
        storage.close(file(0));
        assert!(storage.write_at(file(0), 0, b"x").is_err());
    });
}

pub async fn storage_reads_small_files_within_a_limit(device: &mut impl Device, dir: &Path) {
    let path = dir.join("checkpoint");
    device.storage(|storage| {
        storage.put_file(&path, b"12345").unwrap();
        assert_eq!(storage.read_file(&path, 5).unwrap(), b"12345");
        let error = storage.read_file(&path, 4).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
        storage.put_file(&path, b"").unwrap();
        assert_eq!(storage.read_file(&path, 0).unwrap(), b"");
        storage.remove_file(&path).unwrap();
        assert_eq!(
            storage.read_file(&path, 5).unwrap_err().kind(),
            std::io::ErrorKind::NotFound
        );
    });
}

pub async fn storage_renames_directories(device: &mut impl Device, dir: &Path) {
    let (before, after) = (dir.join("t-0"), dir.join("t-0.deleted"));
    device.storage(|storage| {
        storage.create_dir(&before).unwrap();
        storage.create_dir(&before).unwrap();
        storage.put_file(&before.join("a"), b"a").unwrap();
        storage.rename(&before, &after).unwrap();
        let entries = storage.list(dir).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(
            (entries[0].name.as_str(), entries[0].is_dir),
            ("t-0.deleted", true)
        );
        assert_eq!(storage.read_file(&after.join("a"), 10).unwrap(), b"a");
    });
}
