//! What the process is allowed, and in words what to do when it is not enough.
//!
//! Owns the messages a person reads when the kernel refuses descriptors or io_uring.

use std::io;

/// A limit that is not known is taken for the usual one.
const FD_LIMIT_UNKNOWN: u64 = 1024;
/// Each costs about a kilobyte in the kernel; opening one again costs some microseconds.
const OPEN_FILES_MAX: usize = 64 * 1024;

/// The limit on open descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdLimit {
    /// In force now.
    pub soft: u64,
    /// How far the process may raise it itself.
    pub hard: u64,
}

/// The limit on open descriptors of this process.
///
/// # Errors
///
/// The operating system's.
pub fn fd_limit() -> io::Result<FdLimit> {
    resource_limit(libc::RLIMIT_NOFILE).map(|limit| FdLimit {
        soft: limit.rlim_cur,
        hard: limit.rlim_max,
    })
}

/// Raises the limit on open descriptors as far as the process may, and returns it. Every connection
/// takes one, and so does every segment in use; see [`open_files_max`].
///
/// # Errors
///
/// The operating system's.
pub fn raise_fd_limit() -> io::Result<u64> {
    let mut limit = resource_limit(libc::RLIMIT_NOFILE)?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid rlimit that outlives the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    if result == 0 {
        Ok(limit.rlim_cur)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// How many files of logs the process should keep open at most: half of what it may open now. The rest is for connections,
/// for the program around the engine, and for files that may not be closed.
#[must_use]
pub fn open_files_max() -> usize {
    let soft = fd_limit().map_or(FD_LIMIT_UNKNOWN, |limit| limit.soft);
    usize::try_from(soft / 2).map_or(OPEN_FILES_MAX, |half| half.min(OPEN_FILES_MAX))
}

/// Says why setting up a ring failed and what helps, keeping the kind of the error.
pub(crate) fn explain_ring_error(error: io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel was built without io_uring".to_owned(),
        Some(libc::EPERM | libc::EACCES) => "io_uring is forbidden here: set the sysctl kernel.io_uring_disabled \
             to 0, or allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile"
            .to_owned(),
        Some(libc::ENOMEM) => match resource_limit(libc::RLIMIT_MEMLOCK) {
            Ok(limit) if limit.rlim_cur != libc::RLIM_INFINITY => format!(
                "out of lockable memory: the memlock limit is {} KiB, raise it (ulimit -l, LimitMEMLOCK=)",
                limit.rlim_cur / 1024
            ),
            _ => "out of memory".to_owned(),
        },
        Some(libc::EMFILE) => "too many open files: raise the limit (ulimit -n, LimitNOFILE=)".to_owned(),
        Some(libc::ENFILE) => "too many open files in the system: raise the sysctl fs.file-max".to_owned(),
        _ => "io_uring cannot be set up".to_owned(),
    };
    io::Error::new(error.kind(), format!("{remedy} ({error})"))
}

fn resource_limit(resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit for the kernel to fill.
    let result = unsafe { libc::getrlimit(resource, &raw mut limit) };
    if result == 0 {
        Ok(limit)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_io_uring_is_explained_with_its_remedy() {
        let error = explain_ring_error(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("kernel.io_uring_disabled"), "{error}");
    }

    #[test]
    fn raised_fd_limit_is_the_hard_limit() {
        let raised = raise_fd_limit().unwrap();
        let limit = fd_limit().unwrap();
        assert_eq!((limit.soft, limit.hard), (raised, raised));
    }
}
