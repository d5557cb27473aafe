//! Runs `lockstep man`: writes a manual page for each command.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use lockstep_report::failure::Failure;
use lockstep_report::log::print_information;
use lockstep_report::output::{make_place, write_atomically};

use super::examples::pasteable;

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

/// Columns of an example.
const WIDTH: usize = 78;

/// The exit codes (docs/operations.md).
const CODES: [(&str, &str); 5] = [
    ("0", "done"),
    ("1", "a run failed: a rank panicked or lost its peers, a loss was not a number, replicas diverged"),
    ("2", "invalid input, or a file cannot be read or written"),
    ("3", "the run stalled: no progress for the stall limit"),
    ("130", "interrupted; with --checkpoint the state is saved"),
];

/// Writes a page: what the command line says of itself, its examples as they are typed, and the exit codes.
fn render(page: &Man, command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    if command.has_subcommands() {
        page.render_subcommands_section(out)?;
    }
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        let text = text.strip_prefix("Examples:\n").or_else(|| text.strip_prefix("Example:\n")).unwrap_or(&text);
        // Lines stay as they are between .nf and .fi; a line of it must not begin like a command of roff.
        let lines = pasteable(text, WIDTH).replace('\\', "\\e").replace('-', "\\-");
        writeln!(out, ".SH EXAMPLES\n.nf")?;
        for line in lines.lines() {
            writeln!(out, "{}{line}", if line.starts_with(['.', '\'']) { "\\&" } else { "" })?;
        }
        writeln!(out, ".fi")?;
    }
    writeln!(out, ".SH \"EXIT STATUS\"")?;
    for (code, meaning) in CODES {
        writeln!(out, ".TP\n{code}\n{}", meaning.replace('-', "\\-"))?;
    }
    page.render_version_section(out)
}

/// Writes the pages of a command and of those below it; returns how many.
fn write(command: &Command, folder: &Path) -> Result<usize, Failure> {
    let page = Man::new(command.clone());
    write_atomically("--out", &folder.join(page.get_filename()), |file| {
        let mut text = Vec::new();
        render(&page, command, &mut text)?;
        file.write_all(&text)
    })?;
    command.get_subcommands().try_fold(1, |pages, inner| Ok(pages + write(inner, folder)?))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Every page has the exit codes, which are those of the documents, and its examples with their backslashes.
    #[test]
    fn pages_have_examples_and_exit_codes() {
        let mut command = crate::cli::Cli::command().disable_help_subcommand(true);
        command.build();
        let folder = tempfile::tempdir().unwrap();
        let pages = write(&command, folder.path()).unwrap();
        let files: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(files.len(), pages);
        let documented = include_str!("../../docs/operations.md");
        for (code, meaning) in CODES {
            assert!(
                documented.contains(&format!("| {code} | {}", meaning.replace("--checkpoint", "`--checkpoint`"))),
                "{code}"
            );
        }
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let codes = text.split(".SH \"EXIT STATUS\"").nth(1).unwrap();
            assert!(CODES.iter().all(|(code, _)| codes.contains(&format!(".TP\n{code}\n"))), "{}", file.display());
        }
        let predict = std::fs::read_to_string(folder.path().join("lockstep-sim-predict.1")).unwrap();
        assert!(
            predict.contains(".SH EXAMPLES\n.nf\n  lockstep sim predict \\-\\-model")
                && predict.contains(" \\e\n      \\-\\-")
        );
    }
}
