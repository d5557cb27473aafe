//! `Machine`: holds parameters of a paper's machine that no data sheet states, fitted to the paper's own figures.
//!
//! Each parameter is one number for the whole machine. Two of them belong to its software: a step begins with a time
//! in which the host works and the GPU does not, and that time varies, so that ranks which wait for each other begin
//! with the last.

use std::fmt;
use std::str::FromStr;

use lockstep_models::{Distribution, Family, Phase, Program, Strategy};
use lockstep_sim::{Cost, Costs, MessageCost, Pair};
use lockstep_topology::Time;
use lockstep_topology::cluster::{Device, Route};

use lockstep_experiment::Experiment;
use lockstep_experiment::sweep::ClusterScale;
use lockstep_predict::Site;

/// The parameter to fit.
#[derive(Debug, Clone, PartialEq)]
pub enum MachineParameter {
    /// Seconds at the beginning of each micro-batch in which a rank's device is idle.
    StepOverhead,
    /// Standard deviation of a rank's host time in seconds, from step to step and rank to rank.
    HostJitter,
    /// Seconds that the one thread which triggers synchronisation takes for each learner of all devices, at the end of
    /// an iteration, before any of them continues (Koliousis et al. 2019 §4.1 and §4.3).
    SyncDispatch,
    /// Seconds from a request for a file to its first byte.
    StorageLatency,
    /// Seconds of a node's main thread at the end of each job of its devices, where a table has such a thread.
    Callback,
    /// A factor on figures of the cluster, by its name in sweeps.
    Scale(ClusterScale),
}

impl FromStr for MachineParameter {
    type Err = String;

    fn from_str(text: &str) -> Result<MachineParameter, String> {
        match text {
            "step-overhead" => Ok(MachineParameter::StepOverhead),
            "host-jitter" => Ok(MachineParameter::HostJitter),
            "sync-dispatch" => Ok(MachineParameter::SyncDispatch),
            "storage-latency" => Ok(MachineParameter::StorageLatency),
            "callback" => Ok(MachineParameter::Callback),
            name => {
                let scale = ClusterScale::new(name, vec![1.0]);
                let others = "step-overhead, host-jitter, sync-dispatch, storage-latency, callback";
                scale.map(MachineParameter::Scale).map_err(|message| format!("{message}; or {others}"))
            }
        }
    }
}

impl fmt::Display for MachineParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineParameter::StepOverhead => f.write_str("step-overhead"),
            MachineParameter::HostJitter => f.write_str("host-jitter"),
            MachineParameter::SyncDispatch => f.write_str("sync-dispatch"),
            MachineParameter::StorageLatency => f.write_str("storage-latency"),
            MachineParameter::Callback => f.write_str("callback"),
            MachineParameter::Scale(scale) => f.write_str(&scale.name),
        }
    }
}

impl MachineParameter {
    /// The value that changes nothing.
    pub(super) fn neutral(&self) -> f64 {
        if matches!(self, MachineParameter::Scale(_)) { 1.0 } else { 0.0 }
    }

    /// The value for display.
    pub(super) fn show(&self, value: f64) -> String {
        match self {
            MachineParameter::Scale(_) => format!("{value:.3} times the cluster's"),
            _ => format!("{:.2} ms", value * 1e3),
        }
    }
}

/// Values of the parameters that a paper fits, in its order.
pub(super) type Machine<'a> = Vec<(&'a MachineParameter, f64)>;

