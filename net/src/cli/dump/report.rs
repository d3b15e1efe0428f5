//! Where findings go: lines to stdout in order, complaints to stderr.

use std::io::{self, Write};
use std::path::Path;

use super::super::line::Line;

/// What one run of the command writes, and how much it found corrupt.
pub(super) struct Report<W> {
    out: W,
    json: bool,
    faults: usize,
}

impl<W: Write> Report<W> {
    pub(super) fn new(out: W, json: bool) -> Self {
        Self { out, json, faults: 0 }
    }

    /// Writes a line, indented in text where it belongs to the one before.
    pub(super) fn line(&mut self, line: &Line, indented: bool) -> io::Result<()> {
        if self.json {
            return line.write_json(&mut self.out);
        }
        if indented {
            self.out.write_all(b"  ")?;
        }
        line.write_text(&mut self.out)
    }

    /// Says what is wrong at a byte of a file: to stderr at once, and into the output for scripts.
    pub(super) fn fault(&mut self, path: &Path, position: u64, problem: &str) -> io::Result<()> {
        self.faults += 1;
        // What was read before the fault comes before it also where both streams are one terminal.
        self.out.flush()?;
        eprintln!("{}: position {position}: {problem}", path.display());
        let line = Line::new().with("corrupt", problem).with("position", position);
        if self.json {
            line.write_json(&mut self.out)
        } else {
            Ok(())
        }
    }

    /// Says that nothing can be read there, and why.
    pub(super) fn unreadable(&mut self, path: &Path, problem: &str) -> io::Result<()> {
        self.faults += 1;
        self.out.flush()?;
        eprintln!("{}: {problem}", path.display());
        if self.json {
            Line::new().with("unreadable", problem).write_json(&mut self.out)
        } else {
            Ok(())
        }
    }

    /// Faults so far.
    pub(super) fn faults(&self) -> usize {
        self.faults
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}
