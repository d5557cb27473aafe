//! Starts the `lockstep` binary: all code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockstep::cli::main(std::env::args_os())
}
