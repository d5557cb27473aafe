//! Runs `lockstep completions`: prints a script by which a shell completes commands, flags and their choices.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use lockstep_report::failure::Failure;
use lockstep_report::print;

/// Flags of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep completions bash > ~/.local/share/bash-completion/completions/lockstep
  lockstep completions zsh > ~/.zfunc/_lockstep
  lockstep completions fish > ~/.config/fish/completions/lockstep.fish")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut command, "lockstep", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}
