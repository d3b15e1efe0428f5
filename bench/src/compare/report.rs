//! Medians of the samples as a markdown table, and every sample as JSON. Knows no processes.

use super::broker::BrokerKind;
use super::load::Sample;
use serde_json::{Value, json};

/// All samples of one scenario on one broker.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) scenario: &'static str,
    pub(crate) broker: BrokerKind,
    pub(crate) samples: Vec<Sample>,
}

impl Row {
    fn median(&self) -> Sample {
        let median = |field: fn(&Sample) -> f64| median(self.samples.iter().map(field).collect());
        Sample {
            mb_per_s: median(|s| s.mb_per_s),
            server_cpu_s_per_gb: median(|s| s.server_cpu_s_per_gb),
            client_cpu_s_per_gb: median(|s| s.client_cpu_s_per_gb),
        }
    }
}

/// The middle value; of an even number, the mean of the two in the middle; of none, NaN.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (
        values.get(values.len().wrapping_sub(1) / 2),
        values.get(values.len() / 2),
    ) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => f64::NAN,
    }
}

/// One line for each row; its ratios relate to the row of `reference` in the same scenario.
pub(crate) fn markdown(rows: &[Row], reference: BrokerKind) -> String {
    let mut table = format!(
        "| scenario | broker | MB/s | x {reference} | server CPU-s/GB | x {reference} | client CPU-s/GB |\n|---|---|---|---|---|---|---|\n"
    );
    for row in rows {
        let own = row.median();
        let base = rows
            .iter()
            .find(|r| r.scenario == row.scenario && r.broker == reference)
            .map_or(own, Row::median);
        table += &format!(
            "| {} | {} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} |\n",
            row.scenario,
            row.broker,
            own.mb_per_s,
            own.mb_per_s / base.mb_per_s,
            own.server_cpu_s_per_gb,
            own.server_cpu_s_per_gb / base.server_cpu_s_per_gb,
            own.client_cpu_s_per_gb,
        );
    }
    table
}

/// Every sample, with the medians.
pub(crate) fn json(rows: &[Row], records: u64, record_bytes: u64) -> Value {
    let sample = |s: &Sample| {
        json!({
            "mb_per_s": s.mb_per_s,
            "server_cpu_s_per_gb": s.server_cpu_s_per_gb,
            "client_cpu_s_per_gb": s.client_cpu_s_per_gb,
        })
    };
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "scenario": row.scenario,
                "broker": row.broker.to_string(),
                "median": sample(&row.median()),
                "samples": row.samples.iter().map(sample).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "records": records, "record_bytes": record_bytes, "rows": rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(broker: BrokerKind, mb_per_s: &[f64]) -> Row {
        let sample = |&mb_per_s: &f64| Sample {
            mb_per_s,
            server_cpu_s_per_gb: 2.0,
            client_cpu_s_per_gb: 1.0,
        };
        Row {
            scenario: "s",
            broker,
            samples: mb_per_s.iter().map(sample).collect(),
        }
    }

    #[test]
    fn median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert!((median(vec![9.0, 1.0, 5.0]) - 5.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0, 2.0, 9.0]) - 3.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn ratios_relate_to_the_reference_in_the_same_scenario() {
        let rows = [
            row(BrokerKind::Kafka, &[100.0]),
            row(BrokerKind::Ringlog, &[250.0, 150.0, 200.0]),
        ];
        let table = markdown(&rows, BrokerKind::Kafka);
        assert!(
            table.contains("| s | ringlog | 200 | 2.00 | 2.00 | 1.00 | 1.00 |"),
            "{table}"
        );
    }
}
