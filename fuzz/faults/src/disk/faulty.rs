//! A disk in memory that fails the requests it is told to fail, with EIO.
//!
//! Owns the orders, one a line: `write TEXT` and `read TEXT` fail each request whose bytes hold TEXT,
//! `sync COUNT` fails the next COUNT syncs, `heal` ends them all. What a write would have changed stays as it
//! was. Knows no file system: who gives the orders knows what lies in its blocks. Tested below.

use std::str::FromStr;
use std::sync::{Mutex, MutexGuard};

use fuser::Errno;

use super::image::Image;
use super::serve::ServedFile;

/// What to fail from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each write that holds these bytes.
    Write(String),
    /// Each read that would yield them.
    Read(String),
    /// So many syncs.
    Sync(u32),
    /// Nothing any more.
    Heal,
}

/// A line that is not an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an order: {0:?}")]
pub struct OrderError(String);

impl FromStr for Order {
    type Err = OrderError;

    fn from_str(line: &str) -> Result<Self, OrderError> {
        let order = match line.split_once(' ').unwrap_or((line, "")) {
            ("write", text) if !text.is_empty() => Some(Self::Write(text.to_owned())),
            ("read", text) if !text.is_empty() => Some(Self::Read(text.to_owned())),
            ("sync", count) => count.parse().ok().map(Self::Sync),
            ("heal", "") => Some(Self::Heal),
            _ => None,
        };
        order.ok_or_else(|| OrderError(line.to_owned()))
    }
}

/// See the module.
#[derive(Debug)]
pub struct FaultyDisk {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    image: Image,
    writes: Vec<String>,
    reads: Vec<String>,
    syncs: u32,
}

impl FaultyDisk {
    /// A disk without faults.
    #[must_use]
    pub fn new(image: Image) -> Self {
        let state = State {
            image,
            writes: Vec::new(),
            reads: Vec::new(),
            syncs: 0,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Takes an order.
    pub fn obey(&self, order: Order) {
        let mut state = self.lock();
        match order {
            Order::Write(text) => state.writes.push(text),
            Order::Read(text) => state.reads.push(text),
            Order::Sync(count) => state.syncs = count,
            Order::Heal => {
                state.writes.clear();
                state.reads.clear();
                state.syncs = 0;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

/// Says so, for whoever runs the program, and fails.
fn fail(what: &str) -> Result<(), Errno> {
    println!("failed {what}");
    Err(Errno::EIO)
}

fn holds(data: &[u8], texts: &[String]) -> bool {
    let found = |text: &String| data.windows(text.len()).any(|window| window == text.as_bytes());
    texts.iter().any(found)
}

impl ServedFile for FaultyDisk {
    fn len_bytes(&self) -> u64 {
        self.lock().image.len_bytes() as u64
    }

    fn read(&self, position: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        let state = self.lock();
        state.image.read(position as usize, buffer);
        if holds(buffer, &state.reads) {
            return fail(&format!("a read of {} bytes at {position}", buffer.len()));
        }
        Ok(())
    }

    fn write(&self, position: u64, data: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        if holds(data, &state.writes) {
            return fail(&format!("a write of {} bytes at {position}", data.len()));
        }
        state.image.write(position as usize, data);
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        let mut state = self.lock();
        if state.syncs > 0 {
            state.syncs -= 1;
            return fail("a sync");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(orders: &[&str]) -> FaultyDisk {
        let disk = FaultyDisk::new(Image::new(65_536));
        disk.write(100, b"a bad apple").unwrap();
        orders.iter().for_each(|order| disk.obey(order.parse().unwrap()));
        disk
    }

    fn read(disk: &FaultyDisk) -> Result<Vec<u8>, Errno> {
        let mut buffer = vec![0; 11];
        disk.read(100, &mut buffer).map(|()| buffer)
    }

    #[test]
    fn only_what_was_ordered_fails_until_it_heals() {
        let disk = disk(&["write bad", "read apple"]);
        assert_eq!(disk.write(100, b"a bad pear.").unwrap_err(), Errno::EIO);
        assert_eq!(read(&disk).unwrap_err(), Errno::EIO);
        disk.write(200, b"a good pear").unwrap();
        disk.sync().unwrap();
        disk.obey(Order::Heal);
        assert_eq!(read(&disk).unwrap(), b"a bad apple");
        disk.write(100, b"a bad pear.").unwrap();
    }

    #[test]
    fn as_many_syncs_fail_as_were_ordered() {
        let disk = disk(&["sync 2"]);
        let results = [disk.sync(), disk.sync(), disk.sync()];
        assert_eq!(results.map(|result| result.is_ok()), [false, false, true]);
    }

    #[test]
    fn what_is_not_an_order_is_said() {
        for line in ["", "write", "write ", "sync", "sync many", "heal now", "burn it"] {
            assert_eq!(line.parse::<Order>(), Err(OrderError(line.to_owned())));
        }
    }
}
