//! The plain way: a file for each log, `write` and `fdatasync` under a lock. Knows no engine.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use super::case::{Case, Outcome};

pub(crate) fn run(case: &Case, dir: &Path) -> io::Result<Outcome> {
    let files = (0..case.logs)
        .map(|log| {
            let path = dir.join(log.to_string());
            OpenOptions::new()
                .create_new(true)
                .append(true)
                .open(path)
                .map(Mutex::new)
        })
        .collect::<io::Result<Vec<Mutex<File>>>>()?;
    let batch = vec![0x5a; case.batch_bytes()];
    Ok(case.run_writers(|writer| {
        let (file, batch) = (&files[writer % case.logs], &batch);
        move || {
            let since = Instant::now();
            let mut file = file.lock().expect("no writer panics");
            file.write_all(batch).expect("there is room");
            if case.durable {
                file.sync_data().expect("the disk is sound");
            }
            since
        }
    }))
}
