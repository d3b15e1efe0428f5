//! Throughput and CPU of ringlog beside Apache Kafka, on one machine, in interleaved runs.
//!
//! Each repetition of a scenario visits every broker in turn before the next repetition starts, because
//! absolute figures drift by more than the differences looked for. The client is librdkafka's own
//! `rdkafka_performance`, which spends less CPU than either broker. CPU is read from the kernel's
//! accounting of the processes. Knows the brokers only by their command lines and the protocol.

mod broker;
mod load;
mod report;
mod tools;
mod wire;

use broker::{Broker, BrokerKind};
use load::Sample;
use report::Row;
use std::error::Error;
use std::path::PathBuf;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of one record's value, in every scenario.
const RECORD_BYTES: u64 = 1024;
const WARM_PARTITIONS: u32 = 6;
const CONSUME_TOPIC: &str = "bench-consume";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Records of 1 KiB in each run
    #[arg(long, default_value_t = 2_500_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    records: u64,
    /// Repetitions of each scenario; medians are reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    reps: u32,
    /// Gigabytes produced to each broker before measuring: a JVM compiles its hot code while it runs
    #[arg(long, default_value_t = 10.0)]
    warm_gb: f64,
    /// The brokers, in the order in which each repetition visits them; the first is what the ratios relate to
    #[arg(long, value_enum, value_delimiter = ',', default_value = "kafka,ringlog")]
    brokers: Vec<BrokerKind>,
    /// Run only the scenarios whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Where the brokers keep their data while it is measured; all of it is removed afterwards
    #[arg(long, default_value = "target/bench-data")]
    data: PathBuf,
    /// ringlog's binary
    #[arg(long, default_value = "target/release/ringlog")]
    ringlog: PathBuf,
    /// Also write the figures, every single one, to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What is run against every broker, and the topic's settings that make the brokers promise the same.
#[derive(Debug)]
struct Scenario {
    name: &'static str,
    partitions: u32,
    action: Action,
    kafka_configs: &'static [(&'static str, &'static str)],
    ringlog_configs: &'static [(&'static str, &'static str)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Produce,
    Consume,
}

const OS: &[(&str, &str)] = &[("flush.policy", "os")];
const GROUP: &[(&str, &str)] = &[("flush.policy", "group")];
const FLUSH_EACH: &[(&str, &str)] = &[("flush.messages", "1")];

const SCENARIOS: [Scenario; 5] = [
    produce("produce-1-unsynced", 1, &[], OS),
    produce("produce-6-unsynced", 6, &[], OS),
    produce("produce-1-synced", 1, FLUSH_EACH, GROUP),
    produce("produce-6-synced", 6, FLUSH_EACH, GROUP),
    Scenario {
        name: "consume-6-cached",
        partitions: 6,
        action: Action::Consume,
        kafka_configs: &[],
        ringlog_configs: OS,
    },
];

const fn produce(
    name: &'static str,
    partitions: u32,
    kafka_configs: &'static [(&'static str, &'static str)],
    ringlog_configs: &'static [(&'static str, &'static str)],
) -> Scenario {
    Scenario {
        name,
        partitions,
        action: Action::Produce,
        kafka_configs,
        ringlog_configs,
    }
}

impl Scenario {
    fn configs(&self, kind: BrokerKind) -> &'static [(&'static str, &'static str)] {
        match kind {
            BrokerKind::Kafka => self.kafka_configs,
            BrokerKind::Ringlog => self.ringlog_configs,
        }
    }
}

/// Measures every scenario and prints the table.
///
/// # Errors
/// When a tool cannot be installed, a broker does not start, or a run fails or loses records.
pub(crate) fn run(options: &Options) -> Result<()> {
    let client = tools::build_client()?;
    let mut brokers = Vec::new();
    for kind in &options.brokers {
        eprintln!("starting {kind}");
        brokers.push(Broker::start(*kind, &options.data, &options.ringlog)?);
    }
    let scenarios: Vec<&Scenario> = SCENARIOS
        .iter()
        .filter(|s| s.name.contains(&options.only))
        .collect();
    if scenarios.is_empty() {
        return Err(format!("no scenario's name contains {:?}", options.only).into());
    }
    let warm_records = (options.warm_gb * 1e9) as u64 / RECORD_BYTES;
    for broker in &brokers {
        eprintln!("warming {} with {} GB", broker.kind(), options.warm_gb);
        if warm_records > 0 {
            broker.create_topic("bench-warm", WARM_PARTITIONS, &[])?;
            load::produce(&client, broker, "bench-warm", warm_records)?;
            broker.delete_topic("bench-warm")?;
        }
    }
    if let Some(scenario) = scenarios.iter().find(|s| s.action == Action::Consume) {
        for broker in &brokers {
            broker.create_topic(
                CONSUME_TOPIC,
                scenario.partitions,
                scenario.configs(broker.kind()),
            )?;
            load::produce(&client, broker, CONSUME_TOPIC, options.records)?;
            // Once unmeasured, so that every repetition finds the same page cache and the same warmth.
            load::consume(
                &client,
                broker,
                CONSUME_TOPIC,
                scenario.partitions,
                options.records,
            )?;
        }
    }

    let mut rows: Vec<Row> = Vec::new();
    for scenario in scenarios {
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); brokers.len()];
        for repetition in 0..options.reps {
            for (broker, taken) in brokers.iter().zip(&mut samples) {
                let sample = measure(&client, broker, scenario, repetition, options.records)?;
                eprintln!("{}, {}: {sample}", scenario.name, broker.kind());
                taken.push(sample);
            }
        }
        for (broker, samples) in brokers.iter().zip(samples) {
            rows.push(Row {
                scenario: scenario.name,
                broker: broker.kind(),
                samples,
            });
        }
    }
    for broker in brokers {
        broker.stop()?;
    }
    println!("{}", report::markdown(&rows, options.brokers[0]));
    if let Some(path) = &options.json {
        let json = report::json(&rows, options.records, RECORD_BYTES);
        std::fs::write(path, serde_json::to_vec_pretty(&json)?)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

fn measure(
    client: &std::path::Path,
    broker: &Broker,
    scenario: &Scenario,
    repetition: u32,
    records: u64,
) -> Result<Sample> {
    match scenario.action {
        Action::Consume => load::consume(client, broker, CONSUME_TOPIC, scenario.partitions, records),
        Action::Produce => {
            let topic = format!("bench-{}-{repetition}", scenario.name);
            broker.create_topic(&topic, scenario.partitions, scenario.configs(broker.kind()))?;
            let sample = load::produce(client, broker, &topic, records)?;
            broker.delete_topic(&topic)?;
            Ok(sample)
        }
    }
}
