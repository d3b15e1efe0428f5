//! A shard where io_uring is really forbidden: a seccomp filter on the test's own thread, which
//! the threads it starts inherit, answers io_uring_setup as container runtimes do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;

use bytes::Bytes;
use ringlog_engine::io::{FileId, IoCompletion, IoOp, IoOutput, IoRequest, IoToken};
use ringlog_engine::rt::{
    BackendChoice, BackendKind, ShardConfig, ShardContext, ShardStartError, spawn_shard,
};
use ringlog_engine::types::LogId;

/// Makes io_uring_setup fail with `errno` in this thread and those it starts.
fn forbid_io_uring(errno: i32) {
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    // Load the system call's number, the first word of the data; answer ours, allow the others.
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            u32::try_from(libc::SYS_io_uring_setup).unwrap(),
            0,
            1,
        ),
        statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | errno.cast_unsigned(),
            0,
            0,
        ),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog {
        len: 4,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: takes integers only.
    let locked = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(locked, 0);
    // SAFETY: `filter` points to `program`, both alive during the call.
    let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(filtered, 0, "{}", std::io::Error::last_os_error());
}

fn config(backend: BackendChoice) -> ShardConfig {
    ShardConfig {
        index: 3,
        cpu: None,
        name: "shard-3".to_owned(),
        backend,
    }
}

/// Creates a file, writes, syncs and reads it.
async fn used(context: ShardContext, path: std::path::PathBuf) -> IoOutput {
    let file = FileId {
        log: LogId(0),
        number: 0,
    };
    let ops = [
        IoOp::Create { file, path },
        IoOp::Write {
            file,
            position: 0,
            buffers: vec![Bytes::from_static(b"kept")],
        },
        IoOp::Sync { file },
        IoOp::Read {
            file,
            position: 0,
            len_bytes: 10,
        },
    ];
    let mut completions: Vec<IoCompletion> = Vec::new();
    for (token, op) in ops.into_iter().enumerate() {
        completions.clear();
        context.io.submit([IoRequest {
            log: LogId(0),
            token: IoToken(token as u64),
            op,
        }]);
        context.io.completions(&mut completions).await;
    }
    completions.pop().unwrap().result.unwrap()
}

#[test]
fn forbidden_io_uring_is_reported_and_the_helper_thread_takes_over() {
    forbid_io_uring(libc::EPERM);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let shard = spawn_shard(config(BackendChoice::Auto), move |context: ShardContext| {
        used(context, path)
    })
    .unwrap();
    assert_eq!(shard.backend(), BackendKind::Blocking);
    let reason = shard.fallback_reason().unwrap().to_string();
    assert!(
        reason.contains("seccomp") && reason.contains("Operation not permitted"),
        "{reason}"
    );
    assert_eq!(shard.join().unwrap(), IoOutput::Read(Bytes::from_static(b"kept")));
}

#[test]
fn io_uring_insisted_upon_and_forbidden_is_a_start_error() {
    forbid_io_uring(libc::ENOSYS);
    let error = spawn_shard(config(BackendChoice::Ring), async |_: ShardContext| ()).unwrap_err();
    assert!(matches!(error, ShardStartError::Ring { index: 3, .. }), "{error}");
    assert!(
        error.source().unwrap().to_string().contains("without io_uring"),
        "{error}"
    );
}

#[test]
fn helper_thread_asked_for_has_no_reason_to_give() {
    forbid_io_uring(libc::EPERM);
    let shard = spawn_shard(config(BackendChoice::Blocking), async |_: ShardContext| ()).unwrap();
    assert!(shard.fallback_reason().is_none());
    shard.join().unwrap();
}
