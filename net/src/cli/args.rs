//! The grammar of the command line, and the help that explains it.

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::listen::ListenArgument;
use super::start::StartArgument;

/// A durable, Kafka-compatible distributed commit log.
#[derive(Debug, Parser)]
#[command(name = "ringlog", version, propagate_version = true, after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// How logs are written to stderr.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = LogFormat::Text,
        value_name = "FORMAT",
        help_heading = LOGGING
    )]
    pub(super) log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, off, or a filter such as info,ringlog_net=debug.
    /// Otherwise the variable RINGLOG_LOG says, else info.
    #[arg(long, global = true, value_name = "LEVEL", help_heading = LOGGING)]
    pub(super) log_level: Option<String>,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Keeps what concerns logs apart from what a command does.
const LOGGING: &str = "Logging";

const EXAMPLES: &str = "\
Examples:
  ringlog serve                             a broker on port 9092, its data in ./ringlog-data
  ringlog topic create greetings
  echo hello | ringlog produce greetings
  ringlog consume greetings --exit-at-end
  ringlog dump --records ringlog-data/greetings-0/00000000000000000000.log

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.";

/// The form of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the broker until SIGINT or SIGTERM.
    Serve(ServeArguments),
    /// Create, list, describe, delete and alter topics.
    Topic(TopicArguments),
    /// Send lines as records.
    Produce(ProduceArguments),
    /// Show records.
    Consume(ConsumeArguments),
    /// Show what is in a segment, an index, a snapshot or a checkpoint, and verify it.
    Dump(DumpArguments),
    /// Show what is sound of the logs of a stopped broker, and mend them.
    Repair(RepairArguments),
}

/// Which brokers to talk to.
#[derive(Args, Debug)]
pub(super) struct BrokerArgument {
    /// HOST:PORT of a broker, or several with commas between them, to find the cluster by; a HOST alone is
    /// asked on port 9092.
    #[arg(
        short,
        long,
        global = true,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9092",
        value_parser = broker_addresses
    )]
    pub(super) broker: String,
}

/// A flag of other tools, refused with what is to be typed here.
#[derive(Args, Debug)]
pub(super) struct TopicFlag {
    #[arg(long = "topic", global = true, hide = true, value_name = "TOPIC", value_parser = no_topic_flag)]
    _topic: Option<Infallible>,
}

