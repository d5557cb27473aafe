//! Breaks the examples of `--help` into lines that fit the terminal and can be pasted: with a backslash at their ends.

use clap::Command;

/// Columns of help where no terminal says how many there are, and the most that are used.
const USUAL: usize = 100;
const MOST: usize = 110;
/// The least, so that a long word does not make each line a word.
const LEAST: usize = 40;

/// The command and those below it, with help as wide as the terminal and examples that fit it.
pub(super) fn fitted(command: Command) -> Command {
    let width = lockstep_report::width().unwrap_or(USUAL).clamp(LEAST, MOST);
    within(command.term_width(width), width)
}

/// The same for a width.
fn within(command: Command, width: usize) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let text = command.get_after_help().map(ToString::to_string);
    let command = match text {
        Some(text) => command.after_help(pasteable(&text, width)),
        None => command,
    };
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |inner| within(inner, width)))
}

/// The text below a command's help with its examples broken where they are longer than `width`.
///
/// An example is a line that two spaces begin. What more than one space separates from it is a remark, and gets a line of
/// its own.
pub(super) fn pasteable(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in joined(text).lines() {
        let example = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ') && is_call(rest));
        let Some(example) = example else {
            lines.push(line.to_owned());
            continue;
        };
        let (call, remark) = example.split_once("  ").unwrap_or((example, ""));
        lines.extend(broken(call.trim_end(), width));
        lines.extend((!remark.is_empty()).then(|| format!("      {}", remark.trim_start())));
    }
    lines.join("\n")
}

/// The text with each broken line on one.
fn joined(text: &str) -> String {
    let parts: Vec<&str> = text.split("\\\n").collect();
    let last = parts.len() - 1;
    let part = |(at, part): (usize, &&str)| {
        let part = if at > 0 { part.trim_start() } else { part };
        if at < last { part.trim_end().to_owned() } else { part.to_owned() }
    };
    parts.iter().enumerate().map(part).collect::<Vec<_>>().join(" ")
}

/// Whether a line is a command and not a sentence.
fn is_call(line: &str) -> bool {
    line.contains("lockstep ") && !line.ends_with('.') || line.split(' ').next().is_some_and(|word| word.contains('='))
}

/// The lines of one call.
fn broken(call: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".to_owned();
    for word in with_values(words(call), width) {
        // Space for the backslash.
        if line.chars().count() + 1 + word.chars().count() + 2 > width && !line.trim().is_empty() {
            lines.push(format!("{line} \\"));
            line = "     ".to_owned();
        }
        line.push(' ');
        line.push_str(&word);
    }
    lines.push(line);
    lines
}

/// Flags together with their values, where both fit on a line.
fn with_values(words: Vec<&str>, width: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in words {
        let before = all.last_mut().filter(|before| before.starts_with("--") && !before.contains([' ', '=']));
        match before.filter(|before| !word.starts_with('-') && before.len() + word.chars().count() + 9 <= width) {
            Some(flag) => flag.push_str(&format!(" {word}")),
            None => all.push(word.to_owned()),
        }
    }
    all
}

/// The words of a call; what is in quotes stays together.
fn words(call: &str) -> Vec<&str> {
    call.split(outside_quotes(&[' '])).filter(|word| !word.is_empty()).collect()
}

/// Whether a character, of those of a line one after the other, is one of `wanted` outside of quotes.
fn outside_quotes(wanted: &[char]) -> impl FnMut(char) -> bool {
    let mut quoted = None;
    move |c: char| {
        match quoted {
            Some(quote) if c == quote => quoted = None,
            None if c == '"' || c == '\'' => quoted = Some(c),
            _ => {}
        }
        quoted.is_none() && wanted.contains(&c)
    }
}

/// The calls of lockstep among the examples of a text, each on one line, without what a shell does with it.
#[cfg(test)]
pub(super) fn calls(text: &str) -> Vec<String> {
    let joined = joined(text);
    let examples = joined.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| is_call(line));
    let own = examples.filter(|line| !line.starts_with(' ') && line.contains("lockstep "));
    own.map(|line| {
        let all = &line[line.find("lockstep ").unwrap_or(0)..];
        let call = all.split(outside_quotes(&[';', '|', '>', '&'])).next().unwrap_or_default();
        words(call).iter().map(|word| word.trim_matches(['"', '\''])).collect::<Vec<_>>().join("\n")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// The text below each command's help.
    fn texts(command: &Command, found: &mut Vec<String>) {
        found.extend(command.get_after_help().map(ToString::to_string));
        command.get_subcommands().for_each(|inner| texts(inner, found));
    }

    /// At any width each example is the same call, one that the command line accepts, and no line is cut by the help.
    #[test]
    fn examples_can_be_pasted_at_any_width() {
        let mut written = Vec::new();
        texts(&Cli::command(), &mut written);
        let wanted: Vec<Vec<String>> = written.iter().map(|text| calls(&pasteable(text, 10_000))).collect();
        assert!(wanted.iter().map(Vec::len).sum::<usize>() > 60, "{wanted:?}");
        for call in wanted.iter().flatten() {
            let found = Cli::command().try_get_matches_from(call.lines());
            assert!(found.is_ok(), "{call}: {}", found.unwrap_err());
        }
        for width in [LEAST, 60, 80, USUAL, MOST] {
            for (text, wanted) in written.iter().zip(&wanted) {
                let shown = pasteable(text, width);
                assert_eq!(calls(&shown), *wanted);
                for line in shown.lines().filter(|line| line.starts_with("  ") && line.ends_with('\\')) {
                    assert!(line.chars().count() <= width || words(line).len() <= 2, "{width}: {line}");
                }
            }
        }
    }

    /// The help as it is printed has the lines of each broken example as they are.
    #[test]
    fn printed_help_has_the_examples() {
        for width in [LEAST, 80, MOST] {
            let mut command = within(Cli::command().term_width(width), width);
            command.build();
            let predict =
                command.find_subcommand_mut("sim").and_then(|sim| sim.find_subcommand_mut("predict")).unwrap();
            let examples = predict.get_after_help().map(ToString::to_string).unwrap();
            let help = predict.render_help().to_string();
            let broken: Vec<&str> = examples.lines().filter(|line| line.ends_with('\\')).collect();
            assert!(broken.len() > 1 && broken.iter().all(|line| help.contains(line)), "{width}");
        }
    }

    #[test]
    fn remarks_get_lines_of_their_own() {
        let text = "Examples:\n  lockstep a --b c     a remark\n  lockstep d \\\n      --e 'f g'\nA sentence of lockstep words.";
        let shown =
            "Examples:\n  lockstep a --b c\n      a remark\n  lockstep d --e 'f g'\nA sentence of lockstep words.";
        assert_eq!(pasteable(text, 80), shown);
        let narrow = "  lockstep a \\\n      --bbbbbbbb \\\n      cccccccc --d";
        assert_eq!(pasteable("  lockstep a --bbbbbbbb cccccccc --d", 22), narrow);
        let wider = "  lockstep a \\\n      --bbbbbbbb cccccccc \\\n      --d";
        assert_eq!(pasteable("  lockstep a --bbbbbbbb cccccccc --d", 28), wider);
    }
}
