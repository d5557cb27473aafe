//! Refuses a command line whose outputs would replace what the command reads, before the command begins.
//!
//! Whatever a flag or a file of the command names counts as read, unless the flag is listed here as an output. So a new
//! flag is protected without being listed, and a test refuses an unlisted one that takes a path.

mod inputs;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::{ArgMatches, Command};
use lockstep_predict::PROFILE_PATH;
use lockstep_report::output::{Destination, file_identity};
use lockstep_topology::InputError;

use inputs::Inputs;

/// Flags whose file is written, of every command that has them.
const OUTPUTS: [&str; 11] = [
    "driver_log",
    "html",
    "metrics",
    "out",
    "output",
    "plot",
    "save_weights",
    "trace",
    "tuner_log",
    "write_errors",
    "profile",
];
/// Flags whose folder is written into, under names of its own. What lies there already is not compared: a folder of
/// checkpoints is, since its files are kept.
const OUTPUT_FOLDERS: [&str; 1] = ["flight"];
/// The commands of which `--profile` is an output; the others read it.
const WRITE_PROFILES: [&str; 1] = ["calibrate"];
/// The commands that read the profile of `calibrate` where none is named.
const READ_PROFILES: [&str; 2] = ["sim", "compare"];
/// Ends of names that readers of data sets look for: a new file of such a name would become part of the set.
const DATA_ENDINGS: [&str; 8] = [".jpg", ".jpeg", ".png", ".tar", ".bin", ".gz", ".mdb", "-ubyte"];
/// Ends of names of results. Beside a set's files they are not part of it, so a command may be repeated.
const RESULT_ENDINGS: [&str; 8] = [".pack", ".json", ".jsonl", ".csv", ".svg", ".html", ".log", ".txt"];

/// Whether the flag `id` of `command` (its words) names a file that is written.
fn is_output(command: &[&str], id: &str) -> bool {
    OUTPUTS.contains(&id) && (id != "profile" || command.iter().any(|word| WRITE_PROFILES.contains(word)))
}

/// Refuses outputs of the command line in `matches` that are among its inputs.
///
/// # Errors
/// The first such output, with what reads it.
pub(super) fn check(command: &Command, matches: &ArgMatches) -> Result<(), InputError> {
    let (mut command, mut matches, mut words) = (command, matches, Vec::new());
    let mut values: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    loop {
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let given = matches.try_get_raw(id).ok().flatten().into_iter().flatten();
            values.entry(id).or_default().extend(given.map(Path::new));
        }
        let Some((name, inside)) = matches.subcommand() else { break };
        let Some(next) = command.find_subcommand(name) else { break };
        words.push(name);
        (command, matches) = (next, inside);
    }
    let outputs: Vec<(&str, &Path)> = values
        .iter()
        .filter(|(id, _)| is_output(&words, id))
        .flat_map(|(id, paths)| paths.iter().map(|path| (*id, *path)))
        .collect();
    if outputs.is_empty() {
        return Ok(());
    }
    let mut inputs = Inputs::default();
    for (id, paths) in values.iter().filter(|(id, _)| !is_output(&words, id) && !OUTPUT_FOLDERS.contains(id)) {
        let is_path = takes_path(command, id) || *id == "data";
        paths.iter().for_each(|path| inputs.add(&shown(command, id), path, is_path));
    }
    if words.first().is_some_and(|word| READ_PROFILES.contains(word)) {
        inputs.add("the prediction", Path::new(PROFILE_PATH), true);
    }
    outputs.into_iter().try_for_each(|(id, path)| apart(&shown(command, id), path, &inputs))
}

/// The argument as the user writes it.
fn shown(command: &Command, id: &str) -> String {
    let argument = command.get_arguments().find(|argument| argument.get_id().as_str() == id);
    match argument {
        Some(argument) if argument.is_positional() => id.to_uppercase(),
        Some(argument) => argument.get_long().map_or_else(|| id.to_owned(), |long| format!("--{long}")),
        None => format!("--{}", id.replace('_', "-")),
    }
}

/// Whether the argument is declared as a path.
fn takes_path(command: &Command, id: &str) -> bool {
    let argument = command.get_arguments().find(|argument| argument.get_id().as_str() == id);
    argument.is_some_and(|argument| {
        argument.get_value_parser().type_id() == clap::builder::ValueParser::path_buf().type_id()
    })
}

/// Refuses an output that is one of the inputs, or that joins a set of them.
fn apart(flag: &str, path: &Path, inputs: &Inputs) -> Result<(), InputError> {
    let file = match Destination::find(path) {
        Ok(Destination::File(file)) => file,
        Err(message) if path.is_symlink() => return Err(InputError::new(flag, path.display().to_string(), message)),
        // The command itself reports what else cannot be written.
        _ => return Ok(()),
    };
    let refused = |by: &str, what: &str| {
        let message = format!("{what} {by} and would be replaced: name another file");
        Err(InputError::new(flag, path.display().to_string(), message))
    };
    let name = file.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let Ok(found) = fs::metadata(&file) else {
        let joins = DATA_ENDINGS.iter().any(|ending| name.ends_with(ending));
        return match inputs.folder_of(&file).filter(|_| joins) {
            Some(by) => refused(by, "would become part of the set that is read by"),
            None => Ok(()),
        };
    };
    let own = file_identity(&found);
    match inputs.reader_of(own, |name| RESULT_ENDINGS.iter().any(|ending| name.ends_with(ending))) {
        Some(by) => refused(&by, "is read by"),
        None => Ok(()),
    }
}
