//! `[noise]`: reads the distributions of what varies, and the number of trials.

use lockstep_models::{Distribution, Family, Jitter};
use lockstep_topology::{InputError, Time};

use crate::identity::Identity;
use lockstep_topology::document::{Entry, Table};

/// The noise that an experiment states.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StatedNoise {
    /// The distributions.
    pub jitter: Jitter,
    /// Whether tasks vary by the distribution that fits the profile's record best.
    pub fitted_kernel: bool,
    /// The same for steps.
    pub fitted_step: bool,
    /// The number of simulations, each with its own draws.
    pub trials: u32,
}

impl StatedNoise {
    /// Adds what decides predictions: each distribution by its family and parameters.
    pub fn identify(&self, identity: &mut Identity) {
        let StatedNoise { jitter, fitted_kernel, fitted_step, trials } = self;
        let Jitter { seed, kernel, step, rank, latency, bandwidth } = jitter;
        identity.set("noise.seed", seed);
        identity.set("noise.trials", trials);
        for (key, distribution, fitted) in [
            ("noise.kernel", kernel, *fitted_kernel),
            ("noise.step", step, *fitted_step),
            ("noise.rank", rank, false),
            ("noise.latency", latency, false),
            ("noise.bandwidth", bandwidth, false),
        ] {
            let spelt = distribution.as_ref().map(|distribution| {
                let [first, second] = distribution.parameters();
                format!("{} {first} {second}", distribution.family())
            });
            identity.set_some(key, if fitted { Some("fitted".to_owned()) } else { spelt });
        }
    }
}

/// Keys of `[noise]`.
const KEYS: [&str; 7] = ["seed", "trials", "kernel", "step", "rank", "latency", "bandwidth"];
/// Quantiles that may define a distribution.
const QUANTILES: [(&str, f64); 6] =
    [("p05", 0.05), ("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];
/// A limit on trials.
const MOST_TRIALS: u32 = 1_000_000;

/// A number of simulations under noise, as a flag gives it.
///
/// # Errors
/// What is wrong with it.
pub fn trials(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|number| (1..=MOST_TRIALS).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {MOST_TRIALS}"))
}

/// Limits on the mean of a factor.
const FACTORS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;
/// Limit on the mean lateness of a message, in seconds.
const LATEST: f64 = 3600.0;

/// What the values of a distribution are.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Factor,
    Time,
}

/// Reads `[noise]`.
pub(crate) fn read(entry: &Entry<'_>) -> Result<StatedNoise, InputError> {
    let section = entry.section("[noise]", &KEYS)?;
    let mut noise =
        StatedNoise { trials: 1, jitter: Jitter { seed: 1, ..Jitter::default() }, ..StatedNoise::default() };
    for entry in section.entries() {
        let fitted = entry.is("fitted");
        match entry.key() {
            "seed" => noise.jitter.seed = entry.whole(0..=(1 << 63) - 1)?,
            "trials" => noise.trials = entry.whole(1..=u64::from(MOST_TRIALS))? as u32,
            "kernel" if fitted => noise.fitted_kernel = true,
            "step" if fitted => noise.fitted_step = true,
            "kernel" => noise.jitter.kernel = Some(distribution(&entry, Unit::Factor)?),
            "step" => noise.jitter.step = Some(distribution(&entry, Unit::Factor)?),
            "rank" => noise.jitter.rank = Some(distribution(&entry, Unit::Factor)?),
            "latency" => noise.jitter.latency = Some(distribution(&entry, Unit::Time)?),
            _ => noise.jitter.bandwidth = Some(distribution(&entry, Unit::Factor)?),
        }
    }
    Ok(noise)
}

/// `{ family = "gamma", mean = 1.1, cv = 0.2 }`, or two quantiles instead of mean and cv.
fn distribution(entry: &Entry<'_>, unit: Unit) -> Result<Distribution, InputError> {
    let keys: Vec<&'static str> = ["family", "mean", "cv"].into_iter().chain(QUANTILES.map(|(key, _)| key)).collect();
    let title = "(a distribution) like { family = \"lognormal\", cv = 0.1 }";
    let section = entry.section(title, &keys)?;
    let family: Family = section.need("family", "\"lognormal\"")?.read(str::parse)?;
    let value = |entry: &Entry<'_>| match unit {
        Unit::Factor => entry.number(0.0),
        Unit::Time => Ok(entry.read(str::parse::<Time>)?.as_secs_f64()),
    };
    let mut given = Vec::new();
    for (key, share) in QUANTILES {
        if let Some(entry) = section.get(key) {
            given.push((share, value(&entry)?));
        }
    }
    let found = match given[..] {
        [] => {
            let mean = match (section.get("mean"), unit) {
                (Some(mean), _) => value(&mean)?,
                (None, Unit::Factor) => 1.0,
                (None, Unit::Time) => section.need("mean", "\"2us\"").and_then(|mean| value(&mean))?,
            };
            Distribution::of_moments(family, mean, variation(&section, family)?)
        }
        [low, high] if section.get("mean").is_none() && section.get("cv").is_none() => {
            Distribution::of_quantiles(family, low, high)
        }
        _ => Err("give mean and cv, or two quantiles such as p50 and p99".to_owned()),
    };
    let found = found.map_err(|message| entry.error(message))?;
    let (range, required) = match unit {
        Unit::Factor => (FACTORS, "a factor from 0.000001 to 1000000"),
        Unit::Time => (0.0..=LATEST, "an hour at most"),
    };
    if !range.contains(&found.mean()) {
        return Err(entry.error(format!("the mean is {:e}: it must be {required}", found.mean())));
    }
    Ok(found)
}

fn variation(section: &Table<'_>, family: Family) -> Result<f64, InputError> {
    match section.get("cv") {
        Some(cv) => cv.number(0.0),
        None if family == Family::Constant => Ok(0.0),
        None => section.need("cv", "0.1")?.number(0.0),
    }
}