fn no_topic_flag(topic: &str) -> Result<Infallible, String> {
    Err(format!("a topic's name is given without a flag: {topic}"))
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog topic create orders --partitions 6 --set retention.ms=86400000
  ringlog topic list
  ringlog topic describe orders
  ringlog topic alter orders --set flush.policy=os --unset retention.ms --partitions 12
  ringlog topic delete orders")]
pub(super) struct TopicArguments {
    #[command(flatten)]
    pub(super) broker: BrokerArgument,
    #[command(flatten)]
    _topic_flag: TopicFlag,
    #[command(subcommand)]
    pub(super) command: TopicCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum TopicCommand {
    /// Create a topic, and say with which id, partitions and replicas.
    Create(CreateArguments),
    /// Name all topics, one a line.
    List,
    /// Show partitions, offsets and settings.
    Describe(DescribeArguments),
    /// Delete topics and their data.
    Delete {
        /// Their names.
        #[arg(required = true, value_name = "TOPIC")]
        names: Vec<String>,
    },
    /// Change settings or add partitions.
    Alter(AlterArguments),
}

#[derive(Args, Debug)]
pub(super) struct CreateArguments {
    /// Its name.
    #[arg(value_name = "TOPIC")]
    pub(super) name: String,
    /// How many partitions; otherwise the broker's num.partitions.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<i32>(1..=i32::MAX.into()))]
    pub(super) partitions: Option<i32>,
    /// How many replicas of each; otherwise the broker's default.replication.factor.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<i16>(1..=i16::MAX.into()))]
    pub(super) replication_factor: Option<i16>,
    /// A setting of the topic. May be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    pub(super) settings: Vec<(String, String)>,
    /// Succeed where it exists already.
    #[arg(long)]
    pub(super) if_not_exists: bool,
}

#[derive(Args, Debug)]
pub(super) struct DescribeArguments {
    /// Their names; all topics without any.
    #[arg(value_name = "TOPIC")]
    pub(super) names: Vec<String>,
    /// Also show the settings that are the broker's.
    #[arg(long)]
    pub(super) all: bool,
    /// One JSON object for each topic.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub(super) struct AlterArguments {
    /// Its name.
    #[arg(value_name = "TOPIC")]
    pub(super) name: String,
    /// A setting to change. May be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment, group = "change")]
    pub(super) settings: Vec<(String, String)>,
    /// A setting to return to the broker's. May be repeated.
    #[arg(long, value_name = "KEY", group = "change")]
    pub(super) unset: Vec<String>,
    /// How many partitions it shall have, more than now.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<i32>(1..=i32::MAX.into()), group = "change")]
    pub(super) partitions: Option<i32>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  echo hello | ringlog produce greetings
  ringlog produce orders --file orders.txt --key-separator : --compression zstd

Each line is a record, all of it but the line feed at its end: a carriage return before that belongs
to the record. What was not acknowledged is sent again, and is stored once and in order
with --acks all. The command ends when all is acknowledged, and says on stderr how many records that were.")]
pub(super) struct ProduceArguments {
    #[command(flatten)]
    pub(super) broker: BrokerArgument,
    #[command(flatten)]
    _topic_flag: TopicFlag,
    /// The topic, created by the broker if it does that, at the first line.
    pub(super) topic: String,
    /// Read lines from a file instead of stdin.
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// What ends the key of a line. A line in which it does not stand is a value without a key, as are
    /// all lines without this option.
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) key_separator: Option<String>,
    /// The partition to send to; otherwise the key's, or one after the other.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<i32>(0..=i32::MAX.into()))]
    pub(super) partition: Option<i32>,
    /// How batches are compressed.
    #[arg(long, value_enum, default_value_t = Codec::None, value_name = "CODEC")]
    pub(super) compression: Codec,
    /// Whose acknowledgement counts: all in-sync replicas, the leader (1), or nobody (0).
    #[arg(long, value_enum, default_value_t = AcksArgument::All, value_name = "ACKS")]
    pub(super) acks: AcksArgument,
    /// How long a record may wait for others to share its batch, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 5, allow_negative_numbers = true, value_parser = number::<u64>(0..=i64::MAX))]
    pub(super) linger_ms: u64,
}

/// A codec by the name Kafka gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Whose acknowledgement counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AcksArgument {
    All,
    #[value(name = "1")]
    One,
    #[value(name = "0")]
    Zero,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog consume orders                                   all there is, then what comes
  ringlog consume orders --from end --format json
  ringlog consume orders --from 2026-01-31T12:00:00Z --partition 3 --count 10
  ringlog consume orders --exit-at-end --format key-value --key-separator :")]
pub(super) struct ConsumeArguments {
    #[command(flatten)]
    pub(super) broker: BrokerArgument,
    #[command(flatten)]
    _topic_flag: TopicFlag,
    /// The topic.
    pub(super) topic: String,
    /// The one partition to read; otherwise all.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<i32>(0..=i32::MAX.into()))]
    pub(super) partition: Option<i32>,
    /// A flag of other tools.
    #[arg(long = "group", hide = true, value_name = "GROUP", value_parser = no_groups)]
    _group: Option<Infallible>,
    /// Where to begin: beginning, end, an OFFSET that each partition read has or is to give next,
    /// @MILLISECONDS since 1970, or a UTC time.
    #[arg(
        long,
        value_name = "PLACE",
        default_value = "beginning",
        allow_negative_numbers = true
    )]
    pub(super) from: StartArgument,
    /// Exit after so many records.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u64>(0..=i64::MAX))]
    pub(super) count: Option<u64>,
    /// Exit at what is the end when the command starts; otherwise wait for more.
    #[arg(long)]
    pub(super) exit_at_end: bool,
    /// What to show of a record.
    #[arg(long, value_enum, default_value_t = RecordFormat::Value, value_name = "FORMAT")]
    pub(super) format: RecordFormat,
    /// What stands between key and value in the format key-value.
    #[arg(long, value_name = "TEXT", default_value = "\t")]
    pub(super) key_separator: String,
}

