//! Writes the key of a chain's measured costs (its layers with their shapes and settings as text), and reads the layers
//! back from it.
//!
//! `conv2d 1x28x28>32x24x24 k5x5 s1x1 p0x0 d1x1 g1 bias + relu 32x24x24>32x24x24`. Three sizes are an image or a vector, two
//! the positions and features of a sequence, one the positions of tokens.

use std::fmt::Write;

use lockstep_topology::{Dtype, InputError};

use crate::layer::{Attributes, KINDS, KINDS_OF_PARTS};
use crate::{Buffer, Dimension, Node, Op, Precision, Program, Shape, UpdateRule};

/// The layers of a chain with their shapes and settings, regardless of their names: the key of measured costs.
pub fn chain_key(program: &Program, chain: usize) -> String {
    let nodes: Vec<&Node> = program.chains[chain].iter().map(|id| program.model.node(*id)).collect();
    key_of(&nodes)
}

/// An operation on parameters in a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormulaKey {
    /// Its name: `adamw`, or `adamw with moments in bf16`.
    pub name: String,
    /// The parameters of one rank.
    pub elements: u64,
    /// Whether a buffer that it reads is not of fp32.
    pub is_narrow: bool,
}

/// The key of an operation on parameters; `None` of an operation that costs what it moves through memory, as momentum SGD's
/// step on fp32 does.
///
/// ```
/// # use lockstep_models::{Job, Moments, UpdateRule, profile::formula_key, random_model};
/// let job = |rule, moments| Job { rule, moments, ..Job::new(std::sync::Arc::new(random_model(3, false)), 1, 2) };
/// let name = |rule, moments| {
///     let program = job(rule, moments).program().unwrap();
///     program.roles[0].tasks.iter().find_map(|task| Some(formula_key(&program, &task.op)?.name))
/// };
/// assert_eq!(name(UpdateRule::AdamW, Moments::F32).unwrap(), "adamw");
/// assert_eq!(name(UpdateRule::AdamW, Moments::Bf16).unwrap(), "adamw with moments in bf16");
/// assert_eq!(name(UpdateRule::Sgd, Moments::F32), None);
/// ```
pub fn formula_key(program: &Program, op: &Op) -> Option<FormulaKey> {
    let (rule, buffers, range, shared) = match op {
        Op::Squares(of) => ("squares", vec![of.buffer], &of.range, of.shared),
        _ => {
            let of = op.update()?;
            (program.rule.name(), of.formula.buffers(), &of.range, of.shared)
        }
    };
    let formats = buffers.into_iter().map(|buffer| (buffer, program.dtype(buffer)));
    let mut narrow: Vec<String> = formats
        .filter(|(_, dtype)| *dtype != Dtype::F32)
        .map(|(buffer, dtype)| {
            let what = if matches!(buffer, Buffer::State(_)) { "moments" } else { "gradients" };
            format!("{what} in {dtype}")
        })
        .collect();
    narrow.sort();
    narrow.dedup();
    if narrow.is_empty() && rule == UpdateRule::Sgd.name() {
        return None;
    }
    let is_narrow = !narrow.is_empty();
    let name = if is_narrow { format!("{rule} with {}", narrow.join(" and ")) } else { rule.to_owned() };
    // The largest part: that of the first ranks along the axes. A stage without gradients sums the squares of none.
    let part = program.own_part(range, shared, 0);
    if part.is_empty() {
        return None;
    }
    Some(FormulaKey { name, elements: part.end - part.start, is_narrow })
}

/// The same in a profile's figures of CPUs, which are of several precisions: ` in bf16` follows where it is not fp32.
///
/// ```
/// # use lockstep_models::{Job, Precision, profile::{cpu_chain_key, in_precision}, random_model};
/// let job = Job { precision: Precision::Bf16, ..Job::new(std::sync::Arc::new(random_model(3, false)), 1, 2) };
/// let key = cpu_chain_key(&job.program().unwrap(), 0);
/// assert!(key.ends_with(" in bf16"));
/// assert_eq!(in_precision(&key).1, Precision::Bf16);
/// ```
pub fn cpu_chain_key(program: &Program, chain: usize) -> String {
    program.precision.beside(&chain_key(program, chain))
}

