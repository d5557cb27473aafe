//! Runs `lockstep man`: writes a manual page for each command.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use lockstep_report::failure::Failure;
use lockstep_report::log::print_information;
use lockstep_report::output::{make_place, write_atomically};

/// Flags of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep man --out ~/.local/share/man/man1
      then man lockstep-sim-predict")]
pub(super) struct Manual {
    /// The folder for the pages, made if it is missing
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

impl Manual {
    pub(super) fn run(self, command: Command) -> Result<(), Failure> {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        make_place("--out", &self.out.join(Man::new(command.clone()).get_filename()))?;
        let pages = write(&command, &self.out)?;
        print_information(&format!("lockstep: {pages} pages in {}", self.out.display()));
        Ok(())
    }
}

/// Writes the pages of a command and of those below it; returns how many.
fn write(command: &Command, folder: &Path) -> Result<usize, Failure> {
    let page = Man::new(command.clone());
    write_atomically("--out", &folder.join(page.get_filename()), |file| {
        let mut text = Vec::new();
        page.render(&mut text)?;
        file.write_all(&text)
    })?;
    command.get_subcommands().try_fold(1, |pages, inner| Ok(pages + write(inner, folder)?))
}
