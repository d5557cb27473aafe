//! Checks the words of comments, documents and names: retired ones, which an engineer of the field would have to decode, are
//! refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::architecture::{root, sources};

/// Words and phrases with what to write instead; longer ones first where one contains another.
const RETIRED: [(&str, &str); 15] = [
    ("nobody", "name the thing that does not: `no rank`, `nothing`"),
    ("so many", "the number's name: `N`, `that many`"),
    ("gone on with", "resumed"),
    ("goes on", "continues, resumes"),
    ("farewell", "the last message"),
    ("the desk", "the assignment of batches"),
    ("takes leave", "ends"),
    ("has still to say", "the pending work"),
    ("told and not used", "informational; ignored"),
    ("as ever", "leave it out"),
    ("stands for", "represents, means"),
    ("whoever", "the rank, process or user that"),
    ("anew", "again"),
    ("in place of", "instead of"),
    ("is no way", "cannot, is not"),
];

/// Names in code with what replaced them.
const RETIRED_NAMES: [(&str, &str); 14] = [
    ("Bracketing", "ReductionOrder"),
    ("bracketing", "reduction_order"),
    ("Desk", "BatchClaims"),
    ("desk", "claims"),
    ("neck", "bottleneck"),
    ("landing", "receive_buffer"),
    ("Judgement", "RunControl"),
    ("Legacy", "RankResult"),
    ("legacy", "rank_result"),
    ("Settled", "IterationResults"),
    ("Meeting", "GroupExchange"),
    ("bring_out", "copy_to_host"),
    ("bring_in", "copy_to_device"),
    ("check_room", "check_memory"),
];

/// The prose of a Rust file: its comments, each line with its number.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter_map(|(number, line)| {
        let at = line.find("// ").or_else(|| line.find("//! ")).or_else(|| line.find("/// "))?;
        Some((number, &line[at..]))
    })
}

/// The prose of a document: what is outside of its blocks of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// Whether `phrase` is in `line` as whole words, in any case.
fn has(line: &str, phrase: &str) -> bool {
    let line = line.to_lowercase();
    let is_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    line.match_indices(phrase)
        .any(|(at, _)| !is_word(line[..at].chars().next_back()) && !is_word(line[at + phrase.len()..].chars().next()))
}

/// All documents that are written by hand.
fn documents() -> Vec<PathBuf> {
    let folders = ["", "data", "docs", "tests/gpu", "tests/gpu/pretend"];
    let files = folders.into_iter().flat_map(|folder| {
        let entries = std::fs::read_dir(root().join(folder)).expect("a folder of documents");
        entries.map(|entry| entry.expect("a readable folder").path())
    });
    let found: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    assert!(found.len() > 20, "the documents are where this test looks for them");
    found
}

#[test]
fn retired_words_stay_retired() {
    let mut faults = Vec::new();
    let mut check = |path: &Path, number: usize, line: &str| {
        for (phrase, cure) in RETIRED.iter().filter(|(phrase, _)| has(line, phrase)) {
            let name = path.strip_prefix(root()).unwrap_or(path).display();
            faults.push(format!("{name}:{number}: \"{phrase}\" is retired; write: {cure}"));
        }
    };
    for path in sources().into_iter().filter(|path| !path.ends_with("tests/words.rs")) {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        comments(&text).for_each(|(number, line)| check(&path, number, line));
    }
    for path in documents() {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        prose(&text).for_each(|(number, line)| check(&path, number, line));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn retired_names_stay_retired() {
    let mut faults = Vec::new();
    for path in sources().into_iter().filter(|path| !path.ends_with("tests/words.rs")) {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        for (number, line) in (1..).zip(text.lines()) {
            for name in line.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
                if let Some((_, cure)) = RETIRED_NAMES.iter().find(|(retired, _)| *retired == name) {
                    faults.push(format!("{}:{number}: {name} is now {cure}", path.display()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The name of the public type that a line declares.
fn declared_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
}

/// A name identifies its type without a path.
#[test]
fn no_two_public_types_share_a_name() {
    let mut declared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources() {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        if name.split('/').any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a readable file");
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(of) = declared_type(line) {
                declared.entry(of.to_owned()).or_default().push(format!("{name}:{number}"));
            }
        }
    }
    assert!(declared.len() > 400, "the sources are where this test looks for them");
    let doubled: Vec<String> = declared
        .iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| format!("{name} is declared in {}: rename one", places.join(" and ")))
        .collect();
    assert!(doubled.is_empty(), "{}", doubled.join("\n"));
}

#[test]
fn declarations_of_public_types_are_found() {
    assert_eq!(declared_type("    pub struct Exchange<'a> {"), Some("Exchange"));
    assert_eq!(declared_type("pub type Sums = Option<f64>;"), Some("Sums"));
    assert_eq!(declared_type("pub(crate) struct Exchange;"), None);
    assert_eq!(declared_type("/// pub struct Exchange"), None);
}

#[test]
fn phrases_are_found_as_whole_words_only() {
    assert!(has("/// Nobody waits.", "nobody") && has("for so many ranks", "so many"));
    assert!(!has("is also many things", "so many") && !has("let nobody_waits = 1;", "nobody"));
    let text = "so many\n```\nso many\n```\nno\n";
    assert_eq!(prose(text).map(|(number, _)| number).collect::<Vec<_>>(), [1, 5]);
    assert_eq!(comments("let x = 1; // why\nlet y = 2;\n").collect::<Vec<_>>(), [(1, "// why")]);
}
