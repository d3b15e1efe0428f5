//! All of it together: record a load, cut it at many points, look at what each cut leaves.
//!
//! Owns the two disks (the one that records, the one that holds what a cut left), their devices and mounts,
//! and the child processes. First the planted faults, each of which must be found. What makes a point
//! fail is kept: the disk and the notes up to the cut.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use super::load::Plant;
use crate::Outcome;
use crate::disk::cut::{Cutter, Fate};
use crate::disk::host::{FileSystem, LoopDevice, Mount};
use crate::disk::image::Image;
use crate::disk::recorder::{Event, Notes, Recorder, Recording};
use crate::disk::serve::serve;
use crate::random::Random;

/// Points from one recording; then a new load is recorded.
const POINTS_PER_RECORDING: usize = 100;
/// A planted fault must be found among so many points.
const PLANTED_POINTS_MAX: usize = 50;
/// What one load appends.
const LOAD_MIB: u64 = 12;
/// One in so many points is cut again while what it left is recovered and appended to.
const CUT_AGAIN_ONE_IN: usize = 4;
/// A child that takes longer hangs.
const CHILD_SECONDS_MAX: &str = "120";

/// What is to be done.
#[derive(Clone, Debug, clap::Args)]
pub struct RunOptions {
    /// How many cuts.
    pub points: usize,
    /// An empty directory for mounts.
    #[arg(long)]
    pub work: PathBuf,
    /// Where a failing point is kept.
    #[arg(long)]
    pub keep: PathBuf,
    /// Loads and cuts follow from it.
    #[arg(long)]
    pub seed: u64,
    /// What stands on the disk.
    #[arg(long, default_value = "ext4")]
    pub fs: FileSystem,
}

/// Finds the planted faults, then looks for others.
///
/// # Errors
///
/// Where a planted fault is not found, or another is.
pub fn run(options: &RunOptions) -> Outcome<()> {
    let bench = Bench::new(options)?;
    for plant in [Plant::AckWritten, Plant::CheckpointWritten] {
        let mut random = Random::new(options.seed);
        let recording = bench.record(random.number(), Some(plant))?;
        match bench.cut(&recording, PLANTED_POINTS_MAX, &mut random)? {
            (points, Some(failure)) => {
                println!("planted {plant:?}: found at point {points}: {}", failure.what);
            }
            (points, None) => return Err(format!("planted {plant:?}: not found in {points} points").into()),
        }
    }
    let mut random = Random::new(options.seed);
    let (mut done, began) = (0, Instant::now());
    while done < options.points {
        let wanted = (options.points - done).min(POINTS_PER_RECORDING);
        let seed = random.number();
        let recording = bench.record(seed, None)?;
        let (points, failure) = bench.cut(&recording, wanted, &mut random)?;
        done += points;
        println!(
            "{done} of {} points, {} s: {}",
            options.points,
            began.elapsed().as_secs(),
            describe(&recording)
        );
        if let Some(failure) = failure {
            failure.keep(&options.keep)?;
            let kept = options.keep.display();
            return Err(format!("point {done}: {}; disk and notes are in {kept}", failure.what).into());
        }
    }
    println!("ok power_cut: {} on {}, seed {}", done, options.fs, options.seed);
    Ok(())
}

fn describe(recording: &Recording) -> String {
    let count = |wanted: fn(&Event) -> bool| recording.events.iter().filter(|event| wanted(event)).count();
    let bytes = recording.events.iter().map(|event| match event {
        Event::Write { data, .. } => data.len(),
        _ => 0,
    });
    format!(
        "{} writes ({} MiB), {} syncs, {} notes",
        count(|event| matches!(event, Event::Write { .. })),
        bytes.sum::<usize>() >> 20,
        count(|event| matches!(event, Event::Sync { .. })),
        count(|event| matches!(event, Event::Note(_))),
    )
}

/// A point that is not as it must be.
struct Failure {
    what: String,
    image: Image,
    notes: String,
}

impl Failure {
    fn keep(&self, at: &Path) -> Outcome<()> {
        fs::create_dir_all(at)?;
        fs::write(at.join("notes"), &self.notes)?;
        let mut file = File::create(at.join("disk"))?;
        self.image.chunks().try_for_each(|chunk| file.write_all(chunk))?;
        Ok(())
    }
}

/// The devices, in the order in which they are given back.
struct Bench {
    recorded_device: LoopDevice,
    cut_device: LoopDevice,
    _session: fuser::BackgroundSession,
    recorded: Arc<Recorder>,
    cut: Arc<Recorder>,
    /// A disk with an empty file system.
    empty: Image,
    notes: PathBuf,
    mount_at: PathBuf,
}

