//! `Values`: what a file or a command line of another framework states, as text by dotted keys.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lockstep_topology::{DESCRIPTION, InputError, read_text};
use saphyr::{LoadableYamlNode, Scalar, Yaml};

/// Deepest nesting of a file: configurations have three or four levels.
const DEPTH: usize = 16;

/// Values by key: `parallelism.tensor_parallel_degree`, and which of them have been read. Lists are joined with commas, what is null is
/// left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    of: BTreeMap<String, String>,
    read: RefCell<BTreeSet<String>>,
}

impl Values {
    /// Of a `.json`, `.toml`, `.yaml` or `.yml` file.
    ///
    /// # Errors
    /// What cannot be read, at its line where the format gives one.
    pub(crate) fn of_file(path: &Path) -> Result<Values, InputError> {
        let name = path.display().to_string();
        let text = read_text(path, DESCRIPTION).map_err(|error| {
            InputError::new(name.clone(), "", error.with_cure("name a configuration of another framework"))
        })?;
        let mut values = Values::default();
        let wrong = |message: String| InputError::new(name.clone(), "", message);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => {
                let of = serde_json::from_str(&text).map_err(|error| wrong(format!("is not JSON: {error}")))?;
                values.add_json("", &of);
            }
            Some("toml") => {
                let of: toml::Table = text
                    .parse()
                    .map_err(|error: toml::de::Error| wrong(format!("is not TOML: {}", error.message())))?;
                let of = serde_json::to_value(of).map_err(|error| wrong(format!("is not TOML: {error}")))?;
                values.add_json("", &of);
            }
            Some("yaml" | "yml") => {
                if is_deep(&text) {
                    return Err(wrong(format!("is nested more than {DEPTH} deep")));
                }
                let all = Yaml::load_from_str(&text).map_err(|error| wrong(format!("is not YAML: {error}")))?;
                let [of] = &all[..] else { return Err(wrong(format!("must be one document, and has {}", all.len()))) };
                values.add_yaml(("", 0), of).map_err(wrong)?;
            }
            _ => return Err(wrong("must be .json, .toml, .yaml or .yml".to_owned())),
        }
        match values.of.is_empty() {
            true => Err(wrong("states nothing: it must be a mapping of keys to values".to_owned())),
            false => Ok(values),
        }
    }

    /// Of words such as `--tensor-model-parallel-size 8 --bf16`, by their names without hyphens.
    ///
    /// # Errors
    /// A word that follows no flag.
    pub(crate) fn of_words(text: &str) -> Result<Values, InputError> {
        let mut values = Values::default();
        let mut flag: Option<String> = None;
        // Continued lines of a script are one command line.
        for word in text.split_whitespace().filter(|word| *word != "\\") {
            let word = word.trim_matches(['"', '\'']);
            let is_flag = word.strip_prefix("--").filter(|name| name.starts_with(|c: char| c.is_alphabetic()));
            match (is_flag, &flag) {
                (Some(name), _) => {
                    let (name, value) = name.split_once('=').map_or((name, "true"), |(name, value)| (name, value));
                    let name = name.replace('_', "-");
                    values.of.insert(name.clone(), value.to_owned());
                    flag = Some(name);
                }
                (None, Some(name)) => {
                    let value = values.of.entry(name.clone()).or_default();
                    // Some flags take several words.
                    *value = if value == "true" { word.to_owned() } else { format!("{value},{word}") };
                }
                (None, None) => {
                    return Err(InputError::flag("from_megatron", word, "must be a flag, with two hyphens before it"));
                }
            }
        }
        Ok(values)
    }

    /// A value, which is read then.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let value = self.of.get(key)?;
        self.mark(key);
        Some(value)
    }

    /// The first of these keys that is stated; all are read then.
    pub(crate) fn first(&self, keys: &[&str]) -> Option<&str> {
        keys.iter().map(|key| self.get(key)).fold(None, Option::or)
    }

    /// Whether a key is there and not false, zero, none or empty.
    pub(crate) fn is_on(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !is_off(value))
    }

    /// All of them, whether read or not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.of.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Says that a key has been read.
    pub(crate) fn mark(&self, key: &str) {
        self.read.borrow_mut().insert(key.to_owned());
    }

    /// Those that nothing has read.
    pub(crate) fn unread(&self) -> Vec<(&str, &str)> {
        let read = self.read.borrow();
        self.iter().filter(|(key, _)| !read.contains(*key)).collect()
    }

    /// Adds values of another file where none is stated, each behind `prefix`.
    pub(crate) fn add(&mut self, prefix: &str, other: &Values) {
        for (key, value) in other.iter() {
            self.of.entry(format!("{prefix}{key}")).or_insert_with(|| value.to_owned());
        }
    }

    /// The same with hyphens for underscores in keys.
    pub(crate) fn hyphenated(&self) -> Values {
        let of = self.of.iter().map(|(key, value)| (key.replace('_', "-"), value.clone())).collect();
        Values { of, ..Values::default() }
    }

    /// Takes a key out.
    pub(crate) fn remove(&mut self, key: &str) -> Option<String> {
        self.of.remove(key)
    }

    fn insert(&mut self, key: &str, value: String) {
        if !key.is_empty() {
            self.of.insert(key.to_owned(), value);
        }
    }

    fn add_json(&mut self, key: &str, of: &serde_json::Value) {
        use serde_json::Value;
        match of {
            Value::Null => {}
            Value::Bool(of) => self.insert(key, of.to_string()),
            Value::Number(of) => self.insert(key, of.to_string()),
            Value::String(of) => self.insert(key, of.clone()),
            Value::Array(all) if all.iter().all(|of| !of.is_object() && !of.is_array()) => {
                let words: Vec<String> =
                    all.iter().map(|of| of.as_str().map_or(of.to_string(), str::to_owned)).collect();
                self.insert(key, words.join(","));
            }
            Value::Array(all) => {
                all.iter().enumerate().for_each(|(at, of)| self.add_json(&below(key, &at.to_string()), of));
            }
            Value::Object(all) => all.iter().for_each(|(name, of)| self.add_json(&below(key, name), of)),
        }
    }

    fn add_yaml(&mut self, (key, depth): (&str, usize), of: &Yaml<'_>) -> Result<(), String> {
        if depth > DEPTH {
            return Err(format!("{key}: is nested more than {DEPTH} deep"));
        }
        match of {
            Yaml::Mapping(all) => {
                for (name, of) in all {
                    let name = scalar(name).ok_or_else(|| format!("{key}: has a key that is no word"))?;
                    self.add_yaml((&below(key, &name), depth + 1), of)?;
                }
            }
            Yaml::Sequence(all) => match all.iter().map(scalar).collect::<Option<Vec<String>>>() {
                Some(words) => self.insert(key, words.join(",")),
                None => {
                    for (at, of) in all.iter().enumerate() {
                        self.add_yaml((&below(key, &at.to_string()), depth + 1), of)?;
                    }
                }
            },
            Yaml::Value(Scalar::Null) => {}
            of => {
                let value =
                    scalar(of).ok_or_else(|| format!("{key}: is neither a value, nor a list, nor a mapping"))?;
                self.insert(key, value);
            }
        }
        Ok(())
    }
}

/// Whether a value switches off what it belongs to.
pub(crate) fn is_off(value: &str) -> bool {
    ["", "false", "False", "no", "0", "0.0", "none", "None", "null"].contains(&value)
}

/// Whether YAML text may be nested deeper than any configuration, by its brackets, its indentation and lists in lists; the parser
/// calls itself at each level.
fn is_deep(text: &str) -> bool {
    let mut open = 0usize;
    let brackets = text.chars().any(|c| {
        match c {
            '[' | '{' => open += 1,
            ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        open > 8 * DEPTH
    });
    let start = |line: &str| line.chars().take_while(|c| [' ', '-', '?', '\t'].contains(c)).count();
    brackets || text.lines().any(|line| start(line) > 16 * DEPTH)
}

fn below(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

fn scalar(of: &Yaml<'_>) -> Option<String> {
    match of {
        Yaml::Value(Scalar::Boolean(of)) => Some(of.to_string()),
        Yaml::Value(Scalar::Integer(of)) => Some(of.to_string()),
        Yaml::Value(Scalar::FloatingPoint(of)) => Some(of.to_string()),
        Yaml::Value(Scalar::String(of)) => Some(of.to_string()),
        _ => None,
    }
}
