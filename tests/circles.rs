//! Checks that modules depend on each other in one direction: no crate has a cycle of sibling modules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use petgraph::Graph;
use petgraph::algo::tarjan_scc;

use crate::architecture::{root, sources};

/// The names on the way to an item, from the crate's root on.
type Names = Vec<String>;

/// One module: what it imports by name, and every path from the crate's root that it names.
#[derive(Default)]
struct Module {
    imports: BTreeMap<String, Names>,
    paths: BTreeSet<Names>,
}

/// The modules of one crate by their paths.
type Modules = BTreeMap<Names, Module>;

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The leaves of a tree of paths (`a::{B, c::D as E}`) at the start of `text`, each with the name that it brings in.
fn leaves(text: &str, before: &[String], found: &mut Vec<(String, Names)>) {
    let word = text.len() - text.trim_start_matches(is_word).len();
    let path = [before, &[text[..word].to_owned()]].concat();
    let rest = &text[word..];
    if let Some(inner) = rest.strip_prefix("::{") {
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in inner.char_indices() {
            match letter {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    leaves(inner[start..at].trim_start(), &path, found);
                    start = at + 1;
                    if letter == '}' {
                        return;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    } else if let Some(rest) = rest.strip_prefix("::").filter(|rest| rest.starts_with(is_word)) {
        leaves(rest, &path, found);
    } else if word > 0 {
        let alias = rest.strip_prefix(" as ").map(|rest| rest.chars().take_while(|letter| is_word(*letter)).collect());
        let last = path.iter().rev().find(|name| *name != "self").cloned().unwrap_or_default();
        found.push((alias.unwrap_or(last), path.into_iter().filter(|name| name != "self").collect()));
    }
}

/// A path as written in `module`, from the crate's root; `None` for one of another crate or a local name.
fn absolute(module: &[String], written: &[String], children: &BTreeSet<String>) -> Option<Names> {
    let (first, rest) = written.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "super" => {
            let parent = &module[..module.len().checked_sub(1)?];
            if rest.first().is_some_and(|next| next == "super") {
                return absolute(parent, rest, &BTreeSet::new());
            }
            Some([parent, rest].concat())
        }
        child if children.contains(child) => Some([module, written].concat()),
        _ => None,
    }
}

/// Reads a file up to its tests, without comments.
fn read(text: &str, path: &[String], children: &BTreeSet<String>) -> Module {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().trim_end().to_owned() + "\n").collect();
    let mut module = Module::default();
    for (at, _) in code.match_indices("use ") {
        let before = code[..at].lines().next_back().unwrap_or_default();
        if !code[..at].ends_with(|letter: char| !is_word(letter)) && at > 0 || before.contains('"') {
            continue;
        }
        let tree = code[at + 4..].split(';').next().unwrap_or_default();
        let tree: String = tree.split('\n').map(str::trim).collect::<Vec<_>>().join("");
        let mut found = Vec::new();
        leaves(&tree, &[], &mut found);
        for (name, written) in found {
            if let Some(target) = absolute(path, &written, children) {
                module.paths.insert(target.clone());
                module.imports.insert(name, target);
            }
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let first = code[at..].split(|letter: char| !is_word(letter) && letter != ':').next().unwrap_or_default();
            let written: Names = first.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
            if !code[..at].ends_with(|letter: char| is_word(letter) || letter == ':') {
                module.paths.extend(absolute(path, &written, children));
            }
        }
    }
    module
}

/// The crate's folder, and the path of the module that a file is; `None` for tests and programs.
fn place(file: &Path) -> Option<(String, Names)> {
    let relative = file.strip_prefix(root()).ok()?.with_extension("");
    let mut names: Names = relative.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let src = names.iter().position(|name| name == "src")?;
    let mut module = names.split_off(src + 1);
    if module.iter().any(|name| name == "tests") || module == ["main"] {
        return None;
    }
    module.pop_if(|name| name == "lib");
    Some((names.join("/"), module))
}

/// The modules of all crates by their folders.
fn crates() -> BTreeMap<String, Modules> {
    let mut texts: BTreeMap<String, BTreeMap<Names, String>> = BTreeMap::new();
    for file in sources() {
        let Some((folder, module)) = place(&file) else { continue };
        texts.entry(folder).or_default().insert(module, std::fs::read_to_string(&file).expect("a readable file"));
    }
    texts.into_iter().map(|(folder, texts)| (folder, modules(&texts))).collect()
}

fn modules(texts: &BTreeMap<Names, String>) -> Modules {
    let children = |path: &Names| -> BTreeSet<String> {
        let inner = texts.keys().filter(|other| other.len() == path.len() + 1 && other.starts_with(path));
        inner.map(|other| other[path.len()].clone()).collect()
    };
    texts.iter().map(|(path, text)| (path.clone(), read(text, path, &children(path)))).collect()
}

/// The module that has the item of a path, through re-exports.
fn home(modules: &Modules, path: &[String], depth: usize) -> Names {
    let within = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length])).unwrap_or(0);
    let (at, rest) = path.split_at(within);
    let target = rest.first().and_then(|name| modules.get(at)?.imports.get(name));
    match target.filter(|target| depth < 8 && target.as_slice() != &path[..within + 1]) {
        Some(target) => home(modules, &[target, &rest[1..]].concat(), depth + 1),
        None => at.to_vec(),
    }
}

