//! Writes lines to standard error: errors and warnings, information, and with `--verbose` what each phase took.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use lockstep_topology::printable;

/// How much a command writes to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors and warnings.
    Quiet,
    /// Also progress and information.
    Normal,
    /// Also the phases of the work, each with the time that it took.
    Verbose,
}

static VERBOSITY: AtomicU8 = AtomicU8::new(Verbosity::Normal as u8);

/// When the command began.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// When the last line was written, in milliseconds since the command began.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Notes that a line is written now.
pub(crate) fn note_line() {
    WRITTEN.store(BEGUN.elapsed().as_millis() as u64, Ordering::Relaxed);
}

/// For how long no line was written.
pub(crate) fn silence() -> Duration {
    BEGUN.elapsed().saturating_sub(Duration::from_millis(WRITTEN.load(Ordering::Relaxed)))
}

/// Sets how much is written from now on. Times count from the first call.
pub fn set_verbosity(verbosity: Verbosity) {
    VERBOSITY.store(verbosity as u8, Ordering::Relaxed);
    LazyLock::force(&BEGUN);
}

/// Whether lines of this level are written.
pub(crate) fn writes(level: Verbosity) -> bool {
    VERBOSITY.load(Ordering::Relaxed) >= level as u8
}

/// What lines begin with from now on: the time, of commands that run for long.
static STAMP: OnceLock<fn() -> String> = OnceLock::new();

/// Begins each line on standard error from now on with what `time` returns then. The first call counts.
pub fn stamp_with(time: fn() -> String) {
    // A later call changes nothing.
    let _ = STAMP.set(time);
}

/// What a line begins with now.
pub(crate) fn stamp() -> String {
    STAMP.get().map(|time| format!("[{}] ", time())).unwrap_or_default()
}

/// Writes the error of invalid input, by which a command ends: its place comes first, whatever lines begin with.
pub fn print_refusal(line: &str) {
    note_line();
    let _ = writeln!(io::stderr().lock(), "{}", printable(line));
}

/// Writes an error or a warning, without control characters; where that fails, there is no other place to report it.
pub fn print_line(line: &str) {
    note_line();
    let _ = writeln!(io::stderr().lock(), "{}{}", stamp(), printable(line));
}

/// Writes a line of information, unless the command is to be quiet; with `--verbose`, with the seconds since the command
/// began.
pub fn print_information(line: &str) {
    if writes(Verbosity::Verbose) {
        print_detail(|| line.to_owned());
    } else if writes(Verbosity::Normal) {
        print_line(line);
    }
}

/// With `--verbose`, writes a line with the seconds since the command began.
pub fn print_detail(line: impl FnOnce() -> String) {
    if writes(Verbosity::Verbose) {
        print_line(&format!("[{:9.3} s] {}", BEGUN.elapsed().as_secs_f64(), line()));
    }
}

/// Runs `work`; with `--verbose`, writes what it was and the seconds that it took.
pub fn timed<T>(phase: impl FnOnce() -> String, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    print_detail(|| format!("{}: {:.3} s", phase(), begun.elapsed().as_secs_f64()));
    result
}
