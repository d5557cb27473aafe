//! Reads models from ONNX files: the graph becomes layers; of its weights only shapes are read.
//!
//! Operators without an equivalent here are refused by name. The softmax at the end, if there is one, becomes the
//! loss; a loss is appended otherwise. Parameters are initialized again: a run trains the network, not the weights
//! in the file.

mod attributes;
mod operators;
mod proto;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use lockstep_topology::InputError;

use super::sketch::Sketch;
use lockstep_models::{Draft, Model};
use lockstep_models::{Layer, Shape};
use proto::{File, Graph, Node, Tensor};

/// Most nodes that are read.
const MAX_NODES: usize = 100_000;

/// A tensor that the file holds: its sizes, and its values where they are whole numbers.
#[derive(Debug, Clone, Default)]
struct Constant {
    dims: Vec<i64>,
    integers: Option<Vec<i64>>,
    scalar: Option<f32>,
}

/// A tensor of the graph.
#[derive(Debug, Clone)]
enum Value {
    /// The output of a draft.
    Draft(usize),
    Constant(Constant),
}

/// A graph being converted to drafts.
struct Import<'a> {
    file: &'a str,
    values: BTreeMap<&'a str, Value>,
    /// How many nodes take a tensor.
    uses: BTreeMap<&'a str, usize>,
    /// The graph's outputs.
    outputs: &'a [&'a str],
    sketch: Sketch,
}

/// The model in the bytes of the file `file`.
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Model, InputError> {
    let read = File::read(bytes).map_err(|error| {
        let message = format!("{}: this is not a whole ONNX file; export or copy it again", error.message);
        InputError::new(format!("{file}: byte {}", error.offset), "", message)
    })?;
    let Some(graph) = read.graph.filter(|graph| !graph.nodes.is_empty()) else {
        return Err(InputError::new(file, "", "holds no graph: is it an ONNX model?"));
    };
    if graph.nodes.len() > MAX_NODES {
        return Err(InputError::new(file, "", format!("has more than {MAX_NODES} nodes: simplify it before export")));
    }
    let name = Path::new(file).file_stem().map_or("onnx".into(), |stem| stem.to_string_lossy().into_owned());
    let producer = if read.producer.is_empty() { "an unnamed producer" } else { read.producer };
    Model::build(name, format!("ONNX file of {producer}, opset {}", read.opset), drafts(file, &graph)?)
}

/// The layers of a graph, its input first and a loss last.
fn drafts<'a>(file: &'a str, graph: &'a Graph<'a>) -> Result<Vec<Draft>, InputError> {
    let mut import = Import {
        file,
        values: BTreeMap::new(),
        uses: BTreeMap::new(),
        outputs: &graph.outputs,
        sketch: Sketch::default(),
    };
    for tensor in &graph.initializers {
        import.values.insert(tensor.name, Value::Constant(constant(tensor)));
    }
    import.input(graph)?;
    for name in graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.outputs) {
        *import.uses.entry(*name).or_default() += 1;
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        let place = format!("{file}: node {index}");
        import.node(node, &place).map_err(|message| InputError::new(&place, called(node), message))?;
    }
    import.end(graph)?;
    Ok(import.sketch.finish())
}

fn constant(tensor: &Tensor<'_>) -> Constant {
    Constant { dims: tensor.dims.clone(), integers: tensor.int64(), scalar: tensor.scalar() }
}

/// The name of a node in errors.
fn called(node: &Node<'_>) -> String {
    let name = if node.name.is_empty() { node.outputs.first().copied().unwrap_or("") } else { node.name };
    format!("{} \"{name}\"", node.op)
}

impl<'a> Import<'a> {
    /// The one input that is not an initializer becomes the first draft.
    fn input(&mut self, graph: &Graph<'a>) -> Result<(), InputError> {
        let mut inputs = graph.inputs.iter().filter(|input| !self.values.contains_key(input.name));
        let place = format!("{}: inputs", self.file);
        let refuse = |name: &str, message: String| Err(InputError::new(&place, format!("input \"{name}\""), message));
        let input = match (inputs.next(), inputs.next()) {
            (Some(input), None) => input,
            (None, _) => return refuse("", "the graph has none: a model has one input of samples".to_owned()),
            (Some(first), Some(second)) => {
                let message = format!(
                    "\"{}\" is an input too: a model has one; export weights as initializers and fix what else varies",
                    second.name
                );
                return refuse(first.name, message);
            }
        };
        let Some(dims) = &input.dims else {
            return refuse(input.name, "has no shape: export with one, e.g. [1, 3, 224, 224]".to_owned());
        };
        let side = |place: usize| match dims.get(place) {
            None => Some(1),
            Some(size) => size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0),
        };
        let (2..=4, Some(channels), Some(height), Some(width)) = (dims.len(), side(1), side(2), side(3)) else {
            let shown: Vec<String> =
                dims.iter().map(|size| size.map_or("?".to_owned(), |size| size.to_string())).collect();
            let message = format!(
                "has the shape [{}]: export with fixed sizes behind the batch, e.g. [1, 3, 224, 224] or [1, 784]",
                shown.join(", ")
            );
            return refuse(input.name, message);
        };
        let samples = Layer::input(Shape { channels, height, width });
        let index = match self.layer("input".to_owned(), samples, Vec::new(), &place) {
            Ok(index) => index,
            Err(message) => return refuse(input.name, message),
        };
        self.values.insert(input.name, Value::Draft(index));
        Ok(())
    }

    /// Appends the loss to the graph's output.
    fn end(&mut self, graph: &Graph<'a>) -> Result<(), InputError> {
        let place = format!("{}: outputs", self.file);
        let [output] = graph.outputs[..] else {
            let value = format!("outputs {:?}", graph.outputs);
            return Err(InputError::new(place, value, "a model has one output, the scores of the classes"));
        };
        let Some(Value::Draft(scores)) = self.values.get(output).cloned() else {
            let message = "no layer makes it: name a node's output as the graph's";
            return Err(InputError::new(place, format!("output \"{output}\""), message));
        };
        match self.layer("loss".to_owned(), Layer::SoftmaxCrossEntropy, vec![scores], &place) {
            Ok(_) => Ok(()),
            Err(message) => Err(InputError::new(place, format!("output \"{output}\""), message)),
        }
    }

    /// Adds a layer whose shape follows from its inputs, and returns its index; the error is without a place.
    fn layer(&mut self, name: String, layer: Layer, inputs: Vec<usize>, place: &str) -> Result<usize, String> {
        let ((inits, multipliers), place) = (Default::default(), place.into());
        self.sketch.add(Draft { name, layer, inputs, inits, multipliers, loss_weight: 1.0, place })
    }
}
