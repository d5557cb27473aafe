//! Checks that files have the tensors of a model, and reads these, one at a time, into its parameters.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_models::{InitialValues, Model};
use lockstep_topology::InputError;

use super::layout::{Part, Tensor, WeightLayout};
use super::names::is_no_weight;
use super::shard::{Format, Shard, Stored, bf16, f16, shown};

/// Bytes of two tensors that are compared at a time.
const COMPARED: u64 = 1 << 20;

/// The weights of a model in files whose tensors have been checked, but not yet their numbers.
#[derive(Debug)]
pub struct StoredWeights {
    shards: Vec<Shard>,
    sources: Vec<Source>,
    elements: u64,
}

/// A tensor in a file.
#[derive(Debug)]
struct Source {
    shard: usize,
    /// Its name there.
    name: String,
    stored: Stored,
    format: Format,
    tensor: Tensor,
}

/// The tensors of all files by name.
type Found<'a> = BTreeMap<&'a str, (usize, &'a Stored)>;

impl StoredWeights {
    /// The weights of `layout` in `shards`, and a text that says what was found at `path`.
    pub(super) fn of(
        path: &str,
        shards: Vec<Shard>,
        layout: WeightLayout,
    ) -> Result<(StoredWeights, String), InputError> {
        let found = found(&shards)?;
        let names = NamesThere::of(&layout, &found);
        let (mut sources, mut taken, mut absent) = (Vec::new(), BTreeSet::new(), Vec::new());
        for tensor in &layout.tensors {
            let name = names.of_tensor(&tensor.name);
            match found.get_key_value(&*name) {
                None => absent.push((name, tensor)),
                Some((there, (shard, stored))) => {
                    taken.insert(*there);
                    sources.push(source(&shards, (*shard, stored), name, tensor)?);
                }
            }
        }
        let rest: Vec<&str> = found.keys().copied().filter(|name| !taken.contains(name)).collect();
        if let Some((name, tensor)) = absent.first() {
            return Err(lacks(path, (name, tensor), absent.len() - 1, &rest, &layout));
        }
        let tied = layout.tied.as_ref().map(|(head, embedding)| [names.of_tensor(head), names.of_tensor(embedding)]);
        let is_tied = |name: &str| tied.as_ref().is_some_and(|[head, _]| *head == name);
        let strange: Vec<&str> = rest.iter().copied().filter(|name| !is_no_weight(name) && !is_tied(name)).collect();
        if let Some(first) = strange.first() {
            let file = &shards[found[first].0].file;
            let more = and_more(strange.len() - 1);
            let message = format!(
                "is of no layer of the model{more}: give the model whose weights these are, such as the \
                                   config.json beside them"
            );
            return Err(InputError::new(&**file, format!("tensor \"{first}\""), message));
        }
        if let Some([head, embedding]) = &tied
            && let Some(head_there) = found.get(&**head)
        {
            check_tied(&shards, (head, *head_there), found[&**embedding])?;
        }
        let summary = summary(path, &sources);
        let elements = layout.elements;
        Ok((StoredWeights { sources, elements, shards }, summary))
    }
}

/// The tensors of all files.
fn found(shards: &[Shard]) -> Result<Found<'_>, InputError> {
    let mut found = Found::new();
    for (shard, of) in shards.iter().enumerate() {
        for (name, stored) in &of.tensors {
            if let Some((other, _)) = found.insert(name, (shard, stored)) {
                let message = format!("is in {} too: leave out one of the files", shards[other].file);
                return Err(InputError::new(&*of.file, format!("tensor \"{name}\""), message));
            }
        }
    }
    Ok(found)
}

/// How names in files differ from those of an architecture.
struct NamesThere {
    /// The beginning that they leave out.
    without: Option<&'static str>,
    /// The layer of scores, and its name there.
    head: Option<(String, String)>,
}

impl NamesThere {
    fn of(layout: &WeightLayout, found: &Found<'_>) -> NamesThere {
        let names = layout.names;
        let has_base = found.keys().any(|name| name.starts_with(names.base));
        let own = names.rows(false).find(|row| row.0 == [super::HEAD]).map(|row| format!("{}.weight", row.1));
        let other = names.other_head.map(|other| format!("{other}.weight"));
        let head = own.zip(other).filter(|(own, other)| !found.contains_key(&**own) && found.contains_key(&**other));
        NamesThere { without: (!has_base).then_some(names.base), head }
    }

    /// The name that a tensor has there.
    fn of_tensor(&self, name: &str) -> String {
        match (&self.head, self.without.and_then(|base| name.strip_prefix(base))) {
            (Some((own, other)), _) if own == name => other.clone(),
            (_, Some(rest)) => rest.to_owned(),
            (_, None) => name.to_owned(),
        }
    }
}

