//! Converts clap's errors to the form of all other errors.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use lockstep_topology::InputError;
use lockstep_topology::aliases::{command_of, instead_of, key_of};

/// Where arguments are explained.
const HELP: &str = "see --help";

/// The error with the flag as its place, the given text as its value, and what is wrong with it.
pub(super) fn explain(error: &clap::Error) -> InputError {
    let text = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(ContextValue::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    // `--ranks <RANKS>` → `--ranks`, `[EXPERIMENT]` stays.
    let place = text(ContextKind::InvalidArg);
    let flag = place.split(" <").next().unwrap_or_default().trim_end_matches("...").to_owned();
    let value = text(ContextKind::InvalidValue);
    let help = HELP;
    match error.kind() {
        ErrorKind::ValueValidation => {
            let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            let wrong = source.strip_prefix(&format!("{value:?}")).unwrap_or(&source);
            let wrong = wrong.strip_prefix(&value).unwrap_or(wrong).trim_start_matches([':', ' ']);
            let wrong = if wrong == "invalid digit found in string" { "must be a whole number" } else { wrong };
            InputError::new(flag, value, wrong)
        }
        ErrorKind::InvalidValue if value.is_empty() => InputError::new(flag, "", format!("needs a value; {help}")),
        ErrorKind::InvalidValue => {
            let meant = text(ContextKind::SuggestedValue);
            let all = text(ContextKind::ValidValue);
            let hint = if meant.is_empty() { String::new() } else { format!("did you mean {meant}? ") };
            let of_cluster = if flag == "--network" {
                "; a fabric is named with the cluster, dgx-a100:4@infiniband-hdr"
            } else {
                ""
            };
            InputError::new(flag, value, format!("{hint}the values are {all}{of_cluster}"))
        }
        ErrorKind::UnknownArgument => {
            unknown_argument(&flag, &text(ContextKind::SuggestedArg), &error.render().to_string())
        }
        ErrorKind::InvalidSubcommand => {
            let (meant, given) = (text(ContextKind::SuggestedSubcommand), text(ContextKind::InvalidSubcommand));
            let mut others = commands_where(&|command| command.get_name() == given);
            others.extend(command_of(&given).filter(|_| meant.is_empty() && others.is_empty()).map(str::to_owned));
            let cure = cure(&meant, &others, |named| format!("did you mean {named}?"));
            InputError::new("command line", given, format!("is not a command; {cure}"))
        }
        ErrorKind::MissingRequiredArgument => {
            let such = if flag == "<EXPERIMENT>" { "; name one such as experiments/quickstart.toml" } else { "" };
            InputError::new("command line", "", format!("{flag} is missing{such}; {help}"))
        }
        ErrorKind::ArgumentConflict => {
            let other = text(ContextKind::PriorArg);
            let other = other.split(" <").next().unwrap_or_default();
            if other == flag {
                return InputError::new(flag, "", "is given twice: give it once");
            }
            InputError::new(flag, "", format!("cannot be combined with {other}: give one of the two"))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            InputError::new("command line", "", format!("a command is missing; {help}"))
        }
        _ => {
            let first = error.to_string();
            let first = first.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            InputError::new("command line", "", format!("{first}; {help}"))
        }
    }
}

/// The error for a flag that this command does not have; `meant` is a similar one of its own, or empty; `said` is clap's error
/// with the command's usage.
fn unknown_argument(flag: &str, meant: &str, said: &str) -> InputError {
    let others = commands_where(&|command| {
        command.get_arguments().any(|argument| argument.get_long().is_some_and(|long| flag == format!("--{long}")))
    });
    let name = flag.trim_start_matches('-');
    // Commands that write a cluster have --output, those that write rows or data --out.
    if !meant.is_empty() && (meant.starts_with(flag) || flag.starts_with(meant)) {
        return InputError::new(
            "command line",
            flag,
            format!("is not an argument of this command; did you mean {meant}?"),
        );
    }
    if let Some(own) = key_of(name).map(|key| key.replace('_', "-")) {
        let has = |command: &clap::Command| command.get_arguments().any(|of| of.get_long() == Some(&own));
        let message = format!("is not an argument of this command; --{own} is one of {}", named(&commands_where(&has)));
        return InputError::new("command line", flag, message);
    }
    // `memory` counts layouts that nothing here trains.
    if let Some(instead) = instead_of(name).filter(|_| others.iter().all(|other| other == "memory")) {
        let here = command_in(said);
        let mut flags =
            instead.split(|c: char| !c.is_alphanumeric() && c != '-').filter_map(|word| word.strip_prefix("--"));
        let has = |command: &clap::Command, flag: &str| command.get_arguments().any(|of| of.get_long() == Some(flag));
        let is_elsewhere =
            flags.clone().next().is_some() && here.as_ref().is_some_and(|here| !flags.any(|flag| has(here, flag)));
        let message = match is_elsewhere {
            true => format!("is not an argument of this command; in others it {instead}"),
            false => instead,
        };
        return InputError::new("command line", flag, message);
    }
    let cure = cure(meant, &others, |named| format!("it is one of {named}"));
    InputError::new("command line", flag, format!("is not an argument of this command; {cure}"))
}

/// The cure for a word that no command has here: the commands that have it, a similar word, or the help.
fn cure(meant: &str, others: &[String], of_others: impl Fn(String) -> String) -> String {
    match others {
        [] if meant.is_empty() => HELP.to_owned(),
        [] => format!("did you mean {meant}?"),
        _ => of_others(named(others)),
    }
}

/// The commands with `is_wanted`, by their names behind `lockstep`, as in `sim sweep`.
fn commands_where(is_wanted: &dyn Fn(&clap::Command) -> bool) -> Vec<String> {
    fn visit(command: &clap::Command, path: &str, is_wanted: &dyn Fn(&clap::Command) -> bool, found: &mut Vec<String>) {
        for inner in command.get_subcommands() {
            let name = format!("{path} {}", inner.get_name()).trim_start().to_owned();
            if is_wanted(inner) {
                found.push(name.clone());
            }
            visit(inner, &name, is_wanted, found);
        }
    }
    let mut found = Vec::new();
    visit(&super::Cli::command(), "", is_wanted, &mut found);
    found
}

/// The command whose usage clap's error shows.
fn command_in(said: &str) -> Option<clap::Command> {
    let usage = said.lines().find_map(|line| line.trim().strip_prefix("Usage: "))?;
    let words = usage.split_whitespace().skip(1).take_while(|word| !word.starts_with(['[', '<', '-', '(']));
    words.into_iter().try_fold(super::Cli::command(), |command, word| command.find_subcommand(word).cloned())
}

/// `sim predict, sim sweep or compare`, at most four of them.
fn named(commands: &[String]) -> String {
    match commands {
        [one] => one.clone(),
        [first @ .., last] if commands.len() <= 4 => format!("{} or {last}", first.join(", ")),
        _ => format!("{} and others", commands[..3].join(", ")),
    }
}
