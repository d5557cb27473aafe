//! The parts of a `tokenizer.json` of Hugging Face that are read, and what of it is refused.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::pieces::{MARK, Pattern};
use super::preparation::{Normalizer, Preparation, Space};

/// What else to use.
pub(super) const CURE: &str = "use a BPE tokenizer of bytes, as those of gpt2, llama, mistral, gemma and qwen";

/// A `tokenizer.json`. How long texts are cut and filled up, and what is put around single ones, does not matter for packing.
#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    pub(super) added_tokens: Vec<AddedToken>,
    normalizer: Option<Map<String, Value>>,
    pre_tokenizer: Option<Map<String, Value>>,
    model: Map<String, Value>,
}

/// A token that is found in a text as it is.
#[derive(Deserialize)]
pub(super) struct AddedToken {
    pub(super) id: u32,
    pub(super) content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    /// Whether it is looked for after the text has been normalised.
    #[serde(default)]
    pub(super) normalized: bool,
    #[serde(default)]
    pub(super) special: bool,
}

/// The vocabulary and the pairs of a BPE model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bpe {
    #[serde(rename = "type")]
    _kind: Option<String>,
    dropout: Option<f64>,
    /// Of texts that no token spells, of which there are none where each byte is a token.
    #[serde(rename = "unk_token")]
    _unknown: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default, rename = "fuse_unk")]
    _fuse_unknown: bool,
    /// Whether texts are characters, and bytes where a character is no token.
    #[serde(default)]
    pub(super) byte_fallback: bool,
    /// Whether a piece that is a token is that token, whatever pairs say.
    #[serde(default)]
    pub(super) ignore_merges: bool,
    pub(super) vocab: HashMap<String, u32>,
    pub(super) merges: Vec<Pair>,
}

/// Two tokens that become one.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Pair {
    /// With a space between them.
    Joined(String),
    Apart(String, String),
}

impl Pair {
    /// Both tokens.
    pub(super) fn tokens(&self) -> Option<(&str, &str)> {
        match self {
            Pair::Joined(both) => both.split_once(' ').filter(|(_, second)| !second.contains(' ')),
            Pair::Apart(first, second) => Some((first, second)),
        }
    }
}

/// The value of a key that states a kind.
fn kind(of: &Map<String, Value>) -> &str {
    of.get("type").and_then(Value::as_str).unwrap_or("no kind")
}

/// Whether a key is true; `None` where it is not given.
fn given(of: &Map<String, Value>, key: &str) -> Result<Option<bool>, String> {
    match of.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(other) => Err(format!("sets {key} of a {} to {other}, and it is true or false: {CURE}", kind(of))),
    }
}

fn is_set(of: &Map<String, Value>, key: &str, default: bool) -> Result<bool, String> {
    Ok(given(of, key)?.unwrap_or(default))
}

/// The steps of a sequence under a key; `None` of another kind.
fn steps<'a>(of: &'a Map<String, Value>, key: &str) -> Result<Option<Vec<&'a Map<String, Value>>>, String> {
    if kind(of) != "Sequence" {
        return Ok(None);
    }
    let all = of.get(key).and_then(Value::as_array).and_then(|all| all.iter().map(Value::as_object).collect());
    all.map(Some).ok_or_else(|| format!("has a sequence whose {key} are no list of steps: {CURE}"))
}

impl File {
    /// The model, if it is BPE of a kind that is read.
    pub(super) fn bpe(&mut self) -> Result<Bpe, String> {
        // Files of early versions name no kind.
        let is_bpe =
            kind(&self.model) == "BPE" || !self.model.contains_key("type") && self.model.contains_key("merges");
        if !is_bpe {
            return Err(format!("is a tokenizer with a model of {}: {CURE}", kind(&self.model)));
        }
        let read = serde_json::from_value::<Bpe>(Value::Object(std::mem::take(&mut self.model)));
        let bpe = read.map_err(|error| format!("the model is not read: {error}: {CURE}"))?;
        let is_text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let refused = [
            ("dropout", bpe.dropout.is_some_and(|share| share != 0.0)),
            ("continuing_subword_prefix", is_text(&bpe.continuing_subword_prefix)),
            ("end_of_word_suffix", is_text(&bpe.end_of_word_suffix)),
        ];
        match refused.into_iter().find(|(_, refused)| *refused) {
            Some((key, _)) => Err(format!("sets {key} in its model, which is not read: {CURE}")),
            None => Ok(bpe),
        }
    }

    /// How texts are prepared, if that is known; `by_characters` where the model falls back to bytes.
    pub(super) fn preparation(&self, by_characters: bool) -> Result<Preparation, String> {
        let normalizer = self.normalizer.as_ref().map_or(Ok(Normalizer::None), normalizer)?;
        let steps: Vec<&Map<String, Value>> = match &self.pre_tokenizer {
            None => Vec::new(),
            Some(of) => steps(of, "pretokenizers")?.unwrap_or_else(|| vec![of]),
        };
        let (marks, pattern, space) = match (by_characters, steps.as_slice()) {
            (false, [.., last]) if kind(last) == "ByteLevel" => byte_level(&steps)?,
            (true, []) => (false, Pattern::Whole, Space::Never),
            (true, [last]) if kind(last) == "Metaspace" => metaspace(last)?,
            // Where no spaces are left it cuts nothing.
            (true, [last])
                if kind(last) == "Split"
                    && split_text(last) == Some(" ")
                    && !is_set(last, "invert", false)?
                    && normalizer.marks() =>
            {
                (false, Pattern::Whole, Space::Never)
            }
            (_, []) => return Err(format!("has no pre_tokenizer, so that tokens are no bytes: {CURE}")),
            (_, [.., last]) => {
                return Err(format!("has a pre_tokenizer {} that is not read beside its model: {CURE}", kind(last)));
            }
        };
        Ok(Preparation { normalizer, marks, pattern, space })
    }
}

