//! `Machine`: what no data sheet says of a paper's machine, to be fitted to the paper's own figures.
//!
//! Each parameter is one number for the whole machine. Two of them are of the software on it: a step begins with a time in
//! which the host works and the GPU does not, and that time varies, so that ranks which wait for each other begin with the last.

use std::fmt;
use std::str::FromStr;

use lockstep_models::{Phase, Program};
use lockstep_sim::{Cost, Costs, Distribution, Family, MessageCost, Noise, Pair};
use lockstep_topology::cluster::{Device, Route};

use crate::site::Site;
use crate::sweep::Scale;

/// What is fitted.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// Seconds at the beginning of each micro-batch in which a rank's device has nothing to do.
    StepOverhead,
    /// Standard deviation of the seconds that a rank's host takes, from step to step and rank to rank.
    HostJitter,
    /// A factor on figures of the cluster, by the name that a sweep has for them.
    Scale(Scale),
}

impl FromStr for Parameter {
    type Err = String;

    fn from_str(text: &str) -> Result<Parameter, String> {
        match text {
            "step-overhead" => Ok(Parameter::StepOverhead),
            "host-jitter" => Ok(Parameter::HostJitter),
            name => {
                let scale = Scale::new(name, vec![1.0]);
                scale.map(Parameter::Scale).map_err(|message| format!("{message}; or step-overhead, host-jitter"))
            }
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Parameter::StepOverhead => f.write_str("step-overhead"),
            Parameter::HostJitter => f.write_str("host-jitter"),
            Parameter::Scale(scale) => f.write_str(&scale.name),
        }
    }
}

impl Parameter {
    /// The value that changes nothing.
    pub(super) fn neutral(&self) -> f64 {
        if matches!(self, Parameter::Scale(_)) { 1.0 } else { 0.0 }
    }

    /// A value of it as people read it.
    pub(super) fn show(&self, value: f64) -> String {
        match self {
            Parameter::StepOverhead | Parameter::HostJitter => format!("{:.2} ms", value * 1e3),
            Parameter::Scale(_) => format!("{value:.3} times the cluster's"),
        }
    }
}

/// Values of the parameters that a paper fits, in its order.
pub(super) type Machine<'a> = Vec<(&'a Parameter, f64)>;

/// The site with a machine's factors on its cluster.
pub(super) fn scaled(site: &Site, machine: &[(&Parameter, f64)]) -> Site {
    let scales: Vec<(&Scale, f64)> = machine
        .iter()
        .filter_map(|(parameter, value)| match parameter {
            Parameter::Scale(scale) => Some((scale, *value)),
            _ => None,
        })
        .collect();
    if scales.is_empty() {
        return site.clone();
    }
    let cluster = site.cluster.scaled(&|figure| {
        scales.iter().filter(|(scale, _)| scale.figures.contains(&figure)).map(|(_, value)| value).product()
    });
    Site { cluster, ..site.clone() }
}

/// Seconds of the host before each micro-batch of the last of `ranks` that wait for each other after every `period` of them.
///
/// What hosts take is normal and independent: the last of n draws is expected z(n) deviations after the mean (the largest
/// order statistic), and a sum of `period` draws varies by the root of that less. Kernels take always the same, so all
/// of a step is late by as much.
pub(super) fn host_s(machine: &[(&Parameter, f64)], ranks: u32, period: u32) -> f64 {
    let jitter = of(machine, &Parameter::HostJitter);
    let overhead = of(machine, &Parameter::StepOverhead);
    if jitter == 0.0 { overhead } else { overhead + jitter * deviations(ranks) / f64::from(period.max(1)).sqrt() }
}

/// The expected largest of `draws` from the standard normal distribution.
fn deviations(draws: u32) -> f64 {
    // Of a mean of ten deviations nothing lies below zero, where distributions of durations end.
    Distribution::of_moments(Family::Normal, 10.0, 0.1).map_or(0.0, |of| of.expected_maximum(draws) - 10.0)
}

fn of(machine: &[(&Parameter, f64)], wanted: &Parameter) -> f64 {
    machine.iter().find(|(parameter, _)| *parameter == wanted).map_or(wanted.neutral(), |(_, value)| *value)
}

/// Costs of a machine's kernels, of which every micro-batch starts late.
pub(super) struct Hosted<'a> {
    inner: &'a dyn Costs,
    overhead_s: f64,
}

impl<'a> Hosted<'a> {
    /// `inner` behind so many seconds of the host.
    pub(super) fn new(inner: &'a dyn Costs, overhead_s: f64) -> Hosted<'a> {
        Hosted { inner, overhead_s }
    }
}

impl Costs for Hosted<'_> {
    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        self.inner.compute(device, program, chain, phase, samples)
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        self.inner.update(device, elements)
    }

    /// The overhead fills nothing of the device and moves nothing.
    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        let cost = self.inner.load(device, program, samples);
        let seconds = cost.seconds + self.overhead_s;
        let share = if seconds > 0.0 { cost.seconds / seconds } else { 1.0 };
        Cost { seconds, memory: cost.memory * share, occupancy: cost.occupancy * share }
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        self.inner.message(pair, receiver, route)
    }

    fn traffic(&self, device: &Device) -> f64 {
        self.inner.traffic(device)
    }

    fn noise(&self) -> Option<&Noise> {
        self.inner.noise()
    }

    fn alike(&self) -> bool {
        self.inner.alike()
    }

    fn notes(&self, program: &Program) -> Vec<String> {
        self.inner.notes(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_normal_draws() {
        // 1/√π of two, 3/(2√π) of three; tables have 1.42360 for eight.
        for (draws, wanted) in [(1, 0.0), (2, 0.564_190), (3, 0.846_284), (8, 1.423_600)] {
            assert!((deviations(draws) - wanted).abs() < 1e-3, "{draws}: {}", deviations(draws));
        }
        let jitter = Parameter::HostJitter;
        let late = |period| host_s(&[(&jitter, 0.01)], 8, period);
        assert!((late(1) - 0.014_236).abs() < 1e-5 && (late(4) - late(1) / 2.0).abs() < 1e-12);
    }
}
