//! Replays a record of noise to the ranks of a run: how much longer than its median work takes from moment to moment.
//!
//! A step of several ranks ends with the slowest of them, so noise that does not change one rank's median makes many
//! ranks slower. A recorded trace keeps what a fitted distribution would lose: how long a disturbance lasts, and that
//! it affects several cores at once (Hoefler, Schneider, Lumsdaine, "Characterizing the influence of system noise on
//! large-scale applications by simulation", SC 2010).

use lockstep_models::profile::NoiseTrace;

/// A trace that is played to the ranks of a run from a position that a seed decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Noise {
    trace: NoiseTrace,
    seed: u64,
}

/// The position of a rank in the trace: which core's record, and from where it is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TracePosition {
    core: Option<usize>,
    offset_s: f64,
}

impl Noise {
    /// `trace` from a position that `seed` decides, another one for each device; `None` for a trace that has a
    /// [fault](NoiseTrace::fault).
    pub fn new(trace: NoiseTrace, seed: u64) -> Option<Noise> {
        trace.fault().is_none().then_some(Noise { trace, seed })
    }

    /// The position of the rank that is the `index`-th of the `ranks` on device number `device`, in one of
    /// several trials.
    pub(crate) fn place(&self, trial: u32, device: u32, index: u32, ranks: u32) -> TracePosition {
        let core = (ranks > 1).then(|| index as usize % self.trace.together.len());
        let length = self.slices(core).len() as f64 * self.trace.slice_s;
        // 53 random bits, the most that an f64 below 1 holds.
        let share =
            (mix(self.seed ^ mix(u64::from(trial) << 32 | u64::from(device))) >> 11) as f64 / (1u64 << 53) as f64;
        TracePosition { core, offset_s: share * length }
    }

    /// How long `work` seconds take from `now_s` on.
    pub(crate) fn seconds(&self, place: TracePosition, now_s: f64, work: f64) -> f64 {
        let (slices, slice_s) = (self.slices(place.core), self.trace.slice_s);
        let start = (place.offset_s + now_s) / slice_s;
        let whole = start.floor();
        let mut slice = (whole % slices.len() as f64) as usize;
        let mut room = (1.0 - (start - whole)) * slice_s;
        let (mut left, mut seconds) = (work, 0.0);
        while left > room {
            seconds += room * f64::from(slices[slice]);
            left -= room;
            slice = (slice + 1) % slices.len();
            room = slice_s;
        }
        seconds + left * f64::from(slices[slice])
    }

    fn slices(&self, core: Option<usize>) -> &[f32] {
        core.map_or(&self.trace.alone, |core| &self.trace.together[core])
    }
}

/// SplitMix64's finisher (Steele, Lea, Flood 2014).
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(alone: Vec<f32>) -> Noise {
        let together = vec![alone.clone(), vec![1.0; alone.len()]];
        Noise::new(NoiseTrace { slice_s: 1.0, alone, together }, 7).expect("a good trace")
    }

    #[test]
    fn faulty_traces_are_refused() {
        let NoiseTrace { slice_s, alone, .. } = noise(vec![1.0]).trace;
        assert_eq!(Noise::new(NoiseTrace { slice_s, alone, together: Vec::new() }, 0), None);
    }

    #[test]
    fn by_hand() {
        // From 0.5 s on: half a slice at 2, a slice at 1, half a slice at 4 (the trace restarts after three).
        let noise = noise(vec![2.0, 1.0, 4.0]);
        let place = TracePosition { core: None, offset_s: 0.0 };
        assert_eq!(noise.seconds(place, 0.5, 2.0), 0.5 * 2.0 + 1.0 + 0.5 * 4.0);
        assert_eq!(noise.seconds(place, 2.0, 2.0), 4.0 + 2.0);
        assert_eq!(noise.seconds(place, 0.25, 0.5), 1.0);
        assert_eq!(noise.seconds(TracePosition { core: Some(1), offset_s: 0.0 }, 0.5, 2.0), 2.0);
    }

    #[test]
    fn cores_of_a_device_start_at_the_same_offset() {
        let noise = noise(vec![1.0; 50]);
        let [first, second] = [0, 1].map(|index| noise.place(0, 3, index, 2));
        assert_eq!((first.offset_s, first.core, second.core), (second.offset_s, Some(0), Some(1)));
        assert_ne!(noise.place(0, 4, 0, 2).offset_s, first.offset_s);
        assert_ne!(noise.place(1, 3, 0, 2).offset_s, first.offset_s);
        assert_eq!(noise.place(0, 3, 0, 1).core, None);
    }

    proptest! {
        /// Work that is split anywhere takes as long as in one piece when the second part starts at the
        /// trace's position.
        #[test]
        fn pieces_add_up(slices in prop::collection::vec(0.5f32..3.0, 1..9), start in 0.0..20.0f64, a in 0.0..5.0f64, b in 0.0..5.0f64) {
            let noise = noise(slices);
            let place = TracePosition { core: None, offset_s: 0.0 };
            let whole = noise.seconds(place, start, a + b);
            let parts = noise.seconds(place, start, a) + noise.seconds(place, start + a, b);
            prop_assert!((whole - parts).abs() < 1e-9, "{whole} {parts}");
        }
    }
}
