//! `Inputs`: the files and folders that a command reads, as far as its flags and the files that these name say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lockstep_report::output::file_identity;
use lockstep_topology::{Bytes, DESCRIPTION, read_text};

/// Ends of names of files that name further files.
const DESCRIPTIONS: [&str; 2] = ["toml", "prototxt"];
/// Experiments name models, models may name networks; deeper chains do not exist.
const DEPTH: u32 = 4;
/// Folders within folders that are searched, as deep as readers of data sets go and two more.
const FOLDERS: u32 = 4;

/// A file, whatever its names: the device and the number on it.
type Identity = (u64, u64);

/// What a command reads.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    /// Each file, with what names it.
    files: Vec<(String, Identity)>,
    /// Each folder, without links, with what names it.
    folders: Vec<(String, PathBuf)>,
    seen: BTreeSet<Identity>,
}

impl Inputs {
    /// Adds what `value` of `by`, a flag, may name. It may be a name that is no file; a folder counts if `is_path`.
    pub(super) fn add(&mut self, by: &str, value: &Path, is_path: bool) {
        self.add_below(by, value, is_path, DEPTH);
    }

    fn add_below(&mut self, by: &str, value: &Path, is_path: bool, depth: u32) {
        let whole = [value.to_owned()];
        for path in whole.into_iter().chain(value.to_str().map(parts).unwrap_or_default()) {
            let Ok(found) = fs::metadata(&path) else { continue };
            if found.is_dir() && is_path {
                self.folders.extend(path.canonicalize().ok().map(|folder| (by.to_owned(), folder)));
            }
            if !found.is_file() || !self.seen.insert(file_identity(&found)) {
                continue;
            }
            self.files.push((by.to_owned(), file_identity(&found)));
            let describes = path.extension().is_some_and(|own| DESCRIPTIONS.iter().any(|ending| own == *ending));
            if describes && depth > 0 && found.len() <= DESCRIPTION.0 {
                self.add_named_in(&path, depth - 1);
            }
        }
    }

    /// Adds what the file at `path` names, relative to the present folder or to its own.
    fn add_named_in(&mut self, path: &Path, depth: u32) {
        // A pipe can be read once, by the command; it also reports a file that cannot be read.
        if !path.is_file() {
            return;
        }
        let Ok(text) = read_text(path, Bytes(DESCRIPTION.0)) else { return };
        let by = path.display().to_string();
        for (key, value) in strings(&text) {
            self.add_below(&by, Path::new(&value), key == "data", depth);
            if let Some(own) = path.parent().filter(|own| !own.as_os_str().is_empty()) {
                self.add_below(&by, &own.join(&value), key == "data", depth);
            }
        }
    }

    /// What names a folder in which `file`, whose folder is written without links, lies.
    pub(super) fn folder_of(&self, file: &Path) -> Option<&str> {
        self.folders.iter().find(|(_, folder)| file.starts_with(folder)).map(|(by, _)| by.as_str())
    }

    /// What reads the existing file `own`, itself or within a folder. In folders, names that are `no_data` do not
    /// count.
    pub(super) fn reader_of(&self, own: Identity, no_data: impl Fn(&str) -> bool) -> Option<String> {
        if let Some((by, _)) = self.files.iter().find(|(_, file)| *file == own) {
            return Some(by.clone());
        }
        let holds = |(_, folder): &&(String, PathBuf)| holds(folder, own, &no_data, FOLDERS);
        self.folders.iter().find(holds).map(|(by, _)| by.clone())
    }
}

/// Whether a file in `folder`, or in one below, is the file `own`, also by a link.
fn holds(folder: &Path, own: Identity, no_data: &impl Fn(&str) -> bool, depth: u32) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let Ok(found) = fs::metadata(entry.path()) else { return false };
        if found.is_dir() {
            return depth > 0 && holds(&entry.path(), own, no_data, depth - 1);
        }
        file_identity(&found) == own && !no_data(&entry.file_name().to_string_lossy().to_lowercase())
    })
}

