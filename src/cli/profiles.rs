//! Runs `lockstep profiles show`: prints the figures of a profile, beside those of another one if asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use lockstep_measure::calibrate::{CalibrationRow, rows};
use lockstep_measure::profile::gpu_rows;
use lockstep_models::profile::Profile;
use lockstep_report::failure::Failure;
use lockstep_report::{Format, Report, Row};
use lockstep_topology::ErrorPlace;
use schemars::JsonSchema;
use serde::Serialize;

/// What can be asked about profiles.
#[derive(Debug, Subcommand)]
pub(super) enum Profiles {
    /// The figures of a profile: layers, updates, messages; beside another profile, the largest ratio first
    #[command(after_help = "Examples:
  lockstep profiles show out/this-machine.json
  lockstep profiles show old.json --against new.json")]
    Show {
        /// Profile of lockstep calibrate or lockstep exec profile
        profile: PathBuf,
        /// Another profile: adds its times, and the ratios to them
        #[arg(long, value_name = "FILE")]
        against: Option<PathBuf>,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
}

/// A figure of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct ProfileRow {
    /// The operation.
    operation: String,
    /// Samples of a layer's batch, elements of an update or load; none for messages.
    size: Option<u64>,
    /// Microseconds on one core, the median; for `per MiB`, of each MiB.
    time_us: f64,
    /// The same in the other profile; `null` where it has no such figure, or there is no other profile.
    against_us: Option<f64>,
    /// `time_us` over `against_us`.
    ratio: Option<f64>,
    /// Lower end of the 95 % confidence interval of `time_us`.
    time_low_us: f64,
    /// Its upper end.
    time_high_us: f64,
    /// How many times longer it takes when every core does the same.
    slowdown: f64,
}

impl Row for ProfileRow {}

impl Profiles {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Profiles::Show { profile, against, format } = self;
        let load = |path: &Path, argument: &'static str| {
            Profile::load(path).map_err(|error| match error.place {
                ErrorPlace::Flag("profile") => error.at(argument),
                _ => error,
            })
        };
        let first = load(&profile, "PROFILE")?;
        let second = against.as_deref().map(|path| load(path, "--against")).transpose()?;
        let mut notes = vec![measured(&profile, &first)];
        notes.extend(against.as_deref().zip(second.as_ref()).map(|(path, profile)| measured(path, profile)));
        Report::new(beside(figures(&first), second.as_ref().map(figures)), notes).print(format)
    }
}

/// When, where and how a profile was measured.
fn measured(path: &Path, profile: &Profile) -> String {
    let Profile { host, cpu, cores, date, command, .. } = profile;
    format!("{}: measured on {host} ({cpu}, {cores} cores), {date}, by `{command}`", path.display())
}

/// All figures of a profile, GPUs first.
fn figures(profile: &Profile) -> Vec<CalibrationRow> {
    profile.gpus.iter().flat_map(gpu_rows).chain(rows(profile)).collect()
}

/// The figures with those of another profile: the farthest apart first, in the profile's order without another one.
fn beside(figures: Vec<CalibrationRow>, others: Option<Vec<CalibrationRow>>) -> Vec<ProfileRow> {
    let key = |row: &CalibrationRow| (row.operation.clone(), row.size);
    let others: BTreeMap<_, f64> = others.iter().flatten().map(|row| (key(row), row.time_us)).collect();
    let row = |figure: CalibrationRow| {
        let against_us = others.get(&key(&figure)).copied();
        let CalibrationRow { operation, size, time_us, time_low_us, time_high_us, slowdown } = figure;
        let ratio = against_us.map(|other| time_us / other);
        ProfileRow { operation, size, time_us, against_us, ratio, time_low_us, time_high_us, slowdown }
    };
    let mut rows: Vec<ProfileRow> = figures.into_iter().map(row).collect();
    // Figures of one profile alone come last.
    let apart = |row: &ProfileRow| row.ratio.map_or(-1.0, |ratio| ratio.ln().abs());
    rows.sort_by(|a, b| apart(b).total_cmp(&apart(a)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(operation: &str, size: u64, time_us: f64) -> CalibrationRow {
        let operation = operation.to_owned();
        CalibrationRow {
            operation,
            size: Some(size),
            time_us,
            time_low_us: time_us,
            time_high_us: time_us,
            slowdown: 1.0,
        }
    }

    #[test]
    fn figures_farthest_apart_come_first_and_those_without_a_counterpart_last() {
        let ours = vec![figure("only here", 1, 1.0), figure("a", 16, 2.0), figure("a", 64, 8.0), figure("b", 16, 1.0)];
        let theirs =
            vec![figure("b", 16, 3.0), figure("a", 64, 8.0), figure("a", 16, 1.0), figure("only there", 1, 1.0)];
        let rows = beside(ours.clone(), Some(theirs));
        let found: Vec<_> = rows.iter().map(|row| (row.operation.as_str(), row.size, row.ratio)).collect();
        let expected = [
            ("b", Some(16), Some(1.0 / 3.0)),
            ("a", Some(16), Some(2.0)),
            ("a", Some(64), Some(1.0)),
            ("only here", Some(1), None),
        ];
        assert_eq!(found, expected);
        let alone: Vec<f64> = beside(ours, None).into_iter().map(|row| row.time_us).collect();
        assert_eq!(alone, [1.0, 2.0, 8.0, 1.0]);
    }
}
