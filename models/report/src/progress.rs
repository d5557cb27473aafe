//! Shows progress of a run on standard error: one line that is updated on a terminal, else a plain line every
//! two seconds.
//!
//! For long work that reports nothing itself, a thread reports within five seconds, after two minutes each minute. Such a
//! thread accompanies each command; it is silent while others report.

use std::io::{self, IsTerminal, Write};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockstep_topology::printable_line;

use crate::log::{Verbosity, note_line, print_line, silence, stamp, writes};

/// Between two updates on a terminal.
const TERMINAL: Duration = Duration::from_millis(100);
/// Between two lines of a log.
const LOG: Duration = Duration::from_secs(2);

/// The longest interval between two reports of the thread, and how long a command runs before they become rarer.
const SILENCE: Duration = Duration::from_secs(60);
const EARLY: Duration = Duration::from_secs(120);
/// After which silence of a command the thread reports.
const QUIET: Duration = Duration::from_secs(3);

/// Runs the command `name`; where no line was written for three seconds, one says for how long it has run. A line that is
/// kept up to date counts when it is written: that of a run whose steps are short may never be.
pub fn command<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let tell = |elapsed: Duration| {
        if silence() >= QUIET {
            print_line(&format!("{name}: {} so far", duration(elapsed.as_secs_f64())));
        }
    };
    if writes(Verbosity::Normal) { beside(tell, work) } else { work() }
}

/// Runs `work` on this thread; meanwhile another one calls `tell` every two seconds, later every minute, with the time elapsed.
fn beside<T>(tell: impl Fn(Duration) + Sync, work: impl FnOnce() -> T) -> T {
    /// Signals that the work has ended, also where it panics.
    struct Ending<'a>(&'a Mutex<bool>, &'a Condvar);
    impl Drop for Ending<'_> {
        fn drop(&mut self) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.1.notify_all();
        }
    }
    let (ended, bell) = (Mutex::new(false), Condvar::new());
    let watch = || {
        let (begun, mut wait) = (Instant::now(), LOG);
        let mut over = ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*over {
            let (state, waited) = bell.wait_timeout(over, wait).unwrap_or_else(PoisonError::into_inner);
            over = state;
            if waited.timed_out() && !*over {
                tell(begun.elapsed());
                wait = if begun.elapsed() < EARLY { LOG } else { SILENCE };
            }
        }
    };
    std::thread::scope(|scope| {
        let _ending = Ending(&ended, &bell);
        // If the thread cannot be started, nothing is displayed and the work continues.
        let _ = std::thread::Builder::new().name("progress".to_owned()).spawn_scoped(scope, watch);
        work()
    })
}

/// A line that is updated on a terminal, and lines of a log elsewhere; `S` is the state that they show.
struct Line<S> {
    shown: bool,
    terminal: bool,
    /// With the number of characters of the line on the terminal.
    state: Mutex<(S, usize)>,
}

impl<S: Send> Line<S> {
    fn new(shown: bool, state: S) -> Line<S> {
        let shown = shown && writes(Verbosity::Normal);
        Line { shown, terminal: io::stderr().is_terminal(), state: Mutex::new((state, 0)) }
    }

    /// Writes the text that `text` makes of the state, if any.
    fn write(&self, text: impl FnOnce(&mut S) -> Option<String>) {
        let (true, Ok(mut state)) = (self.shown, self.state.lock()) else { return };
        let (state, width) = &mut *state;
        let Some(line) = text(state) else { return };
        let line = printable_line(&line);
        note_line();
        let mut out = io::stderr().lock();
        // Progress that cannot be displayed is no reason to stop.
        let _ = if self.terminal {
            let before = std::mem::replace(width, line.chars().count());
            write!(out, "\r{line:before$}").and_then(|()| out.flush())
        } else {
            writeln!(out, "{}{line}", stamp())
        };
    }

    /// The time between two lines.
    fn pause(&self) -> Duration {
        if self.terminal { TERMINAL } else { LOG }
    }