/// The paths that a value may hold besides itself: of lists (`a,b`), of pairs (`TRAIN+HELD_OUT`), and before settings
/// (`model.onnx:input=1x28x28`).
fn parts(value: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for separator in [',', '+'] {
        for (at, _) in value.match_indices(separator).chain([(value.len(), "")]) {
            let (before, after) = (&value[..at], value.get(at + 1..).unwrap_or(""));
            found.extend([before, after].into_iter().chain(before.rsplit(separator).next()));
        }
    }
    let settings: Vec<&str> =
        found.iter().flat_map(|part| part.match_indices(':').map(|(at, _)| &part[..at])).collect();
    found.extend(settings);
    found.into_iter().filter(|part| !part.is_empty()).map(PathBuf::from).collect()
}

/// The quoted strings of a description with the key before each; comments are passed over.
fn strings(text: &str) -> Vec<(String, String)> {
    let (mut found, mut key) = (Vec::new(), String::new());
    for line in text.lines() {
        let mut rest = line;
        while let Some(at) = rest.find(['"', '\'', '#']) {
            let (before, quote) = (&rest[..at], &rest[at..at + 1]);
            key = key_in(before).map_or(key, str::to_owned);
            let inside = &rest[at + 1..];
            // A comment goes to the end of the line.
            let Some(end) = end_of(inside, quote).filter(|_| quote != "#") else {
                rest = "";
                break;
            };
            let value = if quote == "\"" { unescaped(&inside[..end]) } else { inside[..end].to_owned() };
            found.push((key.clone(), value));
            rest = &inside[end + 1..];
        }
        // The values of a list may begin on the next line.
        key = key_in(rest).map_or(key, str::to_owned);
    }
    found
}

/// Where the string that begins `inside` ends: at its quote, behind no backslash where it has escapes.
fn end_of(inside: &str, quote: &str) -> Option<usize> {
    let mut escaped = false;
    let ends = |(_, c): &(usize, char)| {
        let ends = !escaped && quote.starts_with(*c);
        escaped = !escaped && *c == '\\' && quote == "\"";
        ends
    };
    inside.char_indices().find(ends).map(|(at, _)| at)
}

/// A basic string of TOML without its escapes; an escape of a control character is left as it is.
fn unescaped(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let digits = match after.chars().next() {
            Some('u') => after.get(1..5),
            Some('U') => after.get(1..9),
            _ => None,
        };
        let stated = digits.and_then(|digits| char::from_u32(u32::from_str_radix(digits, 16).ok()?));
        let (c, used) = match (stated, digits, after.chars().next()) {
            (Some(c), Some(digits), _) => (c, 1 + digits.len()),
            (_, _, Some(c @ ('"' | '\\'))) => (c, 1),
            _ => ('\\', 0),
        };
        plain.push(c);
        rest = &after[used..];
    }
    plain + rest
}

/// The last key in the text before a value: `KEY =`, `KEY: `, also before the bracket of a list.
fn key_in(before: &str) -> Option<&str> {
    let word = before.trim_end_matches([' ', '\t', '=', ':', '[']).rsplit([' ', '\t', ',', '{', ']', '}']).next()?;
    Some(word).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_lists_pairs_and_before_settings() {
        let has = |value: &str, path: &str| parts(value).contains(&PathBuf::from(path));
        assert!(has("a.toml,b.toml", "a.toml") && has("a.toml,b.toml", "b.toml") && has("a,b,c", "b"));
        assert!(has("t.pack+h.pack:4+1", "t.pack") && has("t.pack+h.pack:4+1", "h.pack"));
        assert!(has("net.onnx:image=64", "net.onnx") && has("a:b.pack:4+1", "a:b.pack"));
    }

    #[test]
    fn strings_are_found_with_their_keys() {
        let text =
            "model = \"m.toml\" # \"no\"\ndata='d'\n[sweep]\ncluster = [\n  \"a\", 'b',\n]\nnet: \"n.prototxt\"\n";
        let found: Vec<(String, String)> = strings(text);
        let found: Vec<(&str, &str)> = found.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let escaped = r#"model = "m\u002etoml\U00000041 \"b\" \\ c\n", data = "é""#;
        let all: Vec<String> = strings(escaped).into_iter().map(|(key, value)| key + " " + &value).collect();
        assert_eq!(all, [r#"model m.tomlA "b" \ c\n"#, "data é"]);
        let of_net = [("cluster", "a"), ("cluster", "b"), ("net", "n.prototxt")];
        assert_eq!(found, [&[("model", "m.toml"), ("data", "d")][..], &of_net].concat());
    }
}
