//! A disk to put under a broker: `fault_disk DIR MIB` serves DIR/disk, and takes orders what to fail as lines
//! written to DIR/orders, until it is told to stop. Run by `net/tests/interop/disk_faults.sh`.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use ringlog_faults::Outcome;
use ringlog_faults::disk::faulty::FaultyDisk;
use ringlog_faults::disk::image::Image;
use ringlog_faults::disk::recorder::Notes;
use ringlog_faults::disk::serve::serve;

/// Serves a disk whose requests fail when told to.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the files `disk` and `orders` appear: an empty directory.
    dir: PathBuf,
    /// The disk's size.
    mib: usize,
}

fn main() -> ExitCode {
    match serve_disk(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_disk(arguments: &Arguments) -> Outcome<()> {
    let disk = Arc::new(FaultyDisk::new(Image::new(arguments.mib << 20)));
    let obeying = disk.clone();
    let orders = Arc::new(Notes(move |text: String| {
        for line in text.lines() {
            match line.parse() {
                Ok(order) => obeying.obey(order),
                Err(error) => eprintln!("{error}"),
            }
        }
    }));
    let session = serve(&arguments.dir, vec![("disk", disk), ("orders", orders)])?;
    Ok(session.join()?)
}