impl Bench {
    fn new(options: &RunOptions) -> Outcome<Self> {
        let (served_at, mount_at) = (options.work.join("disks"), options.work.join("fs"));
        fs::create_dir(&served_at)?;
        fs::create_dir(&mount_at)?;
        let blank = Image::new(options.fs.disk_bytes());
        let recorded = Arc::new(Recorder::new(blank.clone()));
        let cut = Arc::new(Recorder::new(blank));
        // The one that records takes them.
        let recorders = [recorded.clone(), cut.clone()];
        let notes = Arc::new(Notes(move |text: String| {
            recorders.iter().for_each(|recorder| recorder.note(&text));
        }));
        let session = serve(
            &served_at,
            vec![
                ("recorded", recorded.clone()),
                ("cut", cut.clone()),
                ("notes", notes),
            ],
        )?;
        let recorded_device = LoopDevice::attach(&served_at.join("recorded"))?;
        let cut_device = LoopDevice::attach(&served_at.join("cut"))?;
        options.fs.make(recorded_device.path())?;
        recorded.start();
        let empty = recorded.stop().before;
        Ok(Self {
            recorded_device,
            cut_device,
            _session: session,
            recorded,
            cut,
            empty,
            notes: served_at.join("notes"),
            mount_at,
        })
    }

    fn logs(&self) -> PathBuf {
        self.mount_at.join("logs")
    }

    /// A load on an empty file system, from its mount to the end of the load.
    fn record(&self, seed: u64, plant: Option<Plant>) -> Outcome<Recording> {
        self.recorded.replace(self.empty.clone());
        let mount = Mount::new(self.recorded_device.path(), &self.mount_at)?;
        self.recorded.start();
        let mut child = child("load");
        child.arg(self.logs()).arg(&self.notes);
        child.args(["--seed", &seed.to_string(), "--mib", &LOAD_MIB.to_string()]);
        if let Some(plant) = plant.as_ref().and_then(clap::ValueEnum::to_possible_value) {
            child.args(["--plant", plant.get_name()]);
        }
        let status = child.status()?;
        let recording = self.recorded.stop();
        drop(mount);
        if status.success() {
            Ok(recording)
        } else {
            Err(format!("the load failed: {status}").into())
        }
    }

    /// Cuts at `points` places, from the first to the last; returns how many were looked at and the
    /// first that failed.
    fn cut(
        &self,
        recording: &Recording,
        points: usize,
        random: &mut Random,
    ) -> Outcome<(usize, Option<Failure>)> {
        let mut places = (0..points)
            .map(|_| place(&recording.events, random))
            .collect::<Vec<_>>();
        places.sort_unstable();
        let (mut cutter, mut notes, mut at) = (Cutter::new(recording), String::new(), 0);
        for (index, place) in places.into_iter().enumerate() {
            notes.push_str(&said(&recording.events[at..place]));
            at = place;
            cutter.advance(place);
            if let Err(failure) = self.point(&cutter, place, notes.clone(), random) {
                return Ok((index + 1, Some(failure)));
            }
        }
        Ok((points, None))
    }

    /// Looks at what one cut leaves, and at times at what another cut leaves of that.
    fn point(
        &self,
        cutter: &Cutter<'_>,
        place: usize,
        notes: String,
        random: &mut Random,
    ) -> Result<(), Failure> {
        let recovery = self.cut_here(cutter, place, &notes, random)?;
        if random.one_in(CUT_AGAIN_ONE_IN) && !recovery.events.is_empty() {
            let place = self::place(&recovery.events, random);
            let mut cutter = Cutter::new(&recovery);
            cutter.advance(place);
            let notes = notes + &said(&recovery.events[..place]);
            self.cut_here(&cutter, place, &notes, random)?;
        }
        Ok(())
    }

    fn cut_here(
        &self,
        cutter: &Cutter<'_>,
        place: usize,
        notes: &str,
        random: &mut Random,
    ) -> Result<Recording, Failure> {
        let fate = Fate::pick(random);
        let image = cutter.image(fate, random);
        self.look(image.clone(), notes).map_err(|error| {
            let volatile = cutter.volatile_writes();
            let what = format!("{error} (cut at event {place}, {volatile} writes not durable: {fate:?})");
            let notes = notes.to_owned();
            Failure { what, image, notes }
        })
    }

    fn look(&self, image: Image, notes: &str) -> Outcome<Recording> {
        self.cut.replace(image);
        self.cut.start();
        let _mount = Mount::new(self.cut_device.path(), &self.mount_at)?;
        let mut child = child("verify")
            .arg(self.logs())
            .arg(&self.notes)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // Where the child has gone, its own words say why.
        let _ = child
            .stdin
            .take()
            .expect("it is piped")
            .write_all(notes.as_bytes());
        let output = child.wait_with_output()?;
        let recording = self.cut.stop();
        if output.status.success() {
            return Ok(recording);
        }
        Err(format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )
        .into())
    }
}

/// The notes among `events`.
fn said(events: &[Event]) -> String {
    let text = events.iter().filter_map(|event| match event {
        Event::Note(text) => Some(text.as_str()),
        _ => None,
    });
    text.collect()
}

fn child(command: &str) -> Command {
    let program = std::env::current_exe().expect("a program knows its file");
    let mut child = Command::new("timeout");
    child
        .args(["--foreground", CHILD_SECONDS_MAX])
        .arg(program)
        .arg(command);
    child
}

/// A place in a recording, half of them right after a note: what was acknowledged a moment ago is
/// what a fault loses.
fn place(events: &[Event], random: &mut Random) -> usize {
    let place = random.below(events.len()) + 1;
    if random.one_in(2) {
        return place;
    }
    let notes = events[place..].iter();
    let next = notes
        .into_iter()
        .position(|event| matches!(event, Event::Note(_)));
    next.map_or(place, |next| place + next + 1)
}