/// The cycles of siblings in a crate, each with the names that tie it.
fn circles(modules: &Modules) -> Vec<String> {
    let mut ties: BTreeMap<&[String], BTreeMap<(String, String), String>> = BTreeMap::new();
    for (path, module) in modules {
        for named in &module.paths {
            let home = home(modules, named, 0);
            let shared = path.iter().zip(&home).take_while(|(left, right)| left == right).count();
            if let (Some(from), Some(to)) = (path.get(shared), home.get(shared)) {
                let tie = format!("{} uses {}", path.join("::"), named.join("::"));
                ties.entry(&path[..shared]).or_default().insert((from.clone(), to.clone()), tie);
            }
        }
    }
    let mut found = Vec::new();
    for (parent, ties) in &ties {
        let names: BTreeSet<&String> = ties.keys().flat_map(|(from, to)| [from, to]).collect();
        let names: Vec<&String> = names.into_iter().collect();
        let index = |name: &String| names.binary_search(&name).expect("listed") as u32;
        let graph = Graph::<(), ()>::from_edges(ties.keys().map(|(from, to)| (index(from), index(to))));
        for circle in tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1) {
            let circle: BTreeSet<&String> = circle.into_iter().map(|node| names[node.index()]).collect();
            let of_circle = ties.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
            let lines: Vec<String> = of_circle.map(|((from, to), tie)| format!("\n  {from} -> {to}: {tie}")).collect();
            found.push(format!("{} modules of {}::{}", circle.len(), parent.join("::"), lines.concat()));
        }
    }
    found
}

#[test]
fn no_siblings_import_each_other_in_a_cycle() {
    let crates = crates();
    assert!(crates.len() > 10, "the crates are where this test looks for them");
    let faults: Vec<String> = crates
        .iter()
        .flat_map(|(folder, modules)| circles(modules).into_iter().map(move |circle| format!("{folder}: {circle}")))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Tests the check: a cycle through a parent's re-export is found, one between parent and child is not a cycle.
#[test]
fn a_cycle_through_a_parent_is_found() {
    let names = |path: &str| -> Names { path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect() };
    let texts = [
        ("", "pub use a::First;\nmod a;\nmod b;\nmod c;"),
        ("a", "use crate::{\n    b::{Other, Second as Two},\n};\npub struct First(Two);"),
        ("b", "pub struct Second;\nfn f() { crate::First::new(); }\n#[cfg(test)]\nmod tests { use crate::c::Third; }"),
        ("c", "use super::b; // crate::a\nmod d;\npub struct Third;"),
        ("c::d", "use super::Third;"),
    ];
    let texts = texts.into_iter().map(|(path, text)| (names(path), text.to_owned())).collect();
    let found = circles(&modules(&texts));
    assert_eq!(found, ["2 modules of ::\n  a -> b: a uses b::Second\n  b -> a: b uses First::new"]);
}
