//! What a disk may hold after its power was cut: all that a completed sync covered, and of the
//! later writes whatever the seed says.
//!
//! Owns the rules of a disk with a volatile cache: a write that no completed sync covers may be there,
//! be missing, or be there in part, in units of a sector, whatever became of the writes before and
//! after it. Goes through a recording once, forward, so that many cuts cost little more than one.
//! Knows no file system. Tested below.

use super::image::Image;
use super::recorder::{Event, Recording};
use crate::random::Random;

/// A disk writes so many bytes wholly or not at all.
const SECTOR_BYTES: usize = 512;
/// What lies here is never torn: ext4 writes its superblock outside the journal and cannot be mounted with
/// half of it, which says nothing about what stands on it.
const SUPERBLOCK_END: usize = 4096;

/// What becomes of the writes that no completed sync covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They are all lost.
    Lost,
    /// Most are there: one in eight is lost or torn.
    Kept,
    /// Each is there, lost or torn.
    Each,
    /// The first ones are there, one is torn, the others are lost.
    FirstOnes,
}

impl Fate {
    /// One of the four.
    pub fn pick(random: &mut Random) -> Self {
        [Self::Lost, Self::Kept, Self::Each, Self::FirstOnes][random.below(4)]
    }
}

/// A place in a recording that moves forward.
#[derive(Debug)]
pub struct Cutter<'a> {
    events: &'a [Event],
    at: usize,
    /// The disk with all that is durable, and nothing else.
    durable: Image,
    /// The writes that are not, by their place among the events.
    volatile: Vec<(usize, usize, &'a [u8])>,
}

impl<'a> Cutter<'a> {
    /// At the start.
    #[must_use]
    pub fn new(recording: &'a Recording) -> Self {
        Self {
            events: &recording.events,
            at: 0,
            durable: recording.before.clone(),
            volatile: Vec::new(),
        }
    }

    /// Moves on until the first `events` events have happened.
    ///
    /// # Panics
    ///
    /// Where it is further than that, or the recording is shorter.
    pub fn advance(&mut self, events: usize) {
        for (index, event) in self.events[self.at..events].iter().enumerate() {
            match event {
                Event::Write { position, data } => self.volatile.push((self.at + index, *position, data)),
                Event::Sync { covers } => {
                    let volatile = std::mem::take(&mut self.volatile);
                    for write in volatile {
                        if write.0 < *covers {
                            self.durable.write(write.1, write.2);
                        } else {
                            self.volatile.push(write);
                        }
                    }
                }
                Event::Note(_) => {}
            }
        }
        self.at = events;
    }

    /// How many writes no completed sync covers.
    #[must_use]
    pub fn volatile_writes(&self) -> usize {
        self.volatile.len()
    }

    /// A disk that a cut here may leave.
    #[must_use]
    pub fn image(&self, fate: Fate, random: &mut Random) -> Image {
        let mut image = self.durable.clone();
        let first_ones = random.below(self.volatile.len() + 1);
        for (index, (_, position, data)) in self.volatile.iter().enumerate() {
            let share = match fate {
                Fate::Lost => Share::None,
                Fate::Kept if !random.one_in(8) => Share::All,
                Fate::Kept => [Share::None, Share::Torn][random.below(2)],
                Fate::Each => [Share::All, Share::All, Share::None, Share::Torn][random.below(4)],
                Fate::FirstOnes if index < first_ones => Share::All,
                Fate::FirstOnes if index == first_ones => Share::Torn,
                Fate::FirstOnes => Share::None,
            };
            match share {
                Share::None => {}
                Share::Torn if *position < SUPERBLOCK_END => image.write(*position, data),
                Share::All => image.write(*position, data),
                Share::Torn => tear(&mut image, *position, data, random),
            }
        }
        image
    }
}

#[derive(Clone, Copy)]
enum Share {
    None,
    All,
    Torn,
}

/// Writes the first sectors of `data`, or each by chance.
fn tear(image: &mut Image, position: usize, data: &[u8], random: &mut Random) {
    let sectors = data.len().div_ceil(SECTOR_BYTES);
    let first_ones = random.one_in(2).then(|| random.below(sectors + 1));
    for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
        if first_ones.map_or_else(|| random.one_in(2), |count| index < count) {
            image.write(position + index * SECTOR_BYTES, sector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(position: usize, byte: u8) -> Event {
        Event::Write {
            position: position + SUPERBLOCK_END,
            data: vec![byte; 2 * SECTOR_BYTES],
        }
    }

    fn recording(events: Vec<Event>) -> Recording {
        Recording {
            before: Image::new(65_536),
            events,
        }
    }

    fn sector(image: &Image, position: usize) -> u8 {
        let mut buffer = [0; SECTOR_BYTES];
        image.read(position + SUPERBLOCK_END, &mut buffer);
        assert!(buffer.iter().all(|byte| *byte == buffer[0]), "a sector is whole");
        buffer[0]
    }

    #[test]
    fn what_a_completed_sync_covers_is_there_whatever_the_fate() {
        let recording = recording(vec![write(0, 1), Event::Sync { covers: 1 }, write(4096, 2)]);
        let mut cutter = Cutter::new(&recording);
        cutter.advance(3);
        assert_eq!(cutter.volatile_writes(), 1);
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let fate = Fate::pick(&mut random);
            let image = cutter.image(fate, &mut random);
            assert_eq!((sector(&image, 0), sector(&image, SECTOR_BYTES)), (1, 1));
        }
    }

    #[test]
    fn a_sync_under_way_and_one_that_came_too_early_cover_nothing() {
        let recording = recording(vec![write(0, 1), write(4096, 2), Event::Sync { covers: 1 }]);
        let mut cutter = Cutter::new(&recording);
        cutter.advance(2);
        let lost = cutter.image(Fate::Lost, &mut Random::new(0));
        assert_eq!((sector(&lost, 0), sector(&lost, 4096)), (0, 0));
        cutter.advance(3);
        let lost = cutter.image(Fate::Lost, &mut Random::new(0));
        assert_eq!((sector(&lost, 0), sector(&lost, 4096)), (1, 0));
    }

    #[test]
    fn other_writes_are_kept_lost_and_torn() {
        let recording = recording(vec![write(0, 1)]);
        let mut cutter = Cutter::new(&recording);
        cutter.advance(1);
        let mut seen = [[false; 2]; 2];
        for seed in 0..500 {
            let image = cutter.image(Fate::Each, &mut Random::new(seed));
            seen[usize::from(sector(&image, 0))][usize::from(sector(&image, SECTOR_BYTES))] = true;
        }
        assert_eq!(seen, [[true; 2]; 2]);
    }

    #[test]
    fn a_later_write_over_a_durable_one_may_be_lost_but_brings_nothing_older_back() {
        let recording = recording(vec![
            write(0, 1),
            Event::Sync { covers: 1 },
            write(0, 2),
            Event::Sync { covers: 3 },
        ]);
        let mut cutter = Cutter::new(&recording);
        cutter.advance(3);
        assert_eq!(sector(&cutter.image(Fate::Lost, &mut Random::new(0)), 0), 1);
        cutter.advance(4);
        assert_eq!(sector(&cutter.image(Fate::Lost, &mut Random::new(0)), 0), 2);
    }
}
