//! Computes the error bar: intervals of a measured profile propagated through the sensitivities, or lists figures that
//! are not measured.
//!
//! Errors of the model itself are not included. Figures of one sort are assumed to be off together, sorts
//! independently.

use std::collections::BTreeSet;

use lockstep_models::Op;
use lockstep_models::profile::{Interval, Profile, TransportEntry, cpu_chain_key};
use lockstep_sim::answer::{CostParameter, OwnTime, Sensitivity};
use lockstep_sim::costs::kernel_error;
use lockstep_topology::cluster::{DeviceKind, Figure};

use super::names;
use crate::predicted::Predicted;
use crate::site::Site;
use lockstep_report::explanation::ErrorBar;

/// The error bar of a prediction; `strong` are the parameters that matter.
pub(super) fn error_bar(
    site: &Site,
    predicted: &Predicted,
    sensitivities: &[Sensitivity],
    strong: impl Iterator<Item = CostParameter>,
) -> ErrorBar {
    let Some(profile) = &site.profile else {
        let mut kinds: BTreeSet<String> = BTreeSet::new();
        for parameter in strong {
            let sources = names::provenance(parameter, site, &predicted.placement);
            kinds.extend(sources.iter().map(|source| source.split(':').next().unwrap_or_default().to_owned()));
        }
        let kinds: Vec<String> = kinds.into_iter().collect();
        let basis = format!("none: figures that matter are not measured ({})", kinds.join(", "));
        let kernels = kernels(site, predicted, sensitivities);
        return ErrorBar {
            relative_pct: None,
            step_time_low_s: None,
            step_time_high_s: None,
            basis,
            kernel_error_pct: kernels.map(|(single, _)| 100.0 * single),
            step_by_kernels_pct: kernels.map(|(_, step)| 100.0 * step),
        };
    };
    let squares = sensitivities.iter().filter_map(|s| match s.parameter {
        CostParameter::Own(time) => Some((s.elasticity * relative(profile, time, predicted)).powi(2)),
        CostParameter::Cluster(_) => None,
    });
    let relative = squares.sum::<f64>().sqrt();
    let step = predicted.step_time_s;
    ErrorBar {
        relative_pct: Some(100.0 * relative),
        step_time_low_s: Some(step * (1.0 - relative).max(0.0)),
        step_time_high_s: Some(step * (1.0 + relative)),
        basis: format!(
            "95 % confidence intervals of the profile of {}: they cover noise in its measurement, not wrong figures or errors of the model",
            profile.host
        ),
        kernel_error_pct: None,
        step_by_kernels_pct: None,
    }
}

/// The mean error of a single kernel of the GPUs that compute, and that of the step if all are off; `None`
/// without such GPUs.
fn kernels(site: &Site, predicted: &Predicted, sensitivities: &[Sensitivity]) -> Option<(f64, f64)> {
    let devices = predicted.placement.all().map(|rank| predicted.placement.device(rank));
    let gpus = devices.filter_map(|device| match &site.cluster.devices()[device.0 as usize].kind {
        DeviceKind::Gpu(gpu) => Some(gpu),
        DeviceKind::Cpu(_) | DeviceKind::Switch(_) => None,
    });
    let single = gpus.map(|gpu| kernel_error(gpu, predicted.program.precision)).reduce(f64::max)?;
    let of_kernels =
        |s: &&Sensitivity| matches!(s.parameter, CostParameter::Cluster(Figure::GpuPeak | Figure::GpuMemory));
    let of_kernels: f64 = sensitivities.iter().filter(of_kernels).map(|s| s.elasticity.abs()).sum();
    Some((single.exp_m1(), of_kernels * single.exp_m1()))
}

/// Half the width of the intervals of one sort of figures over the figures, those of the program's own tasks.
fn relative(profile: &Profile, time: OwnTime, predicted: &Predicted) -> f64 {
    let transports = || std::iter::once(&profile.memory).chain(&profile.mpi);
    let of = |figure: fn(&TransportEntry) -> Vec<Interval>| half_width(transports().flat_map(figure));
    match time {
        OwnTime::MessageLatency => of(|entry| vec![entry.latency]),
        OwnTime::MessageOverhead => of(|entry| vec![entry.overhead]),
        OwnTime::MessageBytes => of(|entry| vec![entry.copy, entry.sum]),
        // Sums of a library have no intervals.
        OwnTime::Library => 0.0,
        OwnTime::Kernels => {
            let program = &predicted.program;
            let mut keys: BTreeSet<(String, &str)> = BTreeSet::new();
            for task in program.roles.iter().flat_map(|role| &role.tasks) {
                if let Op::Compute { chain, phase, .. } = task.op {
                    keys.insert((cpu_chain_key(program, chain), phase.name()));
                }
            }
            let own = |entry: &&lockstep_models::profile::ComputeEntry| {
                keys.contains(&(entry.chain.clone(), entry.phase.as_str()))
            };
            let updates = profile.update.iter().chain(&profile.load).map(|point| point.seconds);
            let of_tasks: Vec<Interval> = profile.compute.iter().filter(own).map(|entry| entry.seconds).collect();
            if of_tasks.is_empty() { half_width(updates) } else { half_width(of_tasks.into_iter()) }
        }
    }
}

/// Σ (high − low)/2 over Σ value; 0 without intervals.
fn half_width(intervals: impl Iterator<Item = Interval>) -> f64 {
    let (width, value) = intervals.fold((0.0, 0.0), |(width, value), interval| {
        (width + (interval.high - interval.low) / 2.0, value + interval.value)
    });
    if value > 0.0 { width / value } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_relative_to_all_figures_together() {
        let interval = |value, low, high| Interval { value, low, high };
        let two = [interval(8.0, 7.0, 9.0), interval(2.0, 1.5, 2.5)];
        assert_eq!(half_width(two.into_iter()), 0.15);
        assert_eq!(half_width([].into_iter()), 0.0);
    }
}