/// The layers' key of such a key, and the precision.
pub fn in_precision(key: &str) -> (&str, Precision) {
    let of = key.rsplit_once(" in ").and_then(|(layers, precision)| Some((layers, precision.parse().ok()?)));
    of.unwrap_or((key, Precision::F32))
}

/// The key of these layers.
pub fn key_of(nodes: &[&Node]) -> String {
    let mut key = String::new();
    for node in nodes {
        if !key.is_empty() {
            key.push_str(" + ");
        }
        key.push_str(node.layer.kind());
        for (position, shape) in node.input_shapes.iter().enumerate() {
            let _ = write!(key, "{}{}", if position == 0 { ' ' } else { ',' }, size(shape));
        }
        let _ = write!(key, ">{}{}", size(&node.output), node.layer.rule().cost_settings());
    }
    key
}

fn size(shape: &Shape) -> String {
    let sizes = shape.as_image().map_or_else(|| shape.sizes().collect(), |image| image.sizes().to_vec());
    sizes.iter().map(u32::to_string).collect::<Vec<_>>().join("x")
}

/// The layers that a key describes; `None` where it is of another form.
pub fn read_key(key: &str) -> Option<Vec<Node>> {
    key.split(" + ").map(read_layer).collect()
}

fn read_layer(text: &str) -> Option<Node> {
    let mut words = text.split(' ');
    let (kind, shapes) = (words.next()?, words.next()?);
    let (inputs, output) = shapes.split_once('>')?;
    let inputs: Vec<Shape> = inputs.split(',').map(read_size).collect::<Option<_>>()?;
    let output = read_size(output)?;
    let kind = KINDS.iter().chain(KINDS_OF_PARTS).find(|known| known.name == kind)?;
    let layer = (kind.read)(&Settings { output, words: words.collect() }).ok()?;
    Node::alone(layer, inputs).ok().filter(|node| node.output == output)
}

/// The settings of a layer in a key: `k5x5`, `size5`, `bias`.
struct Settings<'a> {
    output: Shape,
    words: Vec<&'a str>,
}

impl Settings<'_> {
    /// What follows the setting's name, which for windows is its first letter.
    fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        let short = matches!(key, "kernel" | "stride" | "padding" | "dilation" | "groups");
        let name = if short { &key[..1] } else { key }.to_owned();
        self.words.iter().filter_map(move |word| word.strip_prefix(name.as_str()))
    }
}

impl Attributes for Settings<'_> {
    fn size(&self, key: &str) -> Result<Option<u32>, InputError> {
        match key {
            // The output of a loss has no features of its classes.
            "out_channels" | "out_features" => {
                let classes = self.values("classes").find_map(|value| value.parse().ok());
                Ok(Some(classes.unwrap_or(self.output.features())))
            }
            // A layer may lack these.
            "heads" | "window" | "original_max_position_embeddings" => {
                Ok(self.values(key).find_map(|value| value.parse().ok()))
            }
            _ => self.values(key).find_map(|value| value.parse().ok()).map(Some).ok_or_else(|| self.missing(key, "")),
        }
    }

    fn pair(&self, key: &str) -> Result<Option<(u32, u32)>, InputError> {
        let sides = self.values(key).find_map(|value| {
            let (rows, columns) = value.split_once('x')?;
            Some((rows.parse().ok()?, columns.parse().ok()?))
        });
        sides.map(Some).ok_or_else(|| self.missing(key, ""))
    }

    /// Settings that no key contains (a rate of dropout) have their defaults.
    fn number(&self, key: &str) -> Result<Option<f32>, InputError> {
        Ok(self.values(key).find_map(|value| value.parse().ok()))
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, InputError> {
        Ok(Some(self.words.contains(&key)))
    }

    fn word(&self, _: &str) -> Result<Option<&str>, InputError> {
        Ok(None)
    }

    fn refuse(&self, key: &str, message: &str) -> InputError {
        InputError::new("a layer's key", key, message)
    }
}

fn read_size(text: &str) -> Option<Shape> {
    let sizes: Option<Vec<u32>> = text.split('x').map(|size| size.parse().ok().filter(|size| *size > 0)).collect();
    match sizes?[..] {
        [channels, height, width] => Some(Shape::of_image(channels, height, width)),
        [positions, features] => Some(Shape::new(&[(Dimension::Position, positions), (Dimension::Feature, features)])),
        [positions] => Some(Shape::new(&[(Dimension::Position, positions)])),
        _ => None,
    }
}