/// The site with a machine's factors on its cluster.
pub(super) fn scaled(site: &Site, machine: &[(&MachineParameter, f64)]) -> Site {
    let scales: Vec<(&ClusterScale, f64)> = machine
        .iter()
        .filter_map(|(parameter, value)| match parameter {
            MachineParameter::Scale(scale) => Some((scale, *value)),
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

/// The experiment with a machine's figures of its input, where they apply.
pub(super) fn fed(experiment: &Experiment, machine: &[(&MachineParameter, f64)]) -> Experiment {
    let seconds = |wanted: &MachineParameter| {
        let found = machine.iter().find(|(parameter, _)| *parameter == wanted);
        found.map(|(_, value)| Time::from_secs_f64(*value))
    };
    let callback =
        seconds(&MachineParameter::Callback).filter(|_| matches!(experiment.strategy, Strategy::FirstDeviceTable(_)));
    let latency = seconds(&MachineParameter::StorageLatency);
    let input = experiment.input.as_ref().map(|input| input.with_times(latency, callback));
    Experiment { input, ..experiment.clone() }
}

/// Seconds of the host before each micro-batch of the last of `ranks` that wait for each other after every
/// `period` of them.
///
/// Host times are normal and independent: the last of n draws is expected z(n) deviations after the mean (the largest
/// order statistic), and a sum of `period` draws varies by the root of that less. Kernels always take the same time, so
/// the whole step is late by as much.
pub(super) fn host_s(machine: &[(&MachineParameter, f64)], ranks: u32, period: u32) -> f64 {
    let jitter = of(machine, &MachineParameter::HostJitter);
    let overhead = of(machine, &MachineParameter::StepOverhead);
    if jitter == 0.0 { overhead } else { overhead + jitter * deviations(ranks) / f64::from(period.max(1)).sqrt() }
}

/// The expected largest of `draws` from the standard normal distribution.
fn deviations(draws: u32) -> f64 {
    // With a mean of ten deviations nothing is below zero, where distributions of durations end.
    Distribution::of_moments(Family::Normal, 10.0, 0.1).map_or(0.0, |of| of.expected_maximum(draws) - 10.0)
}

fn of(machine: &[(&MachineParameter, f64)], wanted: &MachineParameter) -> f64 {
    machine.iter().find(|(parameter, _)| *parameter == wanted).map_or(wanted.neutral(), |(_, value)| *value)
}

/// Costs of a machine's kernels, where every micro-batch starts late.
pub(super) struct Hosted<'a> {
    inner: &'a dyn Costs,
    overhead_s: f64,
    dispatch_s: f64,
}

impl<'a> Hosted<'a> {
    /// `inner`, plus what the machine's hosts take for a step of `ranks` ranks.
    pub(super) fn new(
        inner: &'a dyn Costs,
        machine: &[(&MachineParameter, f64)],
        ranks: u32,
        period: u32,
    ) -> Hosted<'a> {
        Hosted {
            inner,
            overhead_s: host_s(machine, ranks, period),
            dispatch_s: of(machine, &MachineParameter::SyncDispatch),
        }
    }

    /// Seconds before each micro-batch: those of the host, and its part of an iteration's time for triggering
    /// all learners.
    fn idle_s(&self, program: &Program) -> f64 {
        let learners = if program.averages() { program.workers() } else { 0 };
        self.overhead_s + self.dispatch_s * f64::from(learners) / f64::from(program.accumulate.max(1))
    }
}

impl Costs for Hosted<'_> {
    fn adjusted(&self) -> Option<&dyn Costs> {
        Some(self.inner)
    }

    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        self.inner.compute(device, program, chain, phase, samples)
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        self.inner.update(device, elements)
    }

    /// Idle time fills nothing of the device and moves nothing.
    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        let cost = self.inner.load(device, program, samples);
        let seconds = cost.seconds + self.idle_s(program);
        let share = if seconds > 0.0 { cost.seconds / seconds } else { 1.0 };
        Cost { seconds, memory: cost.memory * share, occupancy: cost.occupancy * share }
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        self.inner.message(pair, receiver, route)
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
        let jitter = MachineParameter::HostJitter;
        let late = |period| host_s(&[(&jitter, 0.01)], 8, period);
        assert!((late(1) - 0.014_236).abs() < 1e-5 && (late(4) - late(1) / 2.0).abs() < 1e-12);
    }

    /// A learner waits for the thread that triggers all of them, once in an iteration of `period` batches;
    /// others do not.
    #[test]
    fn one_thread_triggers_all_learners() {
        let idle = |strategy: &str, workers| {
            let model = std::sync::Arc::new(lockstep_readers::load_model("mlp").unwrap());
            let strategy = strategy.parse().unwrap();
            let job = lockstep_models::Job { strategy, ..lockstep_models::Job::new(model, workers, 8) };
            let dispatch = MachineParameter::SyncDispatch;
            let costs = Hosted::new(&lockstep_sim::Roofline, &[(&dispatch, 0.001)], workers, 1);
            costs.idle_s(&job.program().unwrap())
        };
        assert_eq!((idle("ssgd", 4), idle("sma", 1), idle("sma", 6), idle("sma:tau=3", 6)), (0.0, 0.001, 0.006, 0.002));
    }

    /// The figures of a machine's input apply where they are used: to files, and to the table that has a main thread.
    #[test]
    fn figures_of_the_input_apply_where_they_are_used() {
        let text = |strategy: &str, source: &str| {
            let (rate, from) = match source {
                "files" => ("storage_bandwidth = \"1GB/s\"\n", ", storage_bandwidth = \"assumed\""),
                _ => ("", ""),
            };
            format!(
                "name = \"e\"\nmodel = \"mlp\"\nstrategy = \"{strategy}\"\n[input]\nsource = \"{source}\"\nsamples = 100\n\
                 image = \"1KiB\"\nthreads = 1\ndecode = \"1ms\"\n{rate}provenance = {{ samples = \"assumed\", image = \
                 \"assumed\", threads = \"assumed\", decode = \"assumed\"{from} }}\n"
            )
        };
        let machine = [(MachineParameter::StorageLatency, 0.02), (MachineParameter::Callback, 0.003)];
        let machine: Machine<'_> = machine.iter().map(|(parameter, value)| (parameter, *value)).collect();
        let entered = |strategy: &str, source: &str| {
            let before = Experiment::parse("e.toml", &text(strategy, source)).unwrap();
            let after = fed(&before, &machine).input.unwrap();
            let latency = match after.input().unwrap().source {
                lockstep_models::SampleSource::Files { latency, .. } => latency,
                lockstep_models::SampleSource::Memory { .. } => Time::ZERO,
            };
            (latency.as_secs_f64(), after.callback().as_secs_f64())
        };
        assert_eq!(entered("ssgd", "files"), (0.02, 0.0));
        assert_eq!(entered("first-device-table", "files"), (0.02, 0.003));
        assert_eq!(entered("ssgd", "memory"), (0.0, 0.0));
        let before = Experiment::parse("e.toml", &text("ssgd", "memory")).unwrap();
        assert_eq!(fed(&before, &machine), before, "one simulation serves all values");
    }
}
