//! `ringlog consume`: the records of a topic, one a line.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use ringlog_engine::record::Record;

use super::args::{ConsumeArguments, RecordFormat};
use super::error::CliError;
use super::line::Line;
use crate::client::{Cluster, Consumer};

pub(super) async fn run(broker: &str, arguments: &ConsumeArguments) -> Result<(), CliError> {
    let cluster = Cluster::connect(broker).await?;
    let mut consumer = Consumer::open(
        cluster,
        &arguments.topic,
        arguments.partition,
        arguments.from.0,
        arguments.exit_at_end,
    )
    .await?;
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while left > 0 && !consumer.is_done() {
        let visited = consumer
            .poll(|partition, record| {
                if let Err(error) = write(&mut out, arguments, partition, record) {
                    return ControlFlow::Break(Err(error));
                }
                left -= 1;
                if left == 0 {
                    ControlFlow::Break(Ok(()))
                } else {
                    ControlFlow::Continue(())
                }
            })
            .await?;
        if let ControlFlow::Break(written) = visited {
            written?;
        }
        // Whoever reads this sees each record as soon as there are no more at hand.
        out.flush()?;
    }
    Ok(())
}

fn write(
    out: &mut impl Write,
    arguments: &ConsumeArguments,
    partition: i32,
    record: &Record<'_>,
) -> io::Result<()> {
    match arguments.format {
        RecordFormat::Json => return Line::record(Some(partition), record).write_json(out),
        RecordFormat::KeyValue => {
            out.write_all(record.key.unwrap_or_default())?;
            out.write_all(arguments.key_separator.as_bytes())?;
        }
        RecordFormat::Value => {}
    }
    out.write_all(record.value.unwrap_or_default())?;
    out.write_all(b"\n")
}