fn no_groups(_: &str) -> Result<Infallible, &'static str> {
    Err(
        "consumer groups are not supported yet; consume reads all partitions, or one with --partition, from where --from says",
    )
}

/// The form of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RecordFormat {
    /// The value and a line end.
    Value,
    /// Key, separator, value and a line end.
    KeyValue,
    /// Everything, one JSON object a line.
    Json,
}

/// Takes a number of the range, and says of anything else what is wanted.
fn number<T: TryFrom<i64>>(
    range: RangeInclusive<i64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| match range.end() {
                &i64::MAX => format!("expected a number of {} or more", range.start()),
                end => format!("expected a number from {} to {end}", range.start()),
            })
    }
}

fn broker_addresses(text: &str) -> Result<String, &'static str> {
    if text.contains("://") {
        return Err("an address is HOST:PORT, without a scheme such as http://");
    }
    Ok(text.to_owned())
}

fn assignment(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog serve
  ringlog serve --data /var/lib/ringlog --listen 0.0.0.0:9092
  ringlog serve --config server.properties --set flush.policy=os

Without flags: data in ./ringlog-data, every IPv4 address of this machine, port 9092, one shard for each core but one.
The keys of --config and --set are in docs/configuration.md.")]
pub(super) struct ServeArguments {
    /// The data directory (log.dirs), created if it is not there.
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Where to listen (listeners): HOST:PORT, a PORT on every IPv4 address of this machine, or
    /// NAME://HOST:PORT separated by commas.
    #[arg(long, value_name = "ADDRESS", allow_negative_numbers = true)]
    pub(super) listen: Option<ListenArgument>,
    /// Threads that own partitions (shards); 0 for one on each core but one.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u32>(0..=1024))]
    pub(super) shards: Option<u32>,
    /// A server.properties file, or a TOML file if it ends in .toml.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Any configuration key; wins over the file and the other flags. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog dump ringlog-data/orders-0/*.log
  ringlog dump --records --json ringlog-data/orders-0/00000000000000000000.log
  ringlog dump ringlog-data/orders-0/*.index ringlog-data/orders-0/leader-epoch-checkpoint

Every checksum is verified. Exits with 1 if anything is corrupt, and says in which file and where.")]
pub(super) struct DumpArguments {
    /// Files named as a log names them: *.log, *.index, *.timeindex, *.txnindex, *.snapshot, *-checkpoint.
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Also show every record of a segment.
    #[arg(long)]
    pub(super) records: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog repair ringlog-data                     what a broker would find, of each log
  ringlog repair --apply ringlog-data/orders-0    cut one log to what is sound

Every batch is verified, also those a broker does not look at. Without --apply nothing is changed. With it a
log is cut at the first batch that makes no sense or is missing, and goes on from there: the offsets behind it are
given again. No data is deleted: what is taken out is moved to a directory that the output names.
Exits with 0 where a broker opens every log, now or after --apply, and else with 1.")]
pub(super) struct RepairArguments {
    /// A data directory, or the directory of one partition in it. No broker may be using it.
    #[arg(value_name = "DIR")]
    pub(super) dir: PathBuf,
    /// Mend what can be mended; nothing is asked.
    #[arg(long)]
    pub(super) apply: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Arguments::command().debug_assert();
    }
}
