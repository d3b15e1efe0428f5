//! `ringlog repair`: shows what recovery finds in the logs of a stopped broker, and mends them.

use std::io::{self, BufWriter, Write};

use super::args::RepairArguments;
use super::error::CliError;
use crate::server::repair::{Finding, Repair};
use crate::server::repair_storage::Action;

pub(super) fn run(arguments: &RepairArguments) -> Result<(), CliError> {
    let mut repair = Repair::open(&arguments.dir)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let (mut damaged, mut failed) = (0, 0);
    for log in repair.logs.clone() {
        match repair.run(&log, arguments.apply) {
            Ok(finding) => {
                damaged += usize::from(finding.refused.is_some());
                show(&mut out, &finding, arguments.apply)?;
            }
            Err(error) => {
                failed += 1;
                writeln!(out, "{}-{}: {error}", log.topic, log.partition)?;
            }
        }
    }
    out.flush()?;
    match (damaged, failed) {
        (damaged, 0) if damaged == 0 || arguments.apply => Ok(()),
        (logs, 0) => Err(CliError::Damaged { logs }),
        (_, logs) => Err(CliError::NotMended { logs }),
    }
}

fn show(out: &mut impl Write, finding: &Finding, apply: bool) -> io::Result<()> {
    let name = finding.dir.file_name().unwrap_or_default().to_string_lossy();
    let (start, end) = finding.sound;
    let state = match (&finding.refused, apply) {
        (None, _) => "a broker opens it",
        (Some(_), false) => "a broker does not open it",
        (Some(_), true) => "mended",
    };
    writeln!(out, "{name}: sound from offset {start} to {end}, {state}")?;
    if let Some(refused) = &finding.refused {
        writeln!(out, "  {refused}")?;
    }
    let done = |done: &'static str, to_do: &'static str| if apply { done } else { to_do };
    for action in &finding.actions {
        match action {
            Action::Cut {
                path,
                position,
                len_bytes,
            } => {
                let cut = finding.cut.as_ref().filter(|cut| cut.path == *path);
                let why = match cut.and_then(|cut| cut.defect) {
                    Some(defect) => defect.to_string(),
                    None => "zeros".to_owned(),
                };
                let (cut, path) = (done("cut off", "would cut off"), path.display());
                writeln!(
                    out,
                    "  {cut} {len_bytes} bytes from position {position} of {path}: {why}"
                )?;
            }
            Action::MoveAside(path) => {
                writeln!(
                    out,
                    "  {} {}",
                    done("moved aside", "would move aside"),
                    path.display()
                )?;
            }
            Action::Write(path) => {
                writeln!(out, "  {} {}", done("wrote", "would write"), path.display())?;
            }
        }
    }
    let taken_out = |action: &Action| !matches!(action, Action::Write(_));
    if finding.actions.iter().any(taken_out) {
        let goes = done("what was taken out is in", "what is taken out goes to");
        writeln!(out, "  {goes} {}", finding.side.display())?;
    }
    Ok(())
}
