//! A record of noise: how much longer than its median work takes from moment to moment, replayed to the ranks of a run.
//!
//! A step of several ranks ends with the slowest of them, so noise that leaves one rank's median alone makes many ranks
//! slower. A recorded trace keeps what a fitted distribution would lose: how long a disturbance lasts, and that it
//! strikes several cores at once (Hoefler, Schneider, Lumsdaine, "Characterizing the influence of system noise on
//! large-scale applications by simulation", SC 2010).

use serde::{Deserialize, Serialize};

use super::fit::{Fit, fit};

/// A record of one host's cores: slices of work of equal length, and how many times longer than its median each took.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseTrace {
    /// Seconds of work in a slice, at the median.
    pub slice_s: f64,
    /// One core while the others are idle.
    #[serde(with = "factors")]
    pub alone: Vec<f32>,
    /// Each core while all are busy, recorded at the same time.
    #[serde(with = "rows")]
    pub together: Vec<Vec<f32>>,
}

impl NoiseTrace {
    /// What cannot have been recorded, if anything.
    pub fn fault(&self) -> Option<String> {
        let lengths = self.together.iter().map(Vec::len);
        let all = self.alone.iter().chain(self.together.iter().flatten());
        if !(self.slice_s > 0.0 && self.slice_s.is_finite()) {
            Some(format!("slice_s = {}", self.slice_s))
        } else if self.alone.is_empty() || self.together.is_empty() || lengths.clone().any(|length| length == 0) {
            Some("a core without slices".into())
        } else if lengths.clone().min() != lengths.max() {
            Some("cores of different numbers of slices".into())
        } else {
            all.copied().find(|factor| !(*factor > 0.0 && factor.is_finite())).map(|factor| format!("factor {factor}"))
        }
    }
}

impl NoiseTrace {
    /// Distributions fitted to the slices of all cores while all are busy, the best first.
    pub fn fits(&self) -> Vec<Fit> {
        let all: Vec<f64> = self.together.iter().flatten().map(|factor| f64::from(*factor)).collect();
        fit(&all)
    }
}

/// A trace that is played to the ranks of a run from a place that a seed decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Noise {
    trace: NoiseTrace,
    seed: u64,
}

/// Where a rank is in the trace: which core's record, and from where it is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    core: Option<usize>,
    offset_s: f64,
}

impl Noise {
    /// `trace` from a place that `seed` decides, another one for each device; `None` for a trace that has a
    /// [fault](NoiseTrace::fault).
    pub fn new(trace: NoiseTrace, seed: u64) -> Option<Noise> {
        trace.fault().is_none().then_some(Noise { trace, seed })
    }

    /// The place of the rank that is the `index`-th of the `ranks` on device number `device`, in one of several trials.
    pub(crate) fn place(&self, trial: u32, device: u32, index: u32, ranks: u32) -> Place {
        let core = (ranks > 1).then(|| index as usize % self.trace.together.len());
        let length = self.slices(core).len() as f64 * self.trace.slice_s;
        // 53 random bits, the most that an f64 below 1 holds.
        let share =
            (mix(self.seed ^ mix(u64::from(trial) << 32 | u64::from(device))) >> 11) as f64 / (1u64 << 53) as f64;
        Place { core, offset_s: share * length }
    }

    /// How long `work` seconds take from `now_s` on.
    pub(crate) fn seconds(&self, place: Place, now_s: f64, work: f64) -> f64 {
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

/// Thousands of factors as one line of text: `1.000 0.984 1.310`.
mod factors {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn write(factors: &[f32]) -> String {
        factors.iter().map(|factor| format!("{factor:.3}")).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn read<E: Error>(text: &str) -> Result<Vec<f32>, E> {
        let number = |word: &str| word.parse().map_err(|_| E::custom(format!("{word:?} is no factor")));
        text.split_whitespace().map(number).collect()
    }

    pub(super) fn serialize<S: Serializer>(factors: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&write(factors))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
        read(&String::deserialize(deserializer)?)
    }
}

/// A line per core.
mod rows {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(rows: &[Vec<f32>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(rows.iter().map(|row| super::factors::write(row)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<f32>>, D::Error> {
        Vec::<String>::deserialize(deserializer)?.iter().map(|row| super::factors::read(row)).collect()
    }
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
    fn by_hand() {
        // From 0.5 s on: half a slice at 2, a slice at 1, half a slice at 4 (the trace starts anew after three).
        let noise = noise(vec![2.0, 1.0, 4.0]);
        let place = Place { core: None, offset_s: 0.0 };
        assert_eq!(noise.seconds(place, 0.5, 2.0), 0.5 * 2.0 + 1.0 + 0.5 * 4.0);
        assert_eq!(noise.seconds(place, 2.0, 2.0), 4.0 + 2.0);
        assert_eq!(noise.seconds(place, 0.25, 0.5), 1.0);
        assert_eq!(noise.seconds(Place { core: Some(1), offset_s: 0.0 }, 0.5, 2.0), 2.0);
    }

    #[test]
    fn cores_of_a_device_hear_the_same_moment() {
        let noise = noise(vec![1.0; 50]);
        let [first, second] = [0, 1].map(|index| noise.place(0, 3, index, 2));
        assert_eq!((first.offset_s, first.core, second.core), (second.offset_s, Some(0), Some(1)));
        assert_ne!(noise.place(0, 4, 0, 2).offset_s, first.offset_s);
        assert_ne!(noise.place(1, 3, 0, 2).offset_s, first.offset_s);
        assert_eq!(noise.place(0, 3, 0, 1).core, None);
    }

    #[test]
    fn text_and_back() {
        let trace = noise(vec![1.0, 0.984, 1.31]).trace;
        let text = serde_json::to_string(&trace).expect("plain data");
        assert!(text.contains("\"1.000 0.984 1.310\""), "{text}");
        assert_eq!(serde_json::from_str::<NoiseTrace>(&text).expect("the same"), trace);
        assert!(serde_json::from_str::<NoiseTrace>(&text.replace("0.984", "often")).is_err());
    }

    #[test]
    fn faults_are_named() {
        let good = noise(vec![1.0, 2.0]).trace;
        assert_eq!(good.fault(), None);
        type Spoil = fn(&mut NoiseTrace);
        let cases: [(&str, Spoil); 5] = [
            ("slice_s = 0", |trace| trace.slice_s = 0.0),
            ("without", |trace| trace.alone.clear()),
            ("without", |trace| trace.together.clear()),
            ("different", |trace| trace.together[1].truncate(1)),
            ("factor NaN", |trace| trace.alone[0] = f32::NAN),
        ];
        for (expected, spoil) in cases {
            let mut trace = good.clone();
            spoil(&mut trace);
            assert!(trace.fault().is_some_and(|fault| fault.contains(expected)), "{expected}");
            assert!(Noise::new(trace, 0).is_none());
        }
    }

    proptest! {
        /// Work that is cut anywhere takes as long as in one piece when the second part starts where the trace is.
        #[test]
        fn pieces_add_up(slices in prop::collection::vec(0.5f32..3.0, 1..9), start in 0.0..20.0f64, a in 0.0..5.0f64, b in 0.0..5.0f64) {
            let noise = noise(slices);
            let place = Place { core: None, offset_s: 0.0 };
            let whole = noise.seconds(place, start, a + b);
            let parts = noise.seconds(place, start, a) + noise.seconds(place, start + a, b);
            prop_assert!((whole - parts).abs() < 1e-9, "{whole} {parts}");
        }
    }
}
