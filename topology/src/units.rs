//! Defines units as types: time in picoseconds, bandwidth in bytes per second, sizes in bytes, and their text forms.
//!
//! Simulated time is an integer so that equal inputs give equal bytes out; rates are real numbers.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// A point or span of time inside one simulated or measured run, in picoseconds (at most 213 days).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The start of a run, or an empty span.
    pub const ZERO: Time = Time(0);
    /// A time later than any event.
    pub const MAX: Time = Time(u64::MAX);

    /// The nearest picosecond to `seconds`; negative and NaN give zero, larger times give [`Time::MAX`].
    ///
    /// ```
    /// # use lockstep_topology::Time;
    /// assert_eq!(Time::from_secs_f64(1.5e-6), Time(1_500_000));
    /// ```
    pub fn from_secs_f64(seconds: f64) -> Time {
        Time((seconds * 1e12).round() as u64)
    }

    /// Whole nanoseconds, as clocks give them.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos.saturating_mul(1_000))
    }

    /// Seconds.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// The later of two times.
    #[inline]
    pub fn max(self, other: Time) -> Time {
        Time(self.0.max(other.0))
    }

    /// The span from `earlier` to `self`, zero where `earlier` is the later one.
    #[inline]
    pub fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Time {
    type Output = Time;
    #[inline]
    fn add(self, other: Time) -> Time {
        Time(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Time;
    #[inline]
    fn sub(self, other: Time) -> Time {
        self.since(other)
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Time>>(times: I) -> Time {
        times.fold(Time::ZERO, Add::add)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.as_secs_f64();
        let (value, unit) = match seconds {
            s if s >= 1.0 => (s, "s"),
            s if s >= 1e-3 => (s * 1e3, "ms"),
            s if s >= 1e-6 => (s * 1e6, "us"),
            s => (s * 1e9, "ns"),
        };
        write!(f, "{value:.3} {unit}")
    }
}

impl FromStr for Time {
    type Err = String;

    /// Reads `25us`, `1.5ms`, `2s`, `800ns`, `10ps`.
    fn from_str(text: &str) -> Result<Time, String> {
        let (number, unit) = split_unit(text)?;
        let scale = match unit {
            "ps" => 1e-12,
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            _ => return Err(format!("{text:?} is not a time; write it like 25us, 1.5ms or 2s")),
        };
        let seconds = number * scale;
        if !(0.0..=1.8e7).contains(&seconds) {
            return Err(format!("{text:?}: must be from 0 to 200 days"));
        }
        Ok(Time::from_secs_f64(seconds))
    }
}

/// A rate in bytes per second, always positive and finite.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Bandwidth(f64);

impl Bandwidth {
    /// A rate of `bytes_per_s`; `None` unless it is positive and finite.
    pub fn new(bytes_per_s: f64) -> Option<Bandwidth> {
        (bytes_per_s > 0.0 && bytes_per_s.is_finite()).then_some(Bandwidth(bytes_per_s))
    }

    /// Bytes per second.
    pub fn bytes_per_s(self) -> f64 {
        self.0
    }

    /// How long `bytes` take at this rate.
    ///
    /// ```
    /// # use lockstep_topology::{Bandwidth, Time};
    /// let wire: Bandwidth = "10Gbit/s".parse().unwrap();
    /// assert_eq!(wire.time_for(1_250_000), Time(1_000_000_000)); // 1 ms
    /// ```
    pub fn time_for(self, bytes: u64) -> Time {
        Time::from_secs_f64(bytes as f64 / self.0)
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} GB/s", self.0 * 1e-9)
    }
}

impl FromStr for Bandwidth {
    type Err = String;

    /// Reads decimal rates in bytes or bits: `3GB/s`, `25Gbit/s`, `800MB/s`, `1Tbit/s`.
    fn from_str(text: &str) -> Result<Bandwidth, String> {
        let (number, unit) = split_unit(text)?;
        let cure = || match unit.to_lowercase().strip_suffix("bit/s").map(str::to_uppercase) {
            Some(prefix) => format!("{text:?} is not a bandwidth: did you mean {number}{prefix}bit/s?"),
            None => format!("{text:?} is not a bandwidth; write it like 3GB/s or 25Gbit/s"),
        };
        let per_second = unit.strip_suffix("/s").ok_or_else(cure)?;
        let (prefix, bytes) = match (per_second.strip_suffix("bit"), per_second.strip_suffix('B')) {
            (Some(prefix), _) => (prefix, 0.125),
            (_, Some(prefix)) => (prefix, 1.0),
            _ => return Err(cure()),
        };
        let scale = match prefix {
            "" => 1.0,
            "k" | "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "T" => 1e12,
            _ => return Err(cure()),
        };
        Bandwidth::new(number * scale * bytes).ok_or_else(|| format!("{text:?}: must be positive"))
    }
}

/// A size in bytes. Text has binary suffixes (`4KiB`, `100MiB`, `2GiB`), decimal ones as on data sheets (`kB`,
/// `192GB`), or plain bytes (`512`, `512B`); output is binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// The units of sizes, in bytes.
const SIZES: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// A letter alone is a power of 1024, as in nccl-tests.
const LETTERS: [(&str, u64); 4] = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(scale, _)| self.0 >= *scale) {
            Some((scale, unit)) if self.0.is_multiple_of(scale) => write!(f, "{}{unit}", self.0 / scale),
            Some((scale, unit)) => write!(f, "{:.2}{unit}", self.0 as f64 / scale as f64),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let (number, unit) = split_unit(text)?;
        let letter = || LETTERS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
        let found = SIZES.iter().find(|(name, _)| *name == unit).or_else(letter);
        let Some((_, scale)) = found else {
            let near = SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
            let hint = near.map_or_else(String::new, |(name, _)| format!(": did you mean {number}{name}"));
            return Err(format!("{text:?} is not a size{hint}; write it like 25MiB, 192GB or 512B"));
        };
        let bytes = number * *scale as f64;
        if !(0.0..9.0e15).contains(&bytes) {
            return Err(format!("{text:?}: must be from 0B to 8000TiB"));
        }
        Ok(Bytes(bytes.round() as u64))
    }
}

