//! Tests that every flag that takes a path is known as an input or an output, and that no output is an input.

use clap::CommandFactory;
use clap::builder::ValueParser;

use super::*;
use crate::cli::Cli;

/// Flags and arguments whose path is read.
const READ: [&str; 20] = [
    "against",
    "beside",
    "check",
    "checkpoint",
    "cuda_libraries",
    "experiment",
    "file",
    "files",
    "from",
    "pace_of",
    "profile",
    "replay",
    "replay_tuner",
    "resume",
    "source",
    "target",
    "text",
    "tokenizer",
    "solver",
    "weights",
];

/// Every argument of every command, with the command's words.
fn arguments<'a>(command: &'a Command, words: &[&'a str], found: &mut Vec<(Vec<&'a str>, &'a clap::Arg)>) {
    found.extend(command.get_arguments().map(|argument| (words.to_vec(), argument)));
    for inside in command.get_subcommands() {
        arguments(inside, &[words, &[inside.get_name()]].concat(), found);
    }
}

/// A new flag that takes a path is listed here or in `OUTPUTS`.
#[test]
fn every_path_is_an_input_or_an_output() {
    let (command, mut found) = (Cli::command(), Vec::new());
    arguments(&command, &[], &mut found);
    let (mut paths, mut outputs) = (0, 0);
    for (words, argument) in found {
        let id = argument.get_id().as_str();
        let names = argument.get_value_names().unwrap_or_default();
        let is_path = argument.get_value_parser().type_id() == ValueParser::path_buf().type_id()
            || names.iter().any(|name| ["FILE", "DIR", "PROFILE"].iter().any(|word| name.starts_with(word)));
        let is_output = is_output(&words, id);
        let known = READ.contains(&id) || OUTPUT_FOLDERS.contains(&id) || is_output;
        assert!(!is_path || known, "{words:?} {id}: is its path read or written?");
        (paths, outputs) = (paths + usize::from(is_path), outputs + usize::from(is_output));
    }
    assert!(paths > 30 && outputs > 12, "{paths} {outputs}");
}
