//! Times what a shuffle does to samples: copies them from random places of a rank's part into a message, and back.

use std::time::Instant;

use lockstep_data::{Dataset, PackedMoves};
use lockstep_models::median;
use lockstep_models::profile::{MoveEntry, Profile};
use lockstep_report::failure::Failure;
use lockstep_topology::{Dtype, InputError};

use super::bench::{Elsewhere, Gate, at_once};
use super::{TRIALS, interval};
use crate::quiet::Quiet;

/// Most bytes of a part, and shuffles of it.
const PART: usize = 16 << 20;
const SHUFFLES: usize = 6;
/// Bytes walked over between shuffles: training leaves nothing of samples in caches.
const ELSEWHERE: usize = 16 << 20;

/// Adds to `profile` what packing and unpacking samples of `data` take, if it is not known; returns whether it was
/// measured.
///
/// # Errors
/// Damaged samples.
pub fn add_moves(
    profile: &mut Profile,
    data: &Dataset,
    quiet: &mut Quiet,
    mut note: impl FnMut(&str),
) -> Result<bool, Failure> {
    let (numbers, dtype) = data.mean_message();
    // Profiles state fp32 elements.
    let elements = dtype.bytes(numbers).div_ceil(Dtype::F32.bytes(1));
    if profile.moves.iter().any(|entry| entry.elements == elements) {
        return Ok(false);
    }
    note("packing and unpacking samples");
    let cores = profile.cores.max(1) as usize;
    let count = (data.len() / 2).min(PART / (4 * elements.max(1) as usize)).max(1);
    let (alone, together) =
        quiet.measure(TRIALS, || Ok::<_, InputError>((passes(data, count, 1)?, passes(data, count, cores)?)))?.0;
    let whole = |[pack, unpack]: &[Vec<f64>; 2]| median(pack.clone()) + median(unpack.clone());
    let slowdown = (whole(&together) / whole(&alone)).max(1.0);
    let [pack, unpack] = alone.map(interval);
    profile.moves.push(MoveEntry { elements, pack, unpack, slowdown });
    Ok(true)
}

/// Seconds per sample of packing and of unpacking a part of `count` samples, on each of `cores` at once.
fn passes(data: &Dataset, count: usize, cores: usize) -> Result<[Vec<f64>; 2], InputError> {
    let gate = Gate::new(cores);
    let part = |core: usize| {
        let samples: Vec<u32> = (0..count).map(|number| ((number + core * count) % data.len()) as u32).collect();
        PackedMoves::new(data, &samples)
    };
    let parts: Vec<PackedMoves<'_>> = (0..cores).map(part).collect::<Result<_, _>>()?;
    let one = |mut moves: PackedMoves<'_>| -> Result<[Vec<f64>; 2], InputError> {
        let mut elsewhere = Elsewhere::new(ELSEWHERE);
        let (mut times, mut result) = ([Vec::new(), Vec::new()], Ok(()));
        for _ in 0..SHUFFLES {
            let leaving = moves.leaving();
            elsewhere.walk();
            gate.pass();
            let begun = Instant::now();
            let packed = moves.pack(&leaving);
            times[0].push(begun.elapsed().as_secs_f64() / leaving.len() as f64);
            // The message of another rank is in no cache of this one.
            elsewhere.walk();
            // Other threads wait at the gate, also for one that found a damaged sample.
            gate.pass();
            if packed.is_ok() {
                let begun = Instant::now();
                moves.unpack(&leaving);
                times[1].push(begun.elapsed().as_secs_f64() / leaving.len() as f64);
            }
            result = result.and(packed);
        }
        result.map(|()| times)
    };
    let mut times = [Vec::new(), Vec::new()];
    for of_core in at_once(parts, one) {
        times.iter_mut().zip(of_core?).for_each(|(all, own)| all.extend(own));
    }
    Ok(times)
}
