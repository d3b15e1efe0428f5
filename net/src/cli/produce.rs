//! `ringlog produce`: each line of the input is a record.
//!
//! A thread reads the input, since reading a terminal or a pipe blocks; lines come over a bounded channel
//! and are sent as they fill batches, or when the oldest has waited long enough.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use ringlog_engine::record::Compression;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, sleep_until};

use super::args::{AcksArgument, Codec, ProduceArguments};
use super::error::CliError;
use crate::client::{Acks, Cluster, Producer, ProducerOptions};

/// Lines read ahead of the producer, in groups of up to `GROUP_BYTES`.
const GROUPS_MAX: usize = 16;
const GROUP_BYTES: usize = 64 << 10;
/// No broker takes a larger record unless its limits were raised on purpose.
const LINE_MAX: u64 = 128 << 20;
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

type Group = io::Result<Vec<Vec<u8>>>;

pub(super) async fn run(broker: &str, arguments: &ProduceArguments) -> Result<(), CliError> {
    let options = ProducerOptions {
        compression: codec(arguments.compression),
        acks: match arguments.acks {
            AcksArgument::All => Acks::All,
            AcksArgument::One => Acks::Leader,
            AcksArgument::Zero => Acks::None,
        },
        linger: Duration::from_millis(arguments.linger_ms),
    };
    let mut lines = open(arguments.file.as_deref())?;
    let cluster = Cluster::connect(broker).await?;
    let mut progress = Progress::new();
    // Before the broker may create the topic: nothing to send needs none.
    let Some(first) = lines.recv().await else {
        progress.finish(0, &arguments.topic);
        return Ok(());
    };
    let mut producer = Producer::open(cluster, &arguments.topic, options).await?;
    send(&mut producer, arguments, first).await?;
    let mut ticks = interval_at(Instant::now() + PROGRESS_EVERY, PROGRESS_EVERY);
    loop {
        let deadline = producer.deadline();
        // None of these waits holds anything that would be lost with it; sending happens in the branches.
        tokio::select! {
            group = lines.recv() => {
                let Some(group) = group else { break };
                send(&mut producer, arguments, group).await?;
            }
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                producer.dispatch().await?;
            }
            _ = ticks.tick(), if progress.shown => progress.show(producer.acknowledged()),
        }
    }
    producer.flush().await?;
    progress.finish(producer.acknowledged(), &arguments.topic);
    Ok(())
}

async fn send(producer: &mut Producer, arguments: &ProduceArguments, group: Group) -> Result<(), CliError> {
    let separator = arguments.key_separator.as_deref().map(str::as_bytes);
    for line in group.map_err(CliError::Input)? {
        let (key, value) = split(&line, separator);
        producer.send(arguments.partition, key, Some(value)).await?;
    }
    Ok(())
}

fn codec(codec: Codec) -> Compression {
    match codec {
        Codec::None => Compression::None,
        Codec::Gzip => Compression::Gzip,
        Codec::Snappy => Compression::Snappy,
        Codec::Lz4 => Compression::Lz4,
        Codec::Zstd => Compression::Zstd,
    }
}

/// Starts the reading thread. It ends with the input, or when nobody listens any more.
fn open(file: Option<&Path>) -> Result<mpsc::Receiver<Group>, CliError> {
    let (sender, receiver) = mpsc::channel(GROUPS_MAX);
    let file = match file {
        Some(path) => Some(File::open(path).map_err(|source| CliError::File {
            path: path.to_owned(),
            source,
        })?),
        None => None,
    };
    thread::spawn(move || match file {
        Some(file) => read_lines(BufReader::with_capacity(GROUP_BYTES, file), &sender),
        None => read_lines(BufReader::with_capacity(GROUP_BYTES, io::stdin()), &sender),
    });
    Ok(receiver)
}

/// Sends lines on without their line feeds, as many at once as are there without waiting for more.
fn read_lines(mut input: BufReader<impl Read>, groups: &mpsc::Sender<Group>) {
    let mut group = Vec::new();
    let mut group_bytes = 0;
    loop {
        let mut line = Vec::new();
        match (&mut input).take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(read) if read as u64 == LINE_MAX && !line.ends_with(b"\n") => {
                let problem = io::Error::new(io::ErrorKind::InvalidData, "a line of more than 128 MiB");
                let _ = groups.blocking_send(Err(problem));
                return;
            }
            Ok(_) => {}
            Err(error) => {
                let _ = groups.blocking_send(Err(error));
                return;
            }
        }
        if line.ends_with(b"\n") {
            line.pop();
        }
        group_bytes += line.len();
        group.push(line);
        let more_at_hand = input.buffer().contains(&b'\n');
        if !more_at_hand || group_bytes >= GROUP_BYTES {
            group_bytes = 0;
            if groups.blocking_send(Ok(std::mem::take(&mut group))).is_err() {
                return;
            }
        }
    }
    if !group.is_empty() {
        let _ = groups.blocking_send(Ok(group));
    }
}

/// A line without the separator has no key.
fn split<'a>(line: &'a [u8], separator: Option<&[u8]>) -> (Option<&'a [u8]>, &'a [u8]) {
    let found = separator.and_then(|separator| {
        let at = line
            .windows(separator.len())
            .position(|window| window == separator)?;
        Some((&line[..at], &line[at + separator.len()..]))
    });
    found.map_or((None, line), |(key, value)| (Some(key), value))
}

/// What is said of the records sent: at a terminal while a file goes out, and always at the end.
struct Progress {
    shown: bool,
    began: Instant,
}

impl Progress {
    /// Where lines are typed, progress would be in the way.
    fn new() -> Self {
        Self {
            shown: io::stderr().is_terminal() && !io::stdin().is_terminal(),
            began: Instant::now(),
        }
    }

    fn show(&mut self, records: u64) {
        let seconds = self.began.elapsed().as_secs_f64();
        let _ = write!(
            io::stderr(),
            "\r{records} records, {:.0} a second",
            records as f64 / seconds
        );
    }

    fn finish(&mut self, records: u64, topic: &str) {
        if self.shown {
            self.show(records);
            let _ = writeln!(io::stderr());
        }
        let noun = if records == 1 { "record" } else { "records" };
        let _ = writeln!(io::stderr(), "sent {records} {noun} to {topic}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_separator_ends_the_key() {
        assert_eq!(split(b"k::v::w", Some(b"::")), (Some(&b"k"[..]), &b"v::w"[..]));
        assert_eq!(split(b"::v", Some(b"::")), (Some(&b""[..]), &b"v"[..]));
        assert_eq!(split(b"value", Some(b"::")), (None, &b"value"[..]));
        assert_eq!(split(b"a\tb", None), (None, &b"a\tb"[..]));
    }

    #[test]
    fn lines_lose_their_line_feed_alone_and_the_last_needs_none() {
        let (sender, mut receiver) = mpsc::channel(GROUPS_MAX);
        read_lines(BufReader::new(&b"a\r\n\nb\nlast"[..]), &sender);
        drop(sender);
        let mut lines = Vec::new();
        while let Some(group) = receiver.blocking_recv() {
            lines.extend(group.expect("no error"));
        }
        assert_eq!(lines, [&b"a\r"[..], b"", b"b", b"last"]);
    }
}
