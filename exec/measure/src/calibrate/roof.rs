//! Measures the host's peak rates, for operations that are not measured: FLOP/s of a core in a large matrix product,
//! bytes per second of its memory.

use std::time::Duration;

use lockstep_exec::device::cpu::{ChainLayer, Kernel, Mode, Threads};
use lockstep_models::{Dense, Layer, Shape, median};

use super::bench::{Effort, Interleaving, measure};
use crate::quiet::Quiet;
use crate::stopwatch::Stopwatch;

/// Of the bandwidth, whose passes differ little.
const EFFORT: Effort = Effort { passes: 10, budget: Duration::from_secs(3) };

/// FLOP/s of one core, by a dense layer of 1,024 × 1,024 on 512 samples.
pub(super) fn flops_per_core_s() -> f64 {
    let (side, samples) = (1024usize, 512usize);
    let layer = Layer::Dense(Dense { out_features: side as u32, bias: false });
    let shape = [Shape::of_image(side as u32, 1, 1)];
    let mut kernel = Kernel::new(&[ChainLayer { layer: &layer, inputs: &shape }], samples, &Threads::one());
    let (x, w) = (vec![0.5; side * samples], vec![0.25; side * side]);
    let mut y = vec![0.0; side * samples];
    let once = |_| {
        let watch = Stopwatch::start();
        kernel.forward(Mode::Evaluate, &[&x], &w, &mut [], &mut y);
        watch.stop()
    };
    2.0 * (side * side * samples) as f64 / median((0..5).map(once).map(|lap| lap.ran_s()).collect())
}

/// Bytes per second that all cores together read and write, by sums over 64 MiB each.
pub(super) fn memory_bandwidth(quiet: &mut Quiet) -> f64 {
    let cores = quiet.cores().count();
    let elements = 8 << 20;
    let make = || (vec![1.0f32; elements], vec![2.0f32; elements]);
    let turns = Interleaving::new(1, 1, make, |_, _| (), |(a, b), _| lockstep_exec::device::cpu::add_into(a, b));
    let figures = measure(&[turns], EFFORT, quiet).remove(0).figures;
    // Two reads and one write of 4 bytes an element, on each core.
    cores as f64 * 12.0 * elements as f64 / (figures[0].seconds.value * figures[0].slowdown)
}
