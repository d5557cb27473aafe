//! `lockstep sim collective`.

use std::path::PathBuf;

use clap::Args;
use lockstep_sim::{CollectiveRun, Conditions, FoldRule, Folding, Platform, SimError, simulate_collective};
use lockstep_topology::{Algorithm, Bytes, Group, Hosting, InputError, Placement, PlacementRule};

use super::flags::{CollectiveFlags, FoldFlags};
use super::sim_predict::Network;
use crate::experiment::{Experiment, THIS_MACHINE};
use crate::failure::Failure;
use crate::report::{CollectiveRow, Format, Report};
use crate::site::Site;

/// Flags of `sim collective`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep sim collective --collective allreduce --algorithm ring --ranks 64 --bytes 100MiB --cluster ethernet-4")]
pub(super) struct SimCollective {
    #[command(flatten)]
    collective: CollectiveFlags,
    /// Cluster: this-machine (as calibrated), a name (lockstep clusters list), or a .toml file
    #[arg(long, default_value = THIS_MACHINE)]
    cluster: String,
    /// Profile of lockstep calibrate, instead of this machine's own
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// How transfers share links
    #[arg(long, value_enum, default_value = "max-min")]
    network: Network,
    #[command(flatten)]
    fold: FoldFlags,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl SimCollective {
    pub(super) fn run(self) -> Result<(), Failure> {
        let flags = &self.collective;
        flags.collective(1)?;
        let experiment = Experiment { cluster: self.cluster.clone(), ..Experiment::default() };
        let site = Site::open(&experiment, self.profile.as_deref())?;
        let placement = Placement::new(&site.cluster, flags.ranks, &PlacementRule::Pack)?;
        let hosting = Hosting::new(&placement, &flags.transport.hosting())?;
        let platform = Platform {
            cluster: &site.cluster,
            placement: &placement,
            hosting: &hosting,
            costs: site.costs.as_ref(),
            network: self.network.into(),
            conditions: Conditions::none(),
        };
        let members: Vec<_> = placement.all().collect();
        let group = match flags.algorithm {
            Algorithm::Hierarchical(_) => Group::nodes(&placement.node_sizes(&members)),
            _ => Group::flat(flags.ranks),
        };
        let mut rows = Vec::new();
        let mut notes = vec![site.basis];
        for bytes in &flags.bytes {
            let run = CollectiveRun { fold: self.fold.rule(), ..collective_run(flags, &group, *bytes)? };
            let time = simulate_collective(&run, &platform).map_err(|error| match error {
                SimError::Input(error) => Failure::Input(at_algorithm(error)),
                other => Failure::Run(other.to_string()),
            })?;
            rows.push(CollectiveRow {
                source: "predicted".to_owned(),
                collective: run.collective.to_string(),
                algorithm: run.algorithm.to_string(),
                on: site.cluster.name().to_owned(),
                ranks: flags.ranks,
                bytes: run.elements * 4,
                time_us: time.time.as_secs_f64() * 1e6,
                time_p10_us: None,
                time_p90_us: None,
                algbw: time.algbw * 1e-9,
                busbw: time.busbw * 1e-9,
                wrong: None,
            });
            let folding = time.folding.to_string();
            if time.folding != Folding::Off && !notes.contains(&folding) {
                notes.push(folding);
            }
        }
        Report::new(rows, notes).print(self.format)
    }
}

/// The collective over a buffer of `bytes`, whole elements.
pub(super) fn collective_run(
    flags: &CollectiveFlags,
    group: &Group,
    bytes: Bytes,
) -> Result<CollectiveRun, InputError> {
    let elements = bytes.0 / 4;
    Ok(CollectiveRun {
        collective: flags.collective(elements)?,
        algorithm: flags.algorithm.clone(),
        group: group.clone(),
        elements,
        chunk: flags.chunk.map_or(0, |chunk| (chunk.0 / 4).max(1)),
        window: 0,
        fold: FoldRule::Exact,
        long_way: false,
    })
}

/// A refusal that names no place is the algorithm's.
pub(super) fn at_algorithm(error: InputError) -> InputError {
    if error.place.is_empty() { InputError { place: "--algorithm".to_owned(), ..error } } else { error }
}
