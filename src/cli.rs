//! Defines the command line: its commands, and how a result or an error leaves the process.
//!
//! One file per command. Exit codes: 0 done, 1 a run failed (a rank panicked, a deadlock), 2 bad input, 3 a run
//! stalled, 130 interrupted; `lab run` returns the code of its command. An error is one line on standard error,
//! `place: value: what is wrong and the cure`, in the same form for flags and for files.

mod axis_flags;
mod calibrate;
mod clusters;
mod clusters_import;
mod collective_beside;
mod collective_like;
mod compare;
mod completions;
mod data;
mod data_tokens;
mod doctor;
mod driver_flags;
mod examples;
mod exec_collective;
mod exec_devices;
mod exec_inspect;
mod exec_links;
mod exec_profile;
mod exec_run;
mod exec_sweep;
mod files;
mod flags;
mod foreign_flags;
mod generated;
mod lab;
mod lab_rows;
mod link_rows;
mod man;
mod memory;
mod models;
mod models_layouts;
mod models_memory;
mod models_plan;
mod models_plan_mesh;
mod nccl_table;
mod operation_flags;
mod papers;
mod profiles;
mod saved_weights;
mod schema;
mod shard_flags;
mod sim_collective;
mod sim_curves;
mod sim_predict;
mod sim_sweep;
mod unfold_flag;
mod usage;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use lockstep_cuda::LibraryFolders;
use lockstep_measure::started::is_one_of_several;
use lockstep_report::failure::Failure;
use lockstep_report::log::{Verbosity, print_information, print_line, print_refusal, set_verbosity};
use lockstep_report::progress::command;
use lockstep_topology::InputError;

pub use flags::CollectiveFlags;
pub use schema::schemas;

/// The commands.
#[derive(Debug, Parser)]
#[command(name = "lockstep", version = env!("LOCKSTEP_VERSION"), about, propagate_version = true, max_term_width = 110, after_help = EXAMPLE)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Width of tables in characters; wider tables continue below [default: the terminal's, else unlimited]
    #[arg(long, global = true, display_order = LAST, value_name = "N", value_parser = clap::value_parser!(u16).range(40..))]
    columns: Option<u16>,

    /// Folder of NVIDIA's libraries, or Python environment with them, that is searched first [default: the loader's path,
    /// the usual folders, the activated environment]
    #[arg(long, global = true, display_order = LAST, value_name = "DIR")]
    cuda_libraries: Option<PathBuf>,

    /// Print only warnings and errors to standard error
    #[arg(short, long, global = true, display_order = LAST)]
    quiet: bool,

    /// Print each phase of the work with its time to standard error
    #[arg(short, long, global = true, display_order = LAST, conflicts_with = "quiet")]
    verbose: bool,
}

/// Place in `--help` of the flags that every command has: behind its own.
const LAST: usize = 900;

const EXAMPLE: &str = "Example:
  lockstep compare experiments/quickstart.toml
      calibrates this machine, predicts ten configurations, trains them, and shows how far the two are apart";

#[derive(Debug, Subcommand)]
enum Command {
    /// Predict step times, sweeps and collectives
    #[command(subcommand)]
    Sim(Sim),
    /// Train for real, and measure
    #[command(subcommand)]
    Exec(Exec),
    /// Predict and execute an experiment, and show the error per configuration
    Compare(compare::Compare),
    /// Compare predictions with the figures of five papers and with published training speeds
    Papers(papers::Papers),
    /// Measure this machine: layers, memory, messages
    Calibrate(calibrate::Calibrate),
    /// Show profiles, and compare two of them
    #[command(subcommand)]
    Profiles(profiles::Profiles),
    /// Say whether training fits on GPUs, as PyTorch's frameworks use their memory
    Memory(Box<memory::Memory>),
    /// List, show and check models
    #[command(subcommand)]
    Models(models::Models),
    /// List, show, check and import clusters
    #[command(subcommand)]
    Clusters(clusters::Clusters),
    /// Build a cluster file on this machine, as network namespaces with shaped links, and run jobs on its hosts
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Pack data sets into files that are read at random; check, show, count and generate them
    #[command(subcommand)]
    Data(data::Data),
    /// Check what this machine offers, and print how to install what is missing
    Doctor(doctor::Doctor),
    /// Print the JSON schema of a command's `--format json`
    Schema(schema::Schema),
    /// Print a script by which a shell completes commands and flags
    Completions(completions::Completions),
    /// Write a manual page for each command
    Man(man::Manual),
}

#[derive(Debug, Subcommand)]
enum Sim {
    /// Predict the step time of each configuration of an experiment
    Predict(Box<sim_predict::Predict>),
    /// Predict over lists of settings, and find the front of the configurations that no other beats
    Sweep(Box<sim_sweep::SimSweep>),
    /// Predict the time of one collective
    Collective(sim_collective::SimCollective),
    /// Compare predicted collectives with curves that others measured, and show the error of each
    Curves(sim_curves::SimCurves),
}

