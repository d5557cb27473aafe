//! Hashes settings in a canonical form, so that every version distinguishes rows and runs in the same way.
//!
//! The form is one line `key = value` for each setting, sorted by key. Values are spelt as the experiment's file spells
//! them; sizes are bytes, times picoseconds, and numbers the shortest decimals that read back as the same number.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use lockstep_models::Model;
use sha2::{Digest, Sha256};

/// Hexadecimal digits of a hash that a row holds.
const DIGITS: usize = 12;

/// Settings by key.
#[derive(Debug, Clone, Default)]
pub struct Identity(BTreeMap<String, String>);

impl Identity {
    /// Adds a setting; a key has one value.
    pub fn set(&mut self, key: &str, value: impl Display) {
        let before = self.0.insert(key.to_owned(), value.to_string());
        debug_assert!(before.is_none(), "{key} is set twice");
    }

    /// Adds a setting where it has a value.
    pub fn set_some(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Adds a setting that is a list.
    pub fn set_list<T: Display>(&mut self, key: &str, values: impl IntoIterator<Item = T>) {
        let items: Vec<String> = values.into_iter().map(|value| quoted(&value)).collect();
        self.set(key, format!("[{}]", items.join(", ")));
    }

    /// Adds the layers of a model: each with its name, its settings and the names of its inputs.
    pub fn set_model(&mut self, key: &str, model: &Model) {
        let layers = model.layers().iter().map(|node| {
            let inputs = node.inputs.iter().map(|input| quoted(&model.layers()[input.index()].name));
            let inputs = inputs.collect::<Vec<_>>().join(", ");
            format!(
                "name = {}, {}, inputs = [{inputs}], loss_weight = {}",
                quoted(&node.name),
                node.layer,
                node.loss_weight
            )
        });
        self.set_list(key, layers);
    }

    /// The text that is hashed.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.0 {
            let _ = writeln!(text, "{key} = {}", quoted(value));
        }
        text
    }

    /// The first digits of the SHA-256 of [`Identity::text`].
    pub fn hash(&self) -> String {
        let hash = Sha256::digest(self.text().as_bytes());
        hash.iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A text in quotation marks, its own escaped, so that two lists of texts never have the same spelling.
fn quoted(value: &impl Display) -> String {
    serde_json::Value::String(value.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_settings_does_not_matter_and_their_values_do() {
        let of = |settings: &[(&str, &str)]| {
            let mut identity = Identity::default();
            settings.iter().for_each(|(key, value)| identity.set(key, value));
            identity.hash()
        };
        assert_eq!(of(&[("a", "1"), ("b", "2")]), of(&[("b", "2"), ("a", "1")]));
        assert_ne!(of(&[("a", "1"), ("b", "2")]), of(&[("a", "2"), ("b", "1")]));
        assert_ne!(of(&[("a", "1\"\nb = \"2")]), of(&[("a", "1"), ("b", "2")]));
    }

    #[test]
    fn lists_with_different_items_differ() {
        let of = |items: &[&str]| {
            let mut identity = Identity::default();
            identity.set_list("list", items);
            identity.text()
        };
        assert_eq!(of(&["a", "b"]), "list = \"[\\\"a\\\", \\\"b\\\"]\"\n");
        assert_ne!(of(&["a", "b"]), of(&["a\", \"b"]));
    }

    /// The hash of a known model: changing its spelling would separate rows of earlier versions from their sweeps.
    #[test]
    fn the_spelling_of_a_model_does_not_change() {
        let mut identity = Identity::default();
        identity.set_model("model", &lockstep_readers::load_model("lenet").expect("in the zoo"));
        assert!(identity.text().contains("kind = \\\\\\\"max_pool\\\\\\\", kernel = [2, 2]"), "{}", identity.text());
        assert_eq!(identity.hash(), "c29ff23f8841");
    }
}
