//! Reads a model file: its sizes and variants, its input, and its layers.

use lockstep_topology::document::{Document, Entry, SourceText};
use lockstep_topology::{Bytes, DESCRIPTION, InputError};

use super::expression::{Arguments, size};
use super::{block, decoder, sizes};
use lockstep_models::Model;
use lockstep_models::{Layer, Shape};

/// The key that each layer has.
const KIND: &str = "kind";

/// The keys of a model.
const KEYS: &[&str] = &["name", "source", "input", "size", "variant", "block", "layer", "decoder"];

/// Those of a model that is described as a decoder.
const OF_DECODER: &[&str] = &["name", "source", "decoder"];

/// The model that a text describes, with the variants and sizes of `settings` (`ungrouped,image=64`; empty for none).
pub(super) fn parse(file: &str, text: &str, settings: &str) -> Result<Model, InputError> {
    let source = SourceText { file, text };
    let document = document(source)?;
    let root = document.table("a model", KEYS)?;
    let name = root.need("name", "\"lenet\"")?.text()?;
    let origin = root.optional("source", Entry::text)?.unwrap_or("");
    let own = name.to_owned();
    let (name, list) = if settings.is_empty() {
        (name.to_owned(), Vec::new())
    } else {
        (format!("{name}:{settings}"), settings.split(',').map(str::trim).collect())
    };
    if let Some(entry) = root.get("decoder") {
        root.allow("a decoder's model", OF_DECODER)?;
        let table = entry.table()?;
        let mut decoder = decoder::parse(&table)?;
        let stated = table.get("positions").map(|_| decoder.positions);
        let notes = decoder::override_with(&mut decoder, settings, &own, stated)?;
        return Ok(decoder::build(&decoder, (name, origin.to_owned()), &entry.place())?.with_notes(notes));
    }
    let sizes = sizes::resolve(&root, &name, &list)?;
    let entry = root.need("input", "[1, 28, 28], the shape of a sample")?;
    let drafts = block::unfold(&root, input(&entry, &sizes.values)?, entry.place(), &sizes.values)?;
    Model::build(name, sizes.source.unwrap_or(origin).to_owned(), drafts)
}

/// The names of the variants that a text describes.
pub(super) fn variants(file: &str, text: &str) -> Result<Vec<String>, InputError> {
    let document = document(SourceText { file, text })?;
    let names = sizes::variants(&document.table("a model", KEYS)?)?;
    Ok(names.into_iter().map(str::to_owned).collect())
}

fn document(source: SourceText<'_>) -> Result<Document<'_>, InputError> {
    // Counting a list of layers is fast, parsing it slow.
    let mut headers = source.text.match_indices("[[layer]]").filter(|(at, _)| source.text[..*at].ends_with('\n'));
    if let Some((at, header)) = headers.nth(block::MAX_LAYERS) {
        return Err(source.error(at..at + header.len(), block::too_many()));
    }
    // In one line, layers of blocks and variants are counted too.
    let is_key = |at: &usize| source.text[at + KIND.len()..].trim_start_matches([' ', '\t']).starts_with('=');
    let mut kinds = source.text.match_indices(KIND).map(|(at, _)| at).filter(is_key);
    if let Some(at) = kinds.nth(4 * block::MAX_LAYERS) {
        return Err(source.error(at..at + KIND.len(), block::too_many()));
    }
    if source.text.len() as u64 > DESCRIPTION.0 {
        let length = Bytes(source.text.len() as u64);
        let message =
            format!("the description takes {length}, and {DESCRIPTION} are read: repeat layers in a [[block]]");
        return Err(InputError::new(source.file, "", message));
    }
    source.parse()
}

/// `[channels, height, width]`, or `{ positions = …, tokens = … }`.
fn input(entry: &Entry<'_>, sizes: &Arguments) -> Result<Layer, InputError> {
    if let Some(table) = entry.as_table() {
        table.allow("input", &["positions", "tokens"])?;
        let of = |key, example| size(&table.need(key, example)?, sizes);
        let positions = of("positions", "128, the tokens of a sample")?;
        let layer = Layer::input_of_tokens(positions, of("tokens", "50257, the size of the vocabulary")?);
        layer.output_shape(&[]).map_err(|message| entry.error(message))?;
        if layer.tokens() < Some(2) {
            return Err(entry.error("tokens must be at least 2, the size of the vocabulary"));
        }
        return Ok(layer);
    }
    let items = entry.list().filter(|items| items.len() == 3);
    let Some(items) = items else {
        return Err(entry.error("must be three sizes, [channels, height, width]; a vector of n features is [n, 1, 1]"));
    };
    let side = |index: usize| size(&items[index], sizes);
    let layer = Layer::input(Shape::of_image(side(0)?, side(1)?, side(2)?));
    layer.output_shape(&[]).map_err(|message| entry.error(message))?;
    Ok(layer)
}
