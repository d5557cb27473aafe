//! Reads what nccl-tests and rccl-tests printed, as launchers pass it on: tables, and what a log says of its run.

mod collectives;
mod figures;
mod json;
mod lines;
mod runs;
mod sense;
#[cfg(test)]
mod tests;

use lockstep_topology::{Bytes, ErrorPlace, InputError};

/// A size and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredSize {
    /// Of the buffer, as the program counts it.
    pub bytes: Bytes,
    /// Microseconds, out of place where the table has them.
    pub time_us: f64,
}

/// What a log says of one table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NcclLog {
    /// The sizes of at least 4 bytes.
    pub sizes: Vec<MeasuredSize>,
    /// Members, if it lists them or its bandwidths tell their number.
    pub ranks: Option<u32>,
    /// Whether the lines of the ranks give that number.
    pub is_listed: bool,
    /// The most members that one host has, if all have as many.
    pub ranks_per_host: Option<u32>,
    /// The GPU of all ranks, as the driver names it.
    pub gpu: Option<String>,
    /// The collective, as commands name it; several where the table leaves open which.
    pub collectives: Vec<String>,
    /// Of NCCL: major and minor.
    pub version: Option<(u32, u32)>,
    /// The line of the table.
    pub line: usize,
    /// What is to be known about the figures.
    pub notes: Vec<String>,
}

/// The table in `text`, the content of `file`; of several, the one of `collective` among `ranks`.
///
/// # Errors
/// No table, several that fit, a row without its time, ranks that did not talk to each other, and figures that
/// contradict each other.
pub fn read(file: &str, text: &str, asked: &Asked) -> Result<NcclLog, InputError> {
    let mut logs = Vec::new();
    let is_json = text.trim_start().starts_with('{');
    let runs = if is_json { json::list(file, text) } else { runs::list(file, text) }?;
    let mut refusals = Vec::new();
    for run in &runs {
        match sense::check_talking(file, run).and_then(|()| sense::of_run(file, run)) {
            Ok(log) => logs.push(log),
            Err(refusal) => refusals.push(refusal),
        }
    }
    if logs.is_empty() && !refusals.is_empty() {
        return Err(refusals.remove(0));
    }
    for log in &mut logs {
        log.notes.extend(refusals.iter().map(|refusal| format!("a table is left out: {refusal}")));
    }
    let count = logs.len();
    let listed: Vec<String> = logs.iter().map(|log| format!("{} at line {}", log.names(), log.line)).collect();
    if count > 1 {
        logs.retain(|log| asked.collective.as_deref().is_none_or(|name| log.is_of(name)));
        logs.retain(|log| asked.ranks.is_none_or(|ranks| log.ranks.is_none_or(|own| own == ranks)));
    }
    match (logs.len(), count) {
        (1, _) => Ok(logs.remove(0)),
        (0, 0) => {
            let message = "has no size with a time: name what nccl-tests printed, with its header";
            Err(InputError::new(file, "", message))
        }
        (0, _) => {
            let message =
                format!("has none of the collective and ranks that were asked for, but {}", listed.join(", "));
            Err(InputError::new(file, "", format!("{message}: name one of these by the settings collective and ranks")))
        }
        _ => {
            let message = format!("has {count} tables: {}", listed.join(", "));
            let cure = "name one by the setting collective or ranks, or keep the lines of one";
            Err(InputError::new(file, "", format!("{message}: {cure}")))
        }
    }
}

/// What the command says of the table.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Its collective, as commands name it.
    pub collective: Option<String>,
    /// Its ranks.
    pub ranks: Option<u32>,
}

impl NcclLog {
    /// Its collective in words.
    pub fn names(&self) -> String {
        match self.collectives.is_empty() {
            true => "a collective without a name".to_owned(),
            false => self.collectives.join(" or "),
        }
    }

    /// Whether the table can be one of the collective `name`, whatever its root is; if it does not tell, it can.
    pub fn is_of(&self, name: &str) -> bool {
        let plain = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
        self.collectives.is_empty() || self.collectives.iter().any(|own| plain(own) == plain(name))
    }
}

/// A refusal of a line.
fn wrong(file: &str, line: usize, value: &str, message: impl Into<String>) -> InputError {
    InputError::new(ErrorPlace::line(file, line), value, message)
}
