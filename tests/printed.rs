//! Tests that text of input files and names is printed without what a terminal interprets, and shortened where it is
//! long: in errors, notes and tables.

use std::fs;
use std::path::PathBuf;

use crate::commands::{folder, lockstep};

/// Clears the screen, sets the title, moves by a C1 control, turns the direction of text.
const EVIL: &str = "a\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}1Ab\u{202e}c\u{2066}\u{7f}d";

/// What a command prints, both streams.
fn printed(folder: &PathBuf, words: &[&str]) -> String {
    let output = lockstep(folder, words);
    String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8")
}

fn check(folder: &PathBuf, words: &[&str]) {
    let text = printed(folder, words);
    let raw = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{2066}');
    assert!(!text.chars().any(raw), "{words:?} prints control characters: {text:?}");
    let escaped = ["\\u{1b}[2J", "\\u001b[2J", "\\u001b\\u005b"].iter().any(|shown| text.contains(shown));
    assert!(escaped, "{words:?} does not show the name: {text}");
}

#[test]
fn control_characters_are_printed_as_escapes() {
    let folder = folder("printed");
    let quoted = EVIL.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect::<String>();
    let zoo = include_str!("../models/zoo/mlp.toml");
    let model = zoo.replace("name = \"mlp\"", &format!("name = \"{quoted}\"")).replace("The classic", &quoted);
    fs::write(folder.join("m.toml"), model).expect("a file");
    fs::write(folder.join(format!("{EVIL}.toml")), "model = 3\n").expect("a file");
    fs::write(folder.join("e.toml"), format!("name = \"e\"\nmodel = \"{quoted}\"\n")).expect("a file");
    fs::create_dir_all(folder.join("set").join(EVIL)).expect("a folder");
    fs::write(folder.join("set").join(EVIL).join(format!("{EVIL}.jpg")), "no picture").expect("a file");
    let named = format!("{EVIL}.toml");
    for words in [
        &["sim", "predict", &named][..],
        &["sim", "predict", "e.toml"],
        &["models", "show", EVIL],
        &["models", "check", EVIL, &named],
        &["clusters", "show", &named],
        &["data", "pack", "set", "--out", "set.pack"],
        &["data", "check", &named],
        &["sim", "predict", "--model", "mlp", "--cluster", EVIL],
        &["exec", "run", "--model", "mlp", "--data", EVIL],
        &["lab", "down", EVIL],
        &["sim", "predict", &format!("--{EVIL}")],
        &[EVIL],
    ] {
        check(&folder, words);
    }
    check(&folder, &["models", "show", "m.toml"]);
    for format in ["table", "json"] {
        check(&folder, &["data", "pack", "set", "--out", "set.pack", "--skip-bad", "--format", format]);
        check(&folder, &["sim", "predict", "--model", "m.toml", "--cluster", "workstation", "--format", format]);
    }
}

/// A value of any length leaves an error that can be read, with the beginning of the value and its length.
#[test]
fn long_values_are_shortened_in_errors() {
    let folder = folder("long-values");
    let long = "x".repeat(100_000);
    fs::write(folder.join("e.toml"), format!("name = \"e\"\nmodel = \"{long}\"\n")).expect("a file");
    fs::write(folder.join("k.toml"), format!("{long} = 3\n")).expect("a file");
    let strategy = format!("--strategy={long}");
    for words in [
        &["sim", "predict", "e.toml"][..],
        &["sim", "predict", "k.toml"],
        &["models", "show", &long],
        &["sim", "predict", "--model", "mlp", "--cluster", &long],
        &["sim", "predict", "--model", "mlp", &strategy],
        &["exec", "run", "--model", "mlp", "--data", &long],
        &[&long],
    ] {
        let text = printed(&folder, words);
        let shown: Vec<String> = words.iter().map(|word| word.chars().take(20).collect()).collect();
        assert!(text.len() < 3000 && text.contains("characters)"), "{shown:?}: {} bytes", text.len());
    }
}