/// A tensor that a file has, checked.
fn source(
    shards: &[Shard],
    (shard, stored): (usize, &Stored),
    name: String,
    tensor: &Tensor,
) -> Result<Source, InputError> {
    let refuse = |message: String| InputError::new(&*shards[shard].file, format!("tensor \"{name}\""), message);
    let fits = match (&stored.shape[..], &tensor.shape[..]) {
        ([rows, of_row @ ..], [own, of_own @ ..]) if tensor.may_be_longer => rows >= own && of_row == of_own,
        (there, own) => there == own,
    };
    if !fits {
        let (there, own, parts) = (shown(&stored.shape), shown(&tensor.shape), tensor.parameters());
        let message = format!(
            "has the shape {there}, and {parts} of the model {own}: give the weights of this model, or the model of these weights"
        );
        return Err(refuse(message));
    }
    let Some(format) = Format::of(&stored.format) else {
        return Err(refuse(format!("is in {}: write it in F32, BF16 or F16", stored.format)));
    };
    Ok(Source { shard, stored: stored.clone(), format, tensor: tensor.clone(), name })
}

/// The refusal of files without a tensor, the first of several.
fn lacks(
    path: &str,
    (name, tensor): (&str, &Tensor),
    others: usize,
    rest: &[&str],
    layout: &WeightLayout,
) -> InputError {
    let there = match rest {
        [] => "no others are there".to_owned(),
        [first, ..] => format!("\"{first}\" is there instead"),
    };
    let (more, parts, architectures) = (and_more(others), tensor.parameters(), layout.names.architectures.join(", "));
    let message = format!(
        "is missing{more}, which the model needs for {parts}; {there}: give weights of {architectures}, or the model of these weights"
    );
    InputError::new(path, format!("tensor \"{name}\""), message)
}

/// How many others there are.
fn and_more(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => ", and one more".to_owned(),
        _ => format!(", and {others} more"),
    }
}

/// Refuses scores with weights of their own for a model whose scores have those of the embedding.
fn check_tied(
    shards: &[Shard],
    (name, (shard, head)): (&str, (usize, &Stored)),
    (other, embedding): (usize, &Stored),
) -> Result<(), InputError> {
    let refuse = |message: &str| InputError::new(&*shards[shard].file, format!("tensor \"{name}\""), message);
    let another = "differs from the embedding, and the model's scores have its vectors: give a model without this tie \
                   (tie_word_embeddings in config.json)";
    if (&head.shape, &head.format) != (&embedding.shape, &embedding.format) {
        return Err(refuse(another));
    }
    let Some(format) = Format::of(&head.format) else { return Err(refuse(another)) };
    let bytes = head.shape.iter().product::<u64>() * format.bytes();
    let mut pieces = [Vec::new(), Vec::new()];
    for from in (0..bytes).step_by(COMPARED as usize) {
        let length = COMPARED.min(bytes - from) as usize;
        for (piece, (shard, of)) in pieces.iter_mut().zip([(shard, head), (other, embedding)]) {
            piece.resize(length, 0);
            shards[shard].read(of, from, piece)?;
        }
        if pieces[0] != pieces[1] {
            return Err(refuse(another));
        }
    }
    Ok(())
}

/// Says what was found.
fn summary(path: &str, sources: &[Source]) -> String {
    let numbers: u64 = sources.iter().map(|source| source.tensor.elements()).sum();
    let formats: BTreeSet<&str> = sources.iter().map(|source| &*source.stored.format).collect();
    let formats = formats.into_iter().collect::<Vec<_>>().join(" and ");
    let mut text = format!("weights of {path}: {} tensors, {numbers} numbers in {formats}", sources.len());
    for source in sources.iter().filter(|source| source.stored.shape != source.tensor.shape) {
        let (own, there) = (source.tensor.shape[0], source.stored.shape[0]);
        text += &format!("; the first {own} of {there} rows of {}", source.name);
    }
    text
}

impl InitialValues for StoredWeights {
    fn put(&self, _: &Model, parameters: &mut [f32], _: &mut [f32]) -> Result<(), InputError> {
        assert_eq!(
            parameters.len() as u64,
            self.elements,
            "the parameters of the model that the files were checked for"
        );
        let mut bytes = Vec::new();
        for source in &self.sources {
            let Source { format, tensor, .. } = source;
            bytes.resize((tensor.elements() * format.bytes()) as usize, 0);
            self.shards[source.shard].read(&source.stored, 0, &mut bytes)?;
            for part in &tensor.parts {
                let wrong = match format {
                    Format::F32 => fill(part, &bytes, parameters, f32::from_le_bytes),
                    Format::Bf16 => fill(part, &bytes, parameters, bf16),
                    Format::F16 => fill(part, &bytes, parameters, f16),
                };
                if let Err((place, value)) = wrong {
                    let file = &*self.shards[source.shard].file;
                    let message = format!("has {value} as its number {place}: train it again");
                    return Err(InputError::new(file, format!("tensor \"{}\"", source.name), message));
                }
            }
        }
        Ok(())
    }
}

/// Fills a parameter from the bytes of its tensor; the error is the first number that is not finite, and where it is.
fn fill<const N: usize>(
    part: &Part,
    bytes: &[u8],
    parameters: &mut [f32],
    number: impl Fn([u8; N]) -> f32,
) -> Result<(), (usize, f32)> {
    let (numbers, _) = bytes.as_chunks::<N>();
    for (range, first, step) in part.rows() {
        let own = &mut parameters[range];
        for (value, bytes) in own.iter_mut().zip(numbers[first..].iter().step_by(step)) {
            *value = number(*bytes);
        }
        if let Some(at) = own.iter().position(|value| !value.is_finite()) {
            return Err((first + at * step, own[at]));
        }
    }
    Ok(())
}
