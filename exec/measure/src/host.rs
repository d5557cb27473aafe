//! Reports this host's name, CPU and time, for profiles, and the cores to measure on.

use std::time::{SystemTime, UNIX_EPOCH};

use lockstep_exec::Pins;

/// A description of this host, now.
#[derive(Debug, Clone)]
pub struct HostInfo {
    /// Its name.
    pub name: String,
    /// Its CPU, as the CPU names itself.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The current date, RFC 3339 in UTC.
    pub date: String,
}

impl HostInfo {
    /// Gathers the description; what cannot be found is "unknown".
    pub fn find() -> HostInfo {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let or_unknown = |text: String| if text.is_empty() { "unknown".to_owned() } else { text };
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        HostInfo {
            name: or_unknown(read("/proc/sys/kernel/hostname").trim().to_owned()),
            cpu: or_unknown(model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default()),
            cores: given(),
            date: rfc3339(now_s() as u64),
        }
    }
}

/// The cores that measurements use.
#[derive(Debug, Clone, Copy)]
pub struct Cores {
    count: usize,
    anywhere: bool,
}

impl Cores {
    /// The cores that the system allows this process.
    pub fn find() -> Cores {
        Cores::of(given())
    }

    /// All cores of the host that this process might be given: a launcher binds each process to some.
    pub fn of_host() -> Cores {
        Cores { count: Pins::everywhere().max(given()), anywhere: true }
    }

    /// `count` cores, whether or not there are as many.
    pub fn of(count: usize) -> Cores {
        Cores { count: count.max(1), anywhere: false }
    }

    /// Number of cores.
    pub fn count(&self) -> usize {
        self.count
    }

    /// One core for each of `threads` threads.
    pub fn pins(&self, threads: usize) -> Pins {
        if self.anywhere { Pins::anywhere(threads) } else { Pins::new(threads, 1) }
    }
}

/// Seconds since 1970, by a clock that may jump.
pub fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Number of cores that the system allows this process.
fn given() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// The present time as `2024-02-29T12:00:00Z`.
pub fn now_text() -> String {
    rfc3339(now_s() as u64)
}

/// Seconds since 1970 as `2024-02-29T12:00:00Z`.
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut left) = (1970, days);
    let leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_709_208_000), "2024-02-29T12:00:00Z");
        assert_eq!(rfc3339(1_735_689_599), "2024-12-31T23:59:59Z");
    }
}
