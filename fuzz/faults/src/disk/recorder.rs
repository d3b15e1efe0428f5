//! A disk in memory that remembers, in order, each write, each sync and each note of a program.
//!
//! ```text
//! A sync covers the writes that had completed when it arrived, not those that complete while it is
//! under way: nothing else may be relied on, and a real disk keeps no more of its word.
//! ```
//!
//! Notes come over a file of their own and so stand on the same timeline: what a note says was true
//! before all that is recorded after it. Knows no meaning of a note. What is left of the disk after a
//! cut: `cut.rs`. Tested below.

use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::Duration;

use fuser::Errno;

use super::image::Image;
use super::serve::ServedFile;

/// A sync takes so long that writes of others complete meanwhile, as they do on a real disk.
const SYNC_TAKES: Duration = Duration::from_micros(150);

/// What happened to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `data` was written at `position`; not durable by itself.
    Write {
        /// Bytes from the start of the disk.
        position: usize,
        /// What was written.
        data: Vec<u8>,
    },
    /// The first `covers` events are durable now.
    Sync {
        /// How many events there were when the sync arrived.
        covers: usize,
    },
    /// A program said so.
    Note(String),
}

/// A part of a disk's life.
#[derive(Debug)]
pub struct Recording {
    /// The disk before it, all of it durable.
    pub before: Image,
    /// What happened since.
    pub events: Vec<Event>,
}

/// See the module.
#[derive(Debug)]
pub struct Recorder {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    image: Image,
    recording: Option<Recording>,
}

impl Recorder {
    /// A disk that does not record yet.
    #[must_use]
    pub fn new(image: Image) -> Self {
        let state = State {
            image,
            recording: None,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Makes the disk another. Nothing on top may be in use.
    pub fn replace(&self, image: Image) {
        self.lock().image = image;
    }

    /// Records from now on; what the disk holds counts as durable.
    pub fn start(&self) {
        let mut state = self.lock();
        let before = state.image.clone();
        state.recording = Some(Recording {
            before,
            events: Vec::new(),
        });
    }

    /// What was recorded since the start, and no more from now on.
    ///
    /// # Panics
    ///
    /// Where recording was not started.
    #[must_use]
    pub fn stop(&self) -> Recording {
        self.lock().recording.take().expect("recording was started")
    }

    /// Adds a note, if it records.
    pub fn note(&self, text: &str) {
        if let Some(recording) = &mut self.lock().recording {
            recording.events.push(Event::Note(text.to_owned()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl ServedFile for Recorder {
    fn len_bytes(&self) -> u64 {
        self.lock().image.len_bytes() as u64
    }

    fn read(&self, position: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        self.lock().image.read(position as usize, buffer);
        Ok(())
    }

    fn write(&self, position: u64, data: &[u8]) -> Result<(), Errno> {
        let position = position as usize;
        let copy = data.to_vec();
        let mut state = self.lock();
        if state.image.len_bytes() < position + data.len() {
            return Err(Errno::ENOSPC);
        }
        state.image.write(position, data);
        if let Some(recording) = &mut state.recording {
            recording.events.push(Event::Write { position, data: copy });
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        let arrived = self
            .lock()
            .recording
            .as_ref()
            .map(|recording| recording.events.len());
        let Some(covers) = arrived else { return Ok(()) };
        sleep(SYNC_TAKES);
        if let Some(recording) = &mut self.lock().recording {
            recording.events.push(Event::Sync { covers });
        }
        Ok(())
    }
}

/// The file that takes notes: each write is one.
#[derive(Debug)]
pub struct Notes<F>(pub F);

impl<F: Fn(String) + Send + Sync> ServedFile for Notes<F> {
    fn len_bytes(&self) -> u64 {
        0
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Ok(())
    }

    fn write(&self, _: u64, data: &[u8]) -> Result<(), Errno> {
        let text = String::from_utf8(data.to_vec()).map_err(|_| Errno::EINVAL)?;
        (self.0)(text);
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_recorded_in_order_and_read_back() {
        let disk = Recorder::new(Image::new(65_536));
        disk.write(0, b"before").unwrap();
        disk.start();
        disk.write(512, b"new").unwrap();
        disk.note("said");
        disk.sync().unwrap();
        let mut buffer = [0; 3];
        disk.read(512, &mut buffer).unwrap();
        assert_eq!(&buffer, b"new");

        let Recording { before, events } = disk.stop();
        let wanted = [
            Event::Write {
                position: 512,
                data: b"new".to_vec(),
            },
            Event::Note("said".to_owned()),
            Event::Sync { covers: 2 },
        ];
        assert_eq!(events, wanted);
        before.read(512, &mut buffer);
        assert_eq!(buffer, [0; 3]);
    }

    #[test]
    fn a_write_beyond_the_end_is_refused() {
        let disk = Recorder::new(Image::new(65_536));
        assert_eq!(disk.write(65_535, b"ab").unwrap_err(), Errno::ENOSPC);
    }
}