    /// Runs `work`; meanwhile writes the text that `text` makes of the state from time to time.
    fn beside<T>(&self, text: impl Fn(&mut S) -> Option<String> + Sync, work: impl FnOnce() -> T) -> T {
        if !self.shown {
            return work();
        }
        beside(|_| self.write(&text), work)
    }

    /// Removes the line on the terminal.
    fn end(&self) {
        let (true, Ok(mut state)) = (self.terminal, self.state.lock()) else { return };
        let width = std::mem::take(&mut state.1);
        if width > 0 {
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r{:width$}\r", "").and_then(|()| out.flush());
        }
    }
}

/// A run in progress.
pub struct ProgressLine {
    line: Line<State>,
    label: String,
    steps: u64,
    samples_per_step: u64,
}

struct State {
    /// The time from which the present line's rate is counted, and the steps that were done then.
    since: Option<(Instant, u64)>,
    /// The last step that has ended, and when; else when the run began.
    last: (u64, Instant),
}

impl ProgressLine {
    /// Progress of a training of `steps` steps of `samples_per_step` samples, of which `done` are done; silent
    /// unless `shown`.
    pub fn new(shown: bool, label: &str, (done, steps): (u64, u64), samples_per_step: u64) -> ProgressLine {
        let line = Line::new(shown, State { since: None, last: (done, Instant::now()) });
        ProgressLine { line, label: label.to_owned(), steps, samples_per_step }
    }

    /// `done` steps of the training are done, the last one with this mean loss.
    pub fn step(&self, done: u64, loss: f64) {
        self.line.write(|state| {
            let now = Instant::now();
            state.last = (done, now);
            let (since, first) = *state.since.get_or_insert((now, done));
            let elapsed = now - since;
            if elapsed < self.line.pause() {
                return None;
            }
            state.since = Some((now, done));
            let rate = (done - first) as f64 * self.samples_per_step as f64 / elapsed.as_secs_f64();
            Some(line(&self.label, done, self.steps, self.samples_per_step, rate, loss))
        });
    }

    /// Runs `work`, and reports a step that takes long while it runs.
    pub fn beside<T>(&self, work: impl FnOnce() -> T) -> T {
        let under_way = |state: &mut State| {
            let (done, since) = state.last;
            let took = duration(since.elapsed().as_secs_f64());
            let line = || format!("{}: step {}/{} under way for {took}", self.label, done + 1, self.steps);
            (since.elapsed() >= LOG && done < self.steps).then(line)
        };
        self.line.beside(under_way, work)
    }

    /// The run is over: removes the line.
    pub fn end(&self) {
        self.line.end();
    }
}

/// How much of a long piece of work is done, and how long the rest may take; silent for the first two seconds.
pub struct Estimate {
    line: Line<Shown>,
    verb: &'static str,
    begun: Instant,
}

/// The state of the line.
struct Shown {
    last: Instant,
    /// The share that is done, and what comes now.
    at: (f64, String),
}

impl Estimate {
    /// An estimate that is displayed with `verb` (`predicting`) and begins now.
    pub fn new(verb: &'static str) -> Estimate {
        Estimate::of(verb, true)
    }

    /// One that displays nothing.
    pub fn silent() -> Estimate {
        Estimate::of("", false)
    }

    fn of(verb: &'static str, shown: bool) -> Estimate {
        let begun = Instant::now();
        Estimate { line: Line::new(shown, Shown { last: begun, at: (0.0, String::new()) }), verb, begun }
    }

    /// The line now, if the last one is `pause` old.
    fn line_now(&self, state: &mut Shown, pause: Duration) -> Option<String> {
        if self.begun.elapsed() < LOG || state.last.elapsed() < pause {
            return None;
        }
        state.last = Instant::now();
        Some(estimate(self.verb, state.at.0, self.begun.elapsed(), &state.at.1))
    }

    /// This share of the work is done (0 to 1), now comes `what`.
    pub fn show(&self, share: f64, what: &str) {
        self.line.write(|state| {
            if state.at.1 != what {
                what.clone_into(&mut state.at.1);
            }
            state.at.0 = share;
            self.line_now(state, self.line.pause())
        });
    }

