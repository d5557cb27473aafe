//! Defines `NoiseTrace`, the noise in a profile: how many times longer than its median work takes from moment to
//! moment.

use serde::{Deserialize, Serialize};

/// A record of one host's cores: slices of equal work, and how many times longer than its median each took.
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
    /// An impossible value, if there is one.
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

/// Thousands of factors as one line of text: `1.000 0.984 1.310`.
mod factors {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn write(factors: &[f32]) -> String {
        factors.iter().map(|factor| format!("{factor:.3}")).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn read<E: Error>(text: &str) -> Result<Vec<f32>, E> {
        let number = |word: &str| word.parse().map_err(|_| E::custom(format!("{word:?} is not a factor")));
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

    fn trace(alone: Vec<f32>) -> NoiseTrace {
        let together = vec![alone.clone(), vec![1.0; alone.len()]];
        NoiseTrace { slice_s: 1.0, alone, together }
    }

    #[test]
    fn traces_round_trip() {
        let trace = trace(vec![1.0, 0.984, 1.31]);
        let text = serde_json::to_string(&trace).expect("plain data");
        assert!(text.contains("\"1.000 0.984 1.310\""), "{text}");
        assert_eq!(serde_json::from_str::<NoiseTrace>(&text).expect("the same"), trace);
        assert!(serde_json::from_str::<NoiseTrace>(&text.replace("0.984", "often")).is_err());
    }

    #[test]
    fn faults_are_named() {
        let good = trace(vec![1.0, 2.0]);
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
        }
    }
}
