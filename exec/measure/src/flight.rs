//! Reads and writes flight record files: the last operations of one process's ranks; and combines several such files
//! into a report.

use std::path::{Path, PathBuf};

use lockstep_exec::{Flight, diagnose};
use lockstep_report::output::write_atomically;
use lockstep_topology::{ErrorPlace, InputError, RECORD, read_text};
use serde::{Deserialize, Serialize};

use crate::host::HostInfo;

/// The version of the format.
const VERSION: u32 = 1;

/// The record of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    version: u32,
    /// Its host.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// When it was written.
    pub written: String,
    /// Ranks of the whole job.
    pub ranks: u32,
    /// The records of its ranks.
    pub flights: Vec<Flight>,
}

impl Record {
    /// A record of this process, now.
    pub fn new(ranks: u32, flights: &[Flight]) -> Record {
        let host = HostInfo::find();
        let (pid, flights) = (std::process::id(), flights.to_vec());
        Record { version: VERSION, host: host.name, pid, written: host.date, ranks, flights }
    }

    /// Writes it into `folder`, named after its first rank; returns the path.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn save(&self, folder: &Path) -> Result<PathBuf, InputError> {
        let first = self.flights.first().map_or(0, |flight| flight.rank);
        let path = folder.join(format!("flight-{first}.json"));
        write_atomically(ErrorPlace::Flag("flight"), &path, |out| Ok(serde_json::to_writer(out, self)?))?;
        Ok(path)
    }

    /// The record in a file.
    ///
    /// # Errors
    /// A file that cannot be read or is not a flight record.
    pub fn load(path: &Path) -> Result<Record, InputError> {
        let shown = path.display().to_string();
        let text = read_text(path, RECORD)
            .map_err(|error| InputError::new(&*shown, "", error.with_cure("name what a stall or SIGUSR1 has left")))?;
        Record::parse(&shown, &text)
    }

    /// The record in `text`, the content of the file that errors call `shown`.
    ///
    /// # Errors
    /// Not a flight record.
    pub fn parse(shown: &str, text: &str) -> Result<Record, InputError> {
        let wrong = |message: String| InputError::new(shown, "", message);
        let record: Record = serde_json::from_str(text).map_err(|error| {
            wrong(format!("is not a flight record: {error}; name what a stall or SIGUSR1 has left"))
        })?;
        match record.version {
            VERSION => Ok(record),
            other => Err(wrong(format!("has version {other} of the format, and this program reads {VERSION}"))),
        }
    }
}

/// The combined report on records of one job, on one screen.
pub fn account(records: &[Record]) -> String {
    let ranks = records.iter().map(|record| record.ranks).max().unwrap_or(0);
    let mut flights: Vec<Flight> = records.iter().flat_map(|record| record.flights.clone()).collect();
    flights.sort_by_key(|flight| flight.rank);
    flights.dedup_by_key(|flight| flight.rank);
    let places: Vec<String> = records
        .iter()
        .map(|record| format!("process {} on {} at {}", record.pid, record.host, record.written))
        .collect();
    let from = places.join(", ");
    format!("{} of {ranks} ranks on record, from {from}\n{}\n", flights.len(), diagnose(&flights, ranks).report)
}
