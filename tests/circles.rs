//! Checks that modules depend on each other in one direction: no crate has a cycle of sibling modules, and no two
//! crates export one name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use petgraph::Graph;
use petgraph::algo::tarjan_scc;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The names on the way to an item, from the crate's root on.
type Names = Vec<String>;

/// One module of a crate: its exports, definitions and references.
#[derive(Default)]
struct Module {
    /// Names brought in by `use`, with the path of each; including `pub use`.
    uses: BTreeMap<String, Names>,
    /// Paths whose names are all brought in.
    globs: Vec<Names>,
    /// Names of items defined in the file.
    items: BTreeSet<String>,
    /// Names exported by `pub use`.
    exports: BTreeSet<String>,
    /// Every path from the crate's root that occurs in the file.
    paths: BTreeSet<Names>,
}

/// The modules of one crate by their paths.
type Modules = BTreeMap<Names, Module>;

/// Packages of the workspace that are libraries, with their folders.
fn packages() -> Vec<(String, PathBuf)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let folder = |package: &serde_json::Value| Path::new(&text(&package["manifest_path"])).with_file_name("src");
    packages
        .map(|package| (text(&package["name"]), folder(package)))
        .filter(|(_, src)| src.join("lib.rs").exists())
        .collect()
}

/// The files of a crate by the path of their module, without tests.
fn files(folder: &Path) -> BTreeMap<Names, PathBuf> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(inner) = folders.pop() {
        for entry in std::fs::read_dir(&inner).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let relative = path.strip_prefix(folder).expect("inside").with_extension("");
            let mut names: Names = relative.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            if names.iter().any(|name| name == "tests") || names == ["main"] {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            names.pop_if(|name| name == "mod" || name == "lib");
            if path.extension().is_some_and(|extension| extension == "rs") {
                files.insert(names, path);
            }
        }
    }
    files
}

/// The token as an identifier.
fn name(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

/// Whether the token is this sign.
fn is(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// Whether `::` begins at a token.
fn joins(tokens: &[TokenTree], at: usize) -> bool {
    is(tokens.get(at), ':') && is(tokens.get(at + 1), ':')
}

/// A path as written inside a module, resolved from the crate's root; `None` for one that leaves the crate or begins
/// with a local name.
fn absolute(module: &[String], written: &[String], children: &BTreeSet<String>) -> Option<Names> {
    let (first, rest) = written.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let parent = &module[..module.len().checked_sub(1)?];
            let again = rest.first().is_some_and(|next| next == "super");
            if again { absolute(parent, rest, &BTreeSet::new()) } else { Some([parent, rest].concat()) }
        }
        child if children.contains(child) => Some([module, written].concat()),
        _ => None,
    }
}

/// The leaves of a `use` tree: the name that each brings in (`*` for all) and the path as written.
fn leaves(tokens: &[TokenTree], before: &[String], found: &mut Vec<(String, Names)>) {
    for branch in tokens.split(|token| is(Some(token), ',')) {
        let (mut path, mut alias, mut at) = (before.to_vec(), None, 0);
        while at < branch.len() {
            match &branch[at] {
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    leaves(&inner, &path, found);
                    path.clear();
                }
                TokenTree::Ident(ident) if *ident == "as" => {
                    alias = name(branch.get(at + 1));
                    at += 1;
                }
                TokenTree::Ident(ident) => path.push(ident.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == '*' => alias = Some("*".to_owned()),
                _ => {}
            }
            at += 1;
        }
        path.pop_if(|last| last == "self" && !before.is_empty());
        if let Some(last) = path.last().cloned() {
            found.push((alias.unwrap_or(last), path));
        }
    }
}

