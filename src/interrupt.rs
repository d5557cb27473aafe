//! Ctrl-C: what is known so far is printed, and the process ends with 130, as shells expect of an interrupted command.

use crate::failure::Failure;

/// The exit code after an interrupt: 128 + SIGINT.
pub const INTERRUPTED: i32 = 130;

/// Runs `last_words` when the user interrupts, then ends the process; once in a process.
///
/// `last_words` runs on a thread of its own, beside whatever goes on.
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
