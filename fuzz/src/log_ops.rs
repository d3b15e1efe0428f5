//! Operations on a log, chosen by bytes, against the engine's model of it.

use ringlog_engine::testing::LogModel;

use crate::choices::Choices;

/// A run is long enough to roll and restart often, and short enough that a fuzzer makes many.
const STEPS_MAX: usize = 300;

/// Runs the operations, then looks at the whole log, stops it and opens it again. Where the first byte is odd,
/// the log is compacted, and they include transactions.
///
/// # Panics
///
/// Where the log and the model differ.
pub fn log_ops(data: &[u8]) {
    let mut choices = Choices::new(data);
    let is_compacted = choices.below(2) == 1;
    let mut choose = |bound| choices.below(bound);
    let mut model = LogModel::new(&mut choose);
    if is_compacted {
        model = model.with_compaction(&mut choose);
    }
    model = model.with_retention();
    for _ in 0..STEPS_MAX {
        if choices.is_empty() {
            break;
        }
        model = model.step(&mut |bound| choices.below(bound));
    }
    model.finish();
}