    /// Runs `work` while a thread keeps displaying progress that `work` does not report itself.
    pub fn beside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.line.beside(|state| self.line_now(state, LOG), work)
    }

    /// The work is over or given up: removes the line.
    pub fn end(&self) {
        self.line.end();
    }
}

/// `30 s`, `90 min`, `16.5 h`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 100.0 => format!("{seconds:.0} s"),
        seconds if seconds < 6000.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

/// The rest is estimated in proportion to the time so far.
fn estimate(verb: &str, share: f64, elapsed: Duration, what: &str) -> String {
    let left = if share > 0.0 { elapsed.as_secs_f64() * (1.0 - share) / share } else { f64::INFINITY };
    let so_far = || format!("time left unknown, {} so far", duration(elapsed.as_secs_f64()));
    let left = if left.is_finite() { format!("about {} left", duration(left)) } else { so_far() };
    let now = if what.is_empty() { String::new() } else { format!("; now {what}") };
    format!("{verb}: {:.0} % done, {left}{now}", share * 100.0)
}

fn line(label: &str, step: u64, steps: u64, samples_per_step: u64, images_per_s: f64, loss: f64) -> String {
    let left = steps.saturating_sub(step) as f64 * samples_per_step as f64 / images_per_s;
    let left = if left.is_finite() { format!(", about {} left", duration(left)) } else { String::new() };
    format!("{label}: step {step}/{steps}, {images_per_s:.0} images/s, loss {loss:.4}{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_in_proportion() {
        let of = |share, seconds| estimate("predicting", share, Duration::from_secs(seconds), "lenet, 1 rank x 16");
        assert_eq!(of(0.25, 10), "predicting: 25 % done, about 30 s left; now lenet, 1 rank x 16");
        assert!(of(0.1, 600).contains("about 90 min left") && of(0.01, 600).contains("about 16.5 h left"));
        assert_eq!(of(0.0, 5), "predicting: 0 % done, time left unknown, 5 s so far; now lenet, 1 rank x 16");
    }

    /// The work is done on the caller's thread, once, and its result or panic is passed on.
    #[test]
    fn work_runs_unchanged_with_a_second_thread() {
        let here = std::thread::current().id();
        let ticks = Mutex::new(0);
        assert_eq!(beside(|_| *ticks.lock().unwrap() += 1, || std::thread::current().id()), here);
        assert_eq!(*ticks.lock().unwrap(), 0);
        let panics = std::panic::catch_unwind(|| beside(|_| (), || panic!("as it may")));
        assert!(panics.is_err());
        // Work that waits for a report gets one.
        let bell = Condvar::new();
        let count = beside(
            |_| {
                *ticks.lock().unwrap() += 1;
                bell.notify_all();
            },
            || *bell.wait_while(ticks.lock().unwrap(), |ticks| *ticks == 0).unwrap(),
        );
        assert_eq!(count, 1);
    }

    /// Runs that are too short for a line of their own are no reason for the command to be silent.
    #[test]
    fn a_command_reports_beside_lines_that_are_not_written() {
        note_line();
        let said = command("test", || {
            let line = Line::new(true, ());
            let begun = Instant::now();
            let said = || silence() < begun.elapsed().saturating_sub(Duration::from_secs(1));
            while !said() && begun.elapsed() < 10 * QUIET {
                line.beside(|()| None, || std::thread::sleep(Duration::from_millis(100)));
            }
            said()
        });
        assert!(said);
    }

    #[test]
    fn a_line_shows_the_progress_of_the_run() {
        let text = line("lenet, 2 ranks x 16, ring", 40, 100, 32, 64.4, 0.12345);
        // 60 steps of 32 samples at 64.4 a second.
        assert_eq!(text, "lenet, 2 ranks x 16, ring: step 40/100, 64 images/s, loss 0.1235, about 30 s left");
    }
}
