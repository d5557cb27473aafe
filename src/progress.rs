//! Progress of a run on standard error: one line that renews itself on a terminal, else a plain line every two seconds.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Between two looks of people at a terminal.
const TERMINAL: Duration = Duration::from_millis(100);
/// Between two lines of a log.
const LOG: Duration = Duration::from_secs(2);

/// A run under way.
pub struct Progress {
    shown: bool,
    terminal: bool,
    label: String,
    steps: u32,
    samples_per_step: u64,
    state: Mutex<State>,
}

struct State {
    /// Since when the present line's rate is counted, and the step it was at.
    since: Option<(Instant, u32)>,
    /// Characters that the line on the terminal has.
    width: usize,
}

impl Progress {
    /// Progress of `steps` steps of so many samples; silent unless `shown`.
    pub fn new(shown: bool, label: &str, steps: u32, samples_per_step: u64) -> Progress {
        let terminal = io::stderr().is_terminal();
        let state = Mutex::new(State { since: None, width: 0 });
        Progress { shown, terminal, label: label.to_owned(), steps, samples_per_step, state }
    }

    /// Step `step` (from 0) is done with this mean loss.
    pub fn step(&self, step: u32, loss: f64) {
        let (true, Ok(mut state)) = (self.shown, self.state.lock()) else { return };
        let now = Instant::now();
        let Some((since, first)) = state.since else {
            state.since = Some((now, step));
            return;
        };
        let elapsed = now - since;
        if elapsed < if self.terminal { TERMINAL } else { LOG } {
            return;
        }
        let rate = f64::from(step - first) * self.samples_per_step as f64 / elapsed.as_secs_f64();
        let line = line(&self.label, step + 1, self.steps, self.samples_per_step, rate, loss);
        state.since = Some((now, step));
        let mut out = io::stderr().lock();
        // Progress that cannot be shown is no reason to stop training.
        let _ = if self.terminal {
            let width = state.width;
            state.width = line.chars().count();
            write!(out, "\r{line:width$}").and_then(|()| out.flush())
        } else {
            writeln!(out, "{line}")
        };
    }

    /// The run is over: the line goes away.
    pub fn end(&self) {
        let (true, Ok(mut state)) = (self.terminal, self.state.lock()) else { return };
        if state.width > 0 {
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r{:width$}\r", "", width = state.width).and_then(|()| out.flush());
            state.width = 0;
        }
    }
}

/// How much of a long piece of work is done, and how long the rest may take; silent for the first two seconds.
pub struct Estimate {
    shown: bool,
    terminal: bool,
    verb: &'static str,
    begun: Instant,
    state: Mutex<Shown>,
}

/// The line as it stands.
struct Shown {
    last: Instant,
    width: usize,
}

impl Estimate {
    /// An estimate that says `verb` (`predicting`) and begins now.
    pub fn new(verb: &'static str) -> Estimate {
        let now = Instant::now();
        let state = Mutex::new(Shown { last: now, width: 0 });
        Estimate { shown: true, terminal: io::stderr().is_terminal(), verb, begun: now, state }
    }

    /// One that nobody sees.
    pub fn silent() -> Estimate {
        Estimate { shown: false, ..Estimate::new("") }
    }

    /// This share of the work is done (0 to 1), now comes `what`.
    pub fn show(&self, share: f64, what: &str) {
        let (true, Ok(mut state)) = (self.shown, self.state.lock()) else { return };
        let (elapsed, since) = (self.begun.elapsed(), state.last.elapsed());
        if elapsed < LOG || since < if self.terminal { TERMINAL } else { LOG } {
            return;
        }
        state.last = Instant::now();
        let line = estimate(self.verb, share, elapsed, what);
        let mut out = io::stderr().lock();
        // Progress that cannot be shown is no reason to stop.
        let _ = if self.terminal {
            let width = state.width;
            state.width = line.chars().count();
            write!(out, "\r{line:width$}").and_then(|()| out.flush())
        } else {
            writeln!(out, "{line}")
        };
    }

    /// The work is over or given up: the line goes away.
    pub fn end(&self) {
        let (true, Ok(mut state)) = (self.terminal, self.state.lock()) else { return };
        if state.width > 0 {
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r{:width$}\r", "", width = state.width).and_then(|()| out.flush());
            state.width = 0;
        }
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

/// The rest takes as long in proportion as what is done took.
fn estimate(verb: &str, share: f64, elapsed: Duration, what: &str) -> String {
    let left = if share > 0.0 { elapsed.as_secs_f64() * (1.0 - share) / share } else { f64::INFINITY };
    let left =
        if left.is_finite() { format!("about {} left", duration(left)) } else { "no telling how long yet".to_owned() };
    format!("{verb}: {:.0} % done, {left}; now {what}", share * 100.0)
}

fn line(label: &str, step: u32, steps: u32, samples_per_step: u64, images_per_s: f64, loss: f64) -> String {
    let left = f64::from(steps - step.min(steps)) * samples_per_step as f64 / images_per_s;
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
        assert!(of(0.0, 5).contains("no telling"));
    }

    #[test]
    fn a_line_says_where_the_run_is() {
        let text = line("lenet, 2 ranks x 16, ring", 40, 100, 32, 64.4, 0.12345);
        // 60 steps of 32 samples at 64.4 a second.
        assert_eq!(text, "lenet, 2 ranks x 16, ring: step 40/100, 64 images/s, loss 0.1235, about 30 s left");
    }
}