/// The normalizer of a file.
fn normalizer(of: &Map<String, Value>) -> Result<Normalizer, String> {
    let is_mark = |of: &Map<String, Value>, key: &str| of.get(key).and_then(Value::as_str) == Some(MARK);
    let replaces =
        |of: &Map<String, Value>| kind(of) == "Replace" && split_text(of) == Some(" ") && is_mark(of, "content");
    let steps = steps(of, "normalizers")?.unwrap_or_default();
    match (kind(of), steps.as_slice()) {
        ("NFC", _) => Ok(Normalizer::Composes),
        ("Replace", _) if replaces(of) => Ok(Normalizer::Marks { prepends: false }),
        ("Sequence", []) => Ok(Normalizer::None),
        ("Sequence", [only]) => normalizer(only),
        ("Sequence", [first, last]) if kind(first) == "Prepend" && is_mark(first, "prepend") && replaces(last) => {
            Ok(Normalizer::Marks { prepends: true })
        }
        (other, _) => Err(format!("has a normalizer {other}, which is not read: {CURE}")),
    }
}

/// The steps of tokenizers whose tokens are bytes: they may cut by an expression before.
fn byte_level(steps: &[&Map<String, Value>]) -> Result<(bool, Pattern, Space), String> {
    let (before, last) = match steps {
        [last] => (None, last),
        [split, last] if kind(split) == "Split" => (Some(split), last),
        _ => return Err(format!("has a pre_tokenizer of {} steps that are not read: {CURE}", steps.len())),
    };
    let pattern = match (before, is_set(last, "use_regex", true)?) {
        (None, true) => Pattern::Gpt2,
        (None, false) => Pattern::Whole,
        (Some(split), false) => pattern(split)?,
        (Some(_), true) => return Err(format!("cuts texts by two expressions, which is not read: {CURE}")),
    };
    match is_set(last, "add_prefix_space", true)? {
        true if before.is_some() => {
            Err(format!("adds a space to each piece (add_prefix_space), which is not read: {CURE}"))
        }
        true => Ok((false, pattern, Space::Always)),
        false => Ok((false, pattern, Space::Never)),
    }
}

/// The step of tokenizers that mark spaces.
fn metaspace(of: &Map<String, Value>) -> Result<(bool, Pattern, Space), String> {
    if of.get("replacement").and_then(Value::as_str) != Some(MARK) {
        return Err(format!("marks spaces by another character than {MARK}, which is not read: {CURE}"));
    }
    // Files of early versions say it in another way too.
    let scheme = of.get("prepend_scheme").map_or(Some("always"), Value::as_str).unwrap_or("of no text");
    if given(of, "add_prefix_space")? == Some(false) && scheme != "never" {
        return Err(format!("has a prepend_scheme {scheme} beside add_prefix_space = false: state \"never\""));
    }
    let space = match scheme {
        "always" => Space::Always,
        "first" => Space::First,
        "never" => Space::Never,
        other => return Err(format!("has a prepend_scheme {other}, which is not read: {CURE}")),
    };
    Ok((true, if is_set(of, "split", true)? { Pattern::Marks } else { Pattern::Whole }, space))
}

/// The text, which is no expression, that a step looks for.
fn split_text(of: &Map<String, Value>) -> Option<&str> {
    of.get("pattern").and_then(|pattern| pattern.get("String")).and_then(Value::as_str)
}

/// The pattern of a step that cuts by an expression.
fn pattern(split: &Map<String, Value>) -> Result<Pattern, String> {
    let expression = split.get("pattern").and_then(|pattern| pattern.get("Regex")).and_then(Value::as_str);
    let is_plain =
        split.get("behavior").and_then(Value::as_str) == Some("Isolated") && !is_set(split, "invert", false)?;
    expression.filter(|_| is_plain).and_then(Pattern::of).ok_or_else(|| {
        let shown = expression.unwrap_or("no regular expression");
        format!("cuts texts by {shown}, which is none of the known expressions: {CURE}")
    })
}

impl AddedToken {
    /// Refuses a token that takes spaces around it or wants them.
    pub(super) fn check(&self) -> Result<(), String> {
        let asks = [("single_word", self.single_word), ("lstrip", self.lstrip), ("rstrip", self.rstrip)];
        match asks.into_iter().find(|(_, asked)| *asked) {
            Some((key, _)) => Err(format!("sets {key} of the token {:?}, which is not read: {CURE}", self.content)),
            None => Ok(()),
        }
    }
}