#[derive(Debug, Subcommand)]
enum Exec {
    /// Train each configuration of an experiment
    Run(Box<exec_run::ExecRun>),
    /// Train the arms of an experiment with several seeds, a row an epoch in a file that can be resumed
    Sweep(exec_sweep::ExecSweep),
    /// Measure one collective
    Collective(exec_collective::ExecCollective),
    /// Measure the paths between the hosts of a job, beside what a cluster file says of them
    Links(exec_links::Links),
    /// List the devices that runs can use, and why others cannot be used
    Devices(exec_devices::Devices),
    /// Measure this machine's GPU: layers, copies, learners
    Profile(exec_profile::Profile),
    /// Report which ranks wait for which in a stalled job
    Inspect(exec_inspect::Inspect),
}

/// Runs the command in `arguments` (the program's name first), and returns its exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (commands, mut arguments) =
        (examples::fitted(Cli::command()), arguments.into_iter().collect::<Vec<OsString>>());
    let mut parsed = commands.clone().try_get_matches_from(&arguments);
    let mut notes = Vec::new();
    if let Ok(matches) = &parsed {
        match foreign_flags::taken(&commands, matches) {
            Err(error) => return finish(Err(error.into())),
            Ok(None) => {}
            Ok(Some(taken)) => {
                arguments.extend(taken.arguments);
                notes = taken.notes;
                parsed = commands.try_get_matches_from(arguments);
            }
        }
    }
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        // Help and version are output, not errors.
        Err(error) if !error.use_stderr() => {
            return finish(lockstep_report::print(&error.render().to_string()));
        }
        Err(error) => {
            // `lockstep` or `lockstep sim` alone lists the commands.
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                // Without standard error the exit code shows it.
                let _ = writeln!(std::io::stderr(), "{}", error.render());
            }
            return finish(Err(usage::explain(&error).into()));
        }
    };
    if let Err(error) = lockstep_exec::Instructions::requested() {
        return finish(Err(error.into()));
    }
    set_verbosity(match (cli.quiet, cli.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    });
    notes.iter().for_each(|note| print_information(note));
    if let Some(columns) = cli.columns {
        lockstep_report::set_width(columns.into());
    }
    if let Err(error) = files::check(&Cli::command(), &matches) {
        return finish(Err(error.into()));
    }
    if let Err(error) = cli.cuda_libraries.as_deref().map_or(Ok(()), search_first) {
        return finish(Err(error.into()));
    }
    let words = words(&matches);
    // Those that measure are left undisturbed, and report themselves; of several processes, one does.
    let measure = ["lab", "calibrate", "exec links", "exec collective", "exec profile"];
    let alone = measure.iter().any(|command| words.starts_with(command));
    let run = || run(cli.command);
    finish(if alone || is_one_of_several() { run() } else { command(&words, run) })
}

/// The words of the command: `sim predict`.
fn words(matches: &clap::ArgMatches) -> String {
    let (mut words, mut at) = (Vec::new(), matches);
    while let Some((word, inside)) = at.subcommand() {
        words.push(word);
        at = inside;
    }
    words.join(" ")
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Sim(Sim::Predict(command)) => command.run(),
        Command::Sim(Sim::Sweep(command)) => command.run(),
        Command::Sim(Sim::Collective(command)) => command.run(),
        Command::Sim(Sim::Curves(command)) => command.run(),
        Command::Exec(Exec::Run(command)) => command.run(),
        Command::Exec(Exec::Sweep(command)) => command.run(),
        Command::Exec(Exec::Collective(command)) => command.run(),
        Command::Exec(Exec::Links(command)) => command.run(),
        Command::Exec(Exec::Devices(command)) => command.run(),
        Command::Exec(Exec::Profile(command)) => command.run(),
        Command::Exec(Exec::Inspect(command)) => command.run(),
        Command::Compare(command) => command.run(),
        Command::Papers(command) => command.run(),
        Command::Calibrate(command) => command.run(),
        Command::Profiles(command) => command.run(),
        Command::Memory(command) => command.run(),
        Command::Models(command) => command.run(),
        Command::Clusters(command) => command.run(),
        Command::Data(command) => command.run(),
        Command::Lab(command) => command.run(),
        Command::Doctor(command) => command.run(),
        Command::Schema(command) => command.run(),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man(command) => command.run(Cli::command()),
    }
}

/// Searches the folder for NVIDIA's libraries before all others.
fn search_first(folder: &Path) -> Result<(), InputError> {
    if !folder.is_dir() {
        let cure = "is not a folder; name the one that holds libnvrtc.so.13, or leave the flag out";
        return Err(InputError::flag("cuda_libraries", folder.display().to_string(), cure));
    }
    LibraryFolders::name(folder);
    Ok(())
}

fn finish(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The process that failed reports why.
            match &failure {
                Failure::Elsewhere => {}
                Failure::Input(error) => print_refusal(&error.to_string()),
                other => print_line(&other.to_string()),
            }
            failure.exit_code()
        }
    }
}
