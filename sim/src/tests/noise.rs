//! Tests noise in a run: factors of one change nothing, doubled durations double the time, and ranks that exchange wait
//! for the slowest.

use super::*;
use crate::Noise;
use lockstep_models::profile::NoiseTrace;

/// Flat costs on a host with noise.
struct Noisy {
    flat: Flat,
    noise: Option<Noise>,
}

impl Costs for Noisy {
    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        self.flat.compute(device, program, chain, phase, samples)
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        self.flat.update(device, elements)
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        self.flat.load(device, program, samples)
    }

    fn message(&self, pair: Pair, device: &Device, route: &Route) -> MessageCost {
        self.flat.message(pair, device, route)
    }

    fn noise(&self) -> Option<&Noise> {
        self.noise.as_ref()
    }
}

fn flat() -> Flat {
    Flat { forward: 1e-3, backward: 2e-3, update: 1e-3, ..Flat::default() }
}

fn predict(ranks: u32, noise: Option<Noise>) -> Prediction {
    let world = World::host(4, ranks);
    let costs = Noisy { flat: flat(), noise };
    let options = SimOptions { counted: 40, ..SimOptions::default() };
    simulate(&program(&mlp(ranks)), &world.platform(&costs, NetworkModel::MaxMin), options.driver(), &options)
        .expect("a program that works")
}

fn trace(alone: f32, cores: [f32; 4]) -> NoiseTrace {
    NoiseTrace { slice_s: 1e-4, alone: vec![alone; 9], together: cores.map(|core| vec![core; 9]).to_vec() }
}

#[test]
fn factors_of_one_change_nothing() {
    for ranks in [1, 4] {
        let still = Noise::new(trace(1.0, [1.0; 4]), 3);
        assert!(still.is_some());
        assert_eq!(predict(ranks, still).timeline, predict(ranks, None).timeline);
    }
}

#[test]
fn a_single_rank_uses_the_record_of_a_single_core() {
    let step = predict(1, None).timeline.step_time_s();
    assert_close(predict(1, Noise::new(trace(2.0, [9.0; 4]), 3)).timeline.step_time_s(), 2.0 * step, "twice as long");
}

#[test]
fn synchronised_ranks_wait_for_the_slowest() {
    let step = predict(4, None).timeline.step_time_s();
    let noise = Noise::new(trace(1.0, [1.0, 1.0, 1.5, 1.0]), 3);
    assert_close(predict(4, noise).timeline.step_time_s(), 1.5 * step, "the slowest of four");
}

#[test]
fn noise_that_keeps_the_median_delays_synchronisation() {
    // Each core is slow for a tenth of the time, never at the same moment: alone a median step does not see it.
    let core =
        |which: usize| (0..400).map(|slice| if slice / 10 % 10 == which { 4.0 } else { 1.0 }).collect::<Vec<f32>>();
    let trace = NoiseTrace { slice_s: 1e-3, alone: core(0), together: (0..4).map(core).collect() };
    let (quiet, noisy) = (predict(4, None).timeline, predict(4, Noise::new(trace.clone(), 1)).timeline);
    assert!(noisy.step_time_s() >= quiet.step_time_s());
    let mean = |timeline: &lockstep_models::Timeline| timeline.step_times_s().iter().sum::<f64>() / 40.0;
    assert!(mean(&noisy) > 1.2 * mean(&quiet), "{} {}", mean(&noisy), mean(&quiet));
    let one = |noise| predict(1, noise).timeline.step_time_s();
    assert_close(one(Noise::new(trace, 1)), one(None), "the median of one rank");
}
