//! Checks that the documentation names no type that the code lacks.

use std::collections::BTreeSet;
use std::fs;

use crate::architecture::{root, sources};

/// Types and settings of other programs.
const OTHERS: [&str; 6] = ["AdaGrad", "ColwiseParallel", "DeviceMesh", "Replicate", "RowwiseParallel", "TmpFS"];

/// Whether it is written as types are: `DeviceMesh`, no constant and no unit.
fn is_type(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.contains(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric())
}

#[test]
fn types_named_in_the_documentation_are_in_the_code() {
    let words = |text: &str| -> BTreeSet<String> {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned).collect()
    };
    let known: BTreeSet<String> =
        sources().iter().flat_map(|file| words(&fs::read_to_string(file).expect("a source file"))).collect();
    let pages = fs::read_dir(root().join("docs")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let pages = pages.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let mut lacking = Vec::new();
    for page in pages.chain([root().join("DESIGN.md"), root().join("CONTRIBUTING.md")]) {
        let text = fs::read_to_string(&page).expect("a page");
        // Between an odd and an even quote is code.
        for code in text.split('`').skip(1).step_by(2).filter(|code| !code.contains('\n')) {
            let types = code.split("::").filter(|word| is_type(word));
            let unknown = types.filter(|word| !known.contains(*word) && !OTHERS.contains(word));
            lacking.extend(unknown.map(|word| format!("{}: {word}", page.display())));
        }
    }
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
}
