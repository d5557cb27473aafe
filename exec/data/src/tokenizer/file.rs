//! The parts of a `tokenizer.json` of Hugging Face that are read, and what of it is refused.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::pieces::Pattern;

/// What else to use.
pub(super) const CURE: &str = "use a byte-level BPE tokenizer, as those of gpt2, llama 3 and qwen";

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
    #[serde(default)]
    byte_fallback: bool,
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

/// How a text is prepared before its tokens are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Preparation {
    /// Whether characters are composed (NFC) before.
    pub(super) composes: bool,
    pub(super) pattern: Pattern,
    /// Whether a text that does not begin with a space is given one.
    pub(super) add_space: bool,
}

/// The value of a key that states a kind.
fn kind(of: &Map<String, Value>) -> &str {
    of.get("type").and_then(Value::as_str).unwrap_or("no kind")
}

fn is_set(of: &Map<String, Value>, key: &str, default: bool) -> bool {
    of.get(key).and_then(Value::as_bool).unwrap_or(default)
}

impl File {
    /// The model, if it is BPE of a kind that is read.
    pub(super) fn bpe(&self) -> Result<Bpe, String> {
        // Files of early versions name no kind.
        let is_bpe =
            kind(&self.model) == "BPE" || !self.model.contains_key("type") && self.model.contains_key("merges");
        if !is_bpe {
            return Err(format!("is a tokenizer with a model of {}: {CURE}", kind(&self.model)));
        }
        let read = serde_json::from_value::<Bpe>(Value::Object(self.model.clone()));
        let bpe = read.map_err(|error| format!("the model is not read: {error}: {CURE}"))?;
        let is_text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let refused = [
            ("dropout", bpe.dropout.is_some_and(|share| share != 0.0)),
            ("continuing_subword_prefix", is_text(&bpe.continuing_subword_prefix)),
            ("end_of_word_suffix", is_text(&bpe.end_of_word_suffix)),
            ("byte_fallback", bpe.byte_fallback),
        ];
        match refused.into_iter().find(|(_, refused)| *refused) {
            Some((key, _)) => Err(format!("sets {key} in its model, which is not read: {CURE}")),
            None => Ok(bpe),
        }
    }

    /// How texts are prepared, if that is known.
    pub(super) fn preparation(&self) -> Result<Preparation, String> {
        let composes = match self.normalizer.as_ref().map(kind) {
            None => false,
            Some("NFC") => true,
            Some(other) => return Err(format!("has a normalizer {other}, which is not read: {CURE}")),
        };
        let Some(of) = &self.pre_tokenizer else {
            return Err(format!("has no pre_tokenizer, so that tokens are no bytes: {CURE}"));
        };
        let steps: Vec<&Map<String, Value>> = match (kind(of), of.get("pretokenizers").and_then(Value::as_array)) {
            ("Sequence", Some(steps)) => steps.iter().filter_map(Value::as_object).collect(),
            _ => vec![of],
        };
        let (before, last) = match steps.as_slice() {
            [last] => (None, last),
            [split, last] if kind(split) == "Split" => (Some(split), last),
            _ => return Err(format!("has a pre_tokenizer {} of steps that are not read: {CURE}", kind(of))),
        };
        if kind(last) != "ByteLevel" {
            return Err(format!("has a pre_tokenizer {}, so that tokens are no bytes: {CURE}", kind(last)));
        }
        let pattern = match (before, is_set(last, "use_regex", true)) {
            (None, true) => Pattern::Gpt2,
            (None, false) => Pattern::Whole,
            (Some(split), false) => pattern(split)?,
            (Some(_), true) => return Err(format!("cuts texts by two expressions, which is not read: {CURE}")),
        };
        let add_space = is_set(last, "add_prefix_space", true);
        if add_space && before.is_some() {
            return Err(format!("adds a space to each piece (add_prefix_space), which is not read: {CURE}"));
        }
        Ok(Preparation { composes, pattern, add_space })
    }
}

/// The pattern of a step that cuts by an expression.
fn pattern(split: &Map<String, Value>) -> Result<Pattern, String> {
    let expression = split.get("pattern").and_then(|pattern| pattern.get("Regex")).and_then(Value::as_str);
    let is_plain = split.get("behavior").and_then(Value::as_str) == Some("Isolated") && !is_set(split, "invert", false);
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