/// Reads the tokens of a file or of a block into a module, except items under `#[cfg(test)]`.
fn read(tokens: TokenStream, path: &[String], children: &BTreeSet<String>, module: &mut Module, outside: bool) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let (mut at, mut public) = (0, false);
    while at < tokens.len() {
        if is(tokens.get(at), '#')
            && tokens.get(at + 1).is_some_and(|group| group.to_string().replace(' ', "") == "[cfg(test)]")
        {
            at += 2;
            let ends = |token: &TokenTree| {
                is(Some(token), ';')
                    || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
            };
            at += tokens[at..].iter().position(ends).map_or(tokens.len(), |length| length + 1);
            continue;
        }
        match &tokens[at] {
            TokenTree::Group(group) => read(group.stream(), path, children, module, false),
            TokenTree::Ident(ident) if *ident == "use" && outside => {
                let end = tokens[at..]
                    .iter()
                    .position(|token| is(Some(token), ';'))
                    .map_or(tokens.len(), |length| at + length);
                let mut found = Vec::new();
                leaves(&tokens[at + 1..end], &[], &mut found);
                for (name, written) in found {
                    if public {
                        module.exports.insert(name.clone());
                    }
                    let Some(target) = absolute(path, &written, children) else { continue };
                    module.paths.insert(target.clone());
                    if name == "*" {
                        module.globs.push(target);
                    } else {
                        module.uses.insert(name, target);
                    }
                }
                (at, public) = (end, false);
            }
            TokenTree::Ident(ident) => {
                let word = ident.to_string();
                if outside
                    && matches!(
                        word.as_str(),
                        "struct" | "enum" | "trait" | "type" | "fn" | "const" | "static" | "union"
                    )
                {
                    module.items.extend(name(tokens.get(at + 1)));
                }
                public =
                    word == "pub" || public && !matches!(word.as_str(), "struct" | "enum" | "fn" | "mod" | "const");
                if joins(&tokens, at + 1) {
                    let mut written = vec![word];
                    while joins(&tokens, at + 1) {
                        at += 3;
                        written.extend(name(tokens.get(at)));
                    }
                    module.paths.extend(absolute(path, &written, children));
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => public = false,
            _ => {}
        }
        at += 1;
    }
}

/// The modules of the crate in a folder.
fn modules(folder: &Path) -> Modules {
    let files = files(folder);
    let children = |path: &Names| -> BTreeSet<String> {
        files
            .keys()
            .filter(|other| other.len() == path.len() + 1 && other.starts_with(path))
            .map(|other| other[path.len()].clone())
            .collect()
    };
    let one = |(path, file): (&Names, &PathBuf)| {
        let text = std::fs::read_to_string(file).expect("a readable file");
        let mut module = Module::default();
        read(text.parse().expect("tokens of Rust"), path, &children(path), &mut module, true);
        (path.clone(), module)
    };
    files.iter().map(one).collect()
}

/// The module that defines the item of a path, through re-exports.
fn home(modules: &Modules, path: &[String], depth: usize) -> Names {
    let mut at = Names::new();
    for (index, name) in path.iter().enumerate() {
        let inner = [&at[..], std::slice::from_ref(name)].concat();
        if modules.contains_key(&inner) {
            at = inner;
            continue;
        }
        let Some(module) = modules.get(&at).filter(|_| depth < 8) else { return at };
        if module.items.contains(name) {
            return at;
        }
        if let Some(target) = module.uses.get(name).filter(|target| **target != path[..=index]) {
            return home(modules, &[target, &path[index + 1..]].concat(), depth + 1);
        }
        let defines = |glob: &&Names| {
            modules.get(*glob).is_some_and(|module| module.items.contains(name) || module.uses.contains_key(name))
        };
        return module
            .globs
            .iter()
            .find(defines)
            .map_or(at, |glob| home(modules, &[&glob[..], &path[index..]].concat(), depth + 1));
    }
    at
}

/// The cycles of siblings in a crate, a line for each edge in one.
fn circles(modules: &Modules) -> Vec<String> {
    type Arrows<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<String>>;
    let mut arrows: BTreeMap<&[String], Arrows> = BTreeMap::new();
    let homes: BTreeMap<&Names, Vec<(Names, &Names)>> = modules
        .iter()
        .map(|(path, module)| (path, module.paths.iter().map(|named| (home(modules, named, 0), named)).collect()))
        .collect();
    for (path, homes) in &homes {
        for (home, named) in homes {
            let shared = path.iter().zip(home).take_while(|(left, right)| left == right).count();
            if let (Some(from), Some(to)) = (path.get(shared), home.get(shared)) {
                let of = arrows.entry(&path[..shared]).or_default().entry((from, to)).or_default();
                of.insert(format!("{} uses {}", path.join("::"), named.join("::")));
            }
        }
    }
    let mut found = Vec::new();
    for (parent, arrows) in &arrows {
        let names: BTreeSet<&str> = arrows.keys().flat_map(|&(from, to)| [from, to]).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let index = |name| names.binary_search(name).expect("listed") as u32;
        let graph = Graph::<(), ()>::from_edges(arrows.keys().map(|(from, to)| (index(from), index(to))));
        for circle in tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1) {
            let circle: Vec<&str> = circle.into_iter().map(|node| names[node.index()]).collect();
            let mut text = format!("{} modules of {}::", circle.len(), parent.join("::"));
            for ((from, to), ties) in
                arrows.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to))
            {
                let _ = write!(text, "\n  {from} -> {to}: {}", ties.iter().cloned().collect::<Vec<_>>().join(", "));
            }
            found.push(text);
        }
    }
    found
}

#[test]
fn no_siblings_import_each_other_in_a_cycle() {
    let mut faults = String::new();
    for (package, folder) in packages() {
        for circle in circles(&modules(&folder)) {
            let _ = writeln!(faults, "{package}: {circle}");
        }
    }
    assert!(faults.is_empty(), "{faults}");
}

/// Tests the check: a cycle through a parent's re-export is found, one between parent and child is not a cycle.
#[test]
fn a_cycle_through_a_parent_is_found() {
    let texts = [
        ("", "pub use a::First; mod a; mod b; mod c;"),
        ("a", "use crate::b::Second; pub struct First(Second);"),
        ("b", "pub struct Second; #[cfg(test)] mod tests { use crate::c::Third; } fn f() { crate::First::new(); }"),
        ("c", "use super::b; mod d; pub struct Third;"),
        ("c::d", "use super::Third;"),
    ];
    let names = |path: &str| -> Names { path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect() };
    let mut modules = Modules::new();
    for (path, text) in texts {
        let children = texts
            .iter()
            .map(|(other, _)| names(other))
            .filter(|other| other.len() == names(path).len() + 1 && other.starts_with(&names(path)));
        let children = children.map(|mut other| other.pop().expect("a name")).collect();
        let mut module = Module::default();
        read(text.parse().expect("tokens"), &names(path), &children, &mut module, true);
        modules.insert(names(path), module);
    }
    let found = circles(&modules);
    assert_eq!(found, ["2 modules of ::\n  a -> b: a uses b::Second\n  b -> a: b uses First::new"]);
}

/// A re-export from another crate is the same item; two items of one name would confuse a reader.
#[test]
fn names_at_crate_roots_are_unique() {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (package, folder) in packages() {
        let mut modules = modules(&folder);
        let root = modules.remove(&Names::new()).expect("lib.rs");
        for name in root.exports.iter().filter(|name| root.uses.contains_key(*name)).chain(&root.items) {
            owners.entry(name.clone()).or_default().push(package.clone());
        }
    }
    assert!(owners.len() > 100, "the exports are where this test looks for them");
    owners.retain(|_, packages| packages.len() > 1);
    assert!(owners.is_empty(), "{owners:#?}");
}
