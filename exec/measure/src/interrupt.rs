//! Handles Ctrl-C: prints or saves what is known so far, and ends the process with 128 + the signal's number, as shells
//! expect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockstep_report::failure::{Failure, INTERRUPTED};
use lockstep_report::log::print_line;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// After an interrupt a run has this long for the steps in progress and its checkpoint.
const GRACE: Duration = Duration::from_secs(5);

/// Runs `last_words` when the user interrupts, then ends the process; can be called once in a process.
///
/// `last_words` runs on a thread of its own, concurrently with all others.
///
/// # Errors
/// A second call, or a system that refuses.
pub fn on_interrupt(mut last_words: impl FnMut() + Send + 'static) -> Result<(), Failure> {
    let handler = move || {
        last_words();
        std::process::exit(INTERRUPTED);
    };
    ctrlc::set_handler(handler).map_err(|error| Failure::Run(format!("interrupts cannot be caught: {error}")))
}

/// Whether the user has interrupted the run.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles interrupts from now on; can be called once in a process. A run that has not ended 5 s after the first
    /// interrupt, and any run at the second, ends at once; the process that `speaks` prints a message. `in_job`: other
    /// processes are part of the run.
    ///
    /// # Errors
    /// A system that refuses.
    pub fn listen(speaks: bool, in_job: bool) -> Result<Interrupt, Failure> {
        let asked = Interrupt::default();
        let flag = Arc::clone(&asked.0);
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
        let mut signals = signals.map_err(|error| Failure::Run(format!("interrupts cannot be caught: {error}")))?;
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if flag.swap(true, Ordering::Relaxed) {
                    std::process::exit(INTERRUPTED);
                }
                if speaks {
                    print_line(what(signal, in_job));
                }
                std::thread::spawn(move || {
                    std::thread::sleep(GRACE);
                    if speaks {
                        print_line(&format!(
                            "the step under way has not ended in {GRACE:?}: the last checkpoint is kept"
                        ));
                    }
                    std::process::exit(INTERRUPTED);
                });
            }
        });
        Ok(asked)
    }

    /// Whether there was an interrupt.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened and what follows. A launcher sends SIGTERM to the others when a process of the job has died, and so does
/// a scheduler that ends the job; the signal does not say which.
fn what(signal: i32, in_job: bool) -> &'static str {
    match (signal, in_job) {
        (SIGINT, _) => "interrupted: the run ends after a checkpoint; once more ends it at once",
        (SIGTERM, true) => {
            "the launcher ends the job (SIGTERM): another process of it has died, or someone has asked for that; a checkpoint \
             follows if all others still answer, else the last one is kept"
        }
        (SIGTERM, false) => "asked to end (SIGTERM): the run ends after a checkpoint; once more ends it at once",
        _ => "the terminal is gone (SIGHUP): the run ends after a checkpoint",
    }
}

/// Whether the user has asked for a status report, by SIGUSR1.
#[derive(Debug, Clone, Default)]
pub struct Signal(Arc<AtomicBool>);

impl Signal {
    /// Handles the signal from now on.
    ///
    /// # Errors
    /// A system that refuses.
    pub fn listen() -> Result<Signal, Failure> {
        let signal = Signal::default();
        let taken = flag::register(SIGUSR1, Arc::clone(&signal.0));
        taken.map_err(|error| Failure::Run(format!("SIGUSR1 cannot be caught: {error}")))?;
        Ok(signal)
    }

    /// Whether it has arrived since the last call.
    pub fn came(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only Ctrl-C is called an interrupt; a rank that was killed, or a scheduler, makes the launcher end the job.
    #[test]
    fn the_cause_of_the_end_is_said() {
        assert!(what(SIGINT, true).starts_with("interrupted"));
        for other in [what(SIGTERM, true), what(SIGTERM, false), what(SIGHUP, false)] {
            assert!(!other.contains("interrupted"), "{other}");
        }
        assert!(what(SIGTERM, true).contains("another process of it has died"));
    }
}