/// `"-3GB/s"` → (-3.0, `"GB/s"`).
fn split_unit(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse::<f64>().map_err(|_| format!("{text:?} does not start with a number"))?;
    Ok((number, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_spellings_are_read() {
        assert_eq!("25Gbit/s".parse::<Bandwidth>().unwrap().bytes_per_s(), 3.125e9);
        assert_eq!("3 GB/s".parse::<Bandwidth>().unwrap().bytes_per_s(), 3e9);
        assert_eq!("100MiB".parse::<Bytes>().unwrap(), Bytes(104_857_600));
        assert_eq!("192GB".parse::<Bytes>().unwrap(), Bytes(192_000_000_000));
        assert_eq!("1G".parse::<Bytes>().unwrap(), Bytes(1 << 30));
        assert_eq!("512m".parse::<Bytes>().unwrap(), "512MiB".parse().unwrap());
        assert_eq!("1.5kB".parse::<Bytes>().unwrap(), Bytes(1_500));
        assert!("1.5KB".parse::<Bytes>().unwrap_err().contains("did you mean 1.5kB"));
        assert!("4kib".parse::<Bytes>().unwrap_err().contains("did you mean 4KiB"));
        assert!("100GBit/s".parse::<Bandwidth>().unwrap_err().contains("did you mean 100Gbit/s"));
        assert_eq!("70us".parse::<Time>().unwrap(), Time(70_000_000));
    }

    #[test]
    fn invalid_values_are_refused() {
        for text in ["-3GB/s", "0GB/s", "3GB", "fast", "3Gbps", "NaNGB/s", "infGB/s"] {
            assert!(text.parse::<Bandwidth>().is_err(), "{text}");
        }
        for text in ["-1MiB", "1Mb", "1mb", "x", ""] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        for text in ["-1us", "3", "1h", "999999999s"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }
}
