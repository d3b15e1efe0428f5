//! The machine's part: loop devices, file systems, mounts, by the commands everyone has.
//!
//! Owns what it made and gives back that alone: a device by the name it was given, a mount by its
//! place. A program that is killed gives nothing back; the scripts that run it do. Knows no recording.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, io};

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FileSystem {
    /// ext4 with its journal, as everyone has it.
    Ext4,
    /// xfs.
    Xfs,
}

impl FileSystem {
    /// The smallest disk worth the name: xfs wants 300 MiB.
    #[must_use]
    pub fn disk_bytes(self) -> usize {
        match self {
            Self::Ext4 => 128 << 20,
            Self::Xfs => 320 << 20,
        }
    }

    /// Makes an empty one on `device`. It leaves nothing to be done when it is mounted.
    ///
    /// # Errors
    ///
    /// Where `mkfs` fails or is not installed.
    pub fn make(self, device: &Path) -> Result<(), CommandError> {
        let mkfs = match self {
            Self::Ext4 => {
                "mkfs.ext4 -q -F -b 4096 -J size=8 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0"
            }
            Self::Xfs => "mkfs.xfs -q -f -K",
        };
        let mut words = mkfs.split(' ').map(String::from).collect::<Vec<_>>();
        words.push(device.display().to_string());
        run(&words).map(drop)
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        })
    }
}

/// A command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It is not there.
    #[error("{command} cannot be run")]
    Start {
        /// Its words.
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It failed.
    #[error("{command} failed: {stderr}")]
    Failed {
        /// Its words.
        command: String,
        /// What it said.
        stderr: String,
    },
}

fn run(words: &[impl AsRef<str>]) -> Result<String, CommandError> {
    let words = words.iter().map(AsRef::as_ref).collect::<Vec<_>>();
    let command = words.join(" ");
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output();
    match output {
        Err(source) => Err(CommandError::Start { command, source }),
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(CommandError::Failed {
            command,
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

/// A loop device, given back when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Puts a free loop device on `file`, which no cache hides from it.
    ///
    /// # Errors
    ///
    /// Where there is none, or no right to have it.
    pub fn attach(file: &Path) -> Result<Self, CommandError> {
        let file = file.display().to_string();
        let path = run(&["losetup", "--find", "--show", "--direct-io=on", &file])?.into();
        Ok(Self { path })
    }

    /// The device's name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run(&["losetup", "--detach", &self.path.display().to_string()]) {
            eprintln!("{error}");
        }
    }
}

/// A mounted file system, unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
}

impl Mount {
    /// Mounts what is on `device` in the directory `at`; its journal is replayed.
    ///
    /// # Errors
    ///
    /// Where the file system is not sound.
    pub fn new(device: &Path, at: &Path) -> Result<Self, CommandError> {
        let (device, path) = (device.display().to_string(), at.display().to_string());
        run(&["mount", "-o", "noatime", &device, &path])?;
        Ok(Self { at: at.to_owned() })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = run(&["umount", &self.at.display().to_string()]) {
            eprintln!("{error}");
        }
    }
}
