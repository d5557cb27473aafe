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
        let line = line(&self.label, step + 1, self.steps, rate, loss);
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

fn line(label: &str, step: u32, steps: u32, images_per_s: f64, loss: f64) -> String {
    format!("{label}: step {step}/{steps}, {images_per_s:.0} images/s, loss {loss:.4}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_the_run_is() {
        let text = line("lenet, 2 ranks x 16, ring", 40, 100, 5123.4, 0.12345);
        assert_eq!(text, "lenet, 2 ranks x 16, ring: step 40/100, 5123 images/s, loss 0.1235");
    }
}
