//! Tells which ranks share a device, and derives from a timeline how fast each device trains, for the tuner of learners
//! (Koliousis et al. 2019, §4.4).
//!
//! Learners of all devices synchronise, so all devices end a step together, and a fast one waits for the slowest. The
//! time of a step therefore says nothing about a fast device. Its own time is that of a step in which all devices are
//! like it: T − (max b − b), where T is the time of a step and b the time in which a device computes. Where all devices
//! compute equally long this is T, as for a single one.

use std::collections::BTreeMap;

use crate::timeline::{computes, median, quantile};
use crate::{Program, Timeline};

impl Program {
    /// The number of a rank's device.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use lockstep_models::{Job, random_model};
    /// let (each, model) = ([2, 1, 3], Arc::new(random_model(7, false)));
    /// let unequal_learners = Some(each.into());
    /// let job = Job { strategy: "sma".parse().unwrap(), learners: 3, unequal_learners, ..Job::new(model, 6, 8) };
    /// let program = job.program().unwrap();
    /// assert_eq!((0..6).map(|rank| program.device_of(rank)).collect::<Vec<_>>(), [0, 0, 1, 2, 2, 2]);
    /// ```
    pub fn device_of(&self, rank: u32) -> u32 {
        let Some(devices) = &self.devices else { return rank };
        let (mut device, mut left) = (0, rank);
        for count in devices.iter() {
            if left < *count {
                return device;
            }
            (device, left) = (device + 1, left - count);
        }
        // Servers have places of their own.
        device + left
    }
}

/// How fast each device trains.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceRates {
    /// Images per second by device.
    pub images_per_s: Vec<f64>,
    /// Whether they differ by more than a threshold, and by more than the same device differs between steps.
    pub differ: bool,
}

impl DeviceRates {
    /// The rates in the counted steps of `timeline`; `threshold`: the share below which rates count as equal. `None`
    /// where spans of a worker are missing, since too many were to be kept.
    ///
    /// Devices differ where the lower quartile of the slowest one's time per image exceeds the upper quartile of the
    /// fastest one's by more than the threshold.
    pub fn of(program: &Program, timeline: &Timeline, threshold: f64) -> Option<DeviceRates> {
        let steps = timeline.steps();
        let device_of: Vec<u32> = (0..program.workers()).map(|rank| program.device_of(rank)).collect();
        let mut times: Vec<Vec<f64>> = Vec::new();
        for device in busy_s(program, timeline, &device_of)? {
            let of_step = |iteration: u32| device.get(&iteration).copied().unwrap_or(0.0);
            let mut of_device: Vec<f64> = steps.iter().map(|step| of_step(step.iteration)).collect();
            of_device.sort_by(f64::total_cmp);
            times.push(of_device);
        }
        let longest = times.iter().map(|of| quantile(of, 0.5)).fold(0.0, f64::max);
        let exposed = (median(steps.iter().map(|step| step.seconds()).collect()) - longest).max(0.0);
        // Every learner has equally many images in a step.
        let each = program.global_batch() as f64 / device_of.len() as f64;
        let images = |device: usize| each * device_of.iter().filter(|of| **of as usize == device).count() as f64;
        // Seconds per image at a quantile of its steps.
        let pace = |device: usize, share: f64| (exposed + quantile(&times[device], share)) / images(device);
        let devices = || 0..times.len();
        let slowest = devices().map(|device| pace(device, 0.25)).fold(0.0, f64::max);
        let fastest = devices().map(|device| pace(device, 0.75)).fold(f64::INFINITY, f64::min);
        Some(DeviceRates {
            images_per_s: devices().map(|device| 1.0 / pace(device, 0.5)).collect(),
            differ: slowest > (1.0 + threshold) * fastest,
        })
    }
}

/// Seconds by device and iteration in which some learner of the device computes; `device_of` has the workers' devices.
fn busy_s(program: &Program, timeline: &Timeline, device_of: &[u32]) -> Option<Vec<BTreeMap<u32, f64>>> {
    let devices = device_of.last().map_or(0, |last| *last as usize + 1);
    let mut runs: Vec<BTreeMap<u32, Vec<(u64, u64)>>> = vec![BTreeMap::new(); devices];
    let mut seen = vec![false; device_of.len()];
    for span in timeline.spans.iter().filter(|span| span.rank < program.workers()) {
        if computes(program, program.role_of(span.rank), span.task as usize) {
            seen[span.rank as usize] = true;
            let of_device = runs[device_of[span.rank as usize] as usize].entry(span.iteration).or_default();
            of_device.push((span.start.0, span.end.0));
        }
    }
    let all = seen.iter().all(|seen| *seen);
    all.then(|| runs.into_iter().map(|of| of.into_iter().map(|(at, spans)| (at, joined_s(spans))).collect()).collect())
}

/// Seconds that these intervals, in picoseconds, cover together.
fn joined_s(mut spans: Vec<(u64, u64)>) -> f64 {
    spans.sort_unstable();
    let (mut sum, mut until) = (0, 0);
    for (start, end) in spans {
        sum += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    sum as f64 * 1e-12
}
