//! Reads models from ONNX files: the graph becomes layers; of its weights only shapes are read.
//!
//! The stages: `proto` parses the file, `graph` orders its nodes, `fold` computes what depends on no samples, `view` follows
//! reshapes and transposes, `patterns` lists expressions that are one layer, `operators` and the files beside it make
//! layers. What cannot be made is refused only if the scores depend on it. The softmax at the end, if there is one, becomes
//! the loss; a loss is appended otherwise. Parameters are initialized again: a run trains the network, not the weights in the file.

mod arithmetic;
mod attributes;
mod channels;
mod constant;
mod ends;
mod fold;
mod graph;
mod normalisation;
mod operators;
mod parts;
mod pattern;
mod patterns;
mod products;
mod proto;
mod rearranged;
mod refusals;
mod resizing;
mod rows;
mod tensor;
#[cfg(test)]
mod tests;
mod unfold;
mod view;
mod windows;

use std::collections::BTreeMap;
use std::path::Path;

use lockstep_topology::InputError;

use super::sketch::Sketch;
use constant::Constant;
use graph::Step;
use lockstep_models::{Draft, Layer, Model, Shape};
use pattern::{Lookup, Pattern};
use patterns::Made;
use proto::{File, Graph};
use view::{Order, View};

/// A tensor that depends on the samples: a draft's output in some arrangement.
#[derive(Debug, Clone)]
struct Data {
    draft: usize,
    view: View,
    /// The node that arranged it last.
    named: String,
}

/// A tensor of the graph.
#[derive(Debug, Clone)]
enum Value {
    Data(Data),
    /// A tensor whose dimensions of one element are repeated up to these sizes.
    Repeated(Data, Vec<i64>),
    Constant(Constant),
    /// What no layer makes.
    Refused(InputError),
}

impl Value {
    /// The sizes of samples.
    fn sizes(&self) -> Option<Vec<i64>> {
        match self {
            Value::Data(data) => Some(data.view.sizes()),
            Value::Repeated(_, sizes) => Some(sizes.clone()),
            _ => None,
        }
    }
}

/// A graph being converted to drafts.
struct Import<'f, 'a> {
    file: &'f str,
    steps: &'f [Step<'a>],
    /// Which step makes a tensor.
    makers: BTreeMap<&'f str, usize>,
    values: BTreeMap<String, Value>,
    /// How many steps take a tensor.
    uses: BTreeMap<&'f str, usize>,
    /// The graph's outputs.
    outputs: &'f [&'a str],
    patterns: Vec<(Pattern, Made)>,
    sketch: Sketch,
    notes: Vec<String>,
    /// Convolutions with a bias, and whose it is.
    biases: Vec<(usize, unfold::Bias)>,
    biased: Biased,
    opset: i64,
    /// Normalisations whose factors and biases are operators of their own.
    bare: BTreeMap<usize, normalisation::Bare>,
    left_out: LeftOut,
}

/// Parameters that the file and the layers do not share.
#[derive(Debug, Default)]
struct LeftOut {
    /// Beside weights that are computed from others.
    beside_weights: u64,
    /// Those that layers have and the file lacks.
    surplus: u64,
    /// Single numbers that are taken as constants.
    numbers: std::collections::BTreeSet<String>,
}

/// Networks whose convolutions have biases of their own and no normalisation.
pub(super) type Biased = fn() -> Vec<Model>;

/// The model in the bytes of the file `file`; with `unfold` batch normalisation that an export has folded away is restored,
/// unless its convolutions are those of a `biased` network.
pub(super) fn parse(file: &str, bytes: &[u8], unfold: bool, biased: Biased) -> Result<Model, InputError> {
    let read = File::read(bytes).map_err(|error| {
        let message = format!("{}: this is not a whole ONNX file; export or copy it again", error.message);
        InputError::new(format!("{file}: byte {}", error.offset), "", message)
    })?;
    let Some(graph) = read.graph.as_ref().filter(|graph| !graph.nodes.is_empty()) else {
        return Err(InputError::new(file, "", "holds no graph: is it an ONNX model?"));
    };
    let steps = graph::steps(file, &read, graph)?;
    let (drafts, notes) = drafts(file, (graph, read.opset), &steps, (unfold, biased))?;
    let name = Path::new(file).file_stem().map_or("onnx".into(), |stem| stem.to_string_lossy().into_owned());
    let producer = if read.producer.is_empty() { "an unnamed producer" } else { read.producer };
    let model = Model::build(name, format!("ONNX file of {producer}, opset {}", read.opset), drafts)?;
    Ok(model.with_notes(notes))
}

/// The layers of a graph, its input first and a loss last; and notes about them.
fn drafts<'a>(
    file: &str,
    (graph, opset): (&Graph<'a>, i64),
    steps: &[Step<'a>],
    (unfold, biased): (bool, Biased),
) -> Result<(Vec<Draft>, Vec<String>), InputError> {
    let makers =
        steps.iter().enumerate().flat_map(|(at, step)| step.outputs.iter().map(move |name| (name.as_str(), at)));
    let mut import = Import {
        file,
        steps,
        makers: makers.filter(|(name, _)| !name.is_empty()).collect(),
        values: BTreeMap::new(),
        uses: BTreeMap::new(),
        outputs: &graph.outputs,
        patterns: patterns::all(),
        sketch: Sketch::default(),
        notes: Vec::new(),
        biases: Vec::new(),
        biased,
        opset,
        bare: BTreeMap::new(),
        left_out: LeftOut::default(),
    };
    for tensor in &graph.initializers {
        import.values.insert(tensor.name.to_owned(), Value::Constant(Constant::of(tensor, true)));
    }
    import.input(graph)?;
    for name in steps.iter().flat_map(|step| &step.inputs).map(String::as_str).chain(graph.outputs.iter().copied()) {
        *import.uses.entry(name).or_default() += 1;
    }
    for step in steps {
        import.step(step);
    }
    import.end(graph, unfold)
}

impl<'a> Lookup<'a> for Import<'_, 'a> {
    fn maker(&self, tensor: &str) -> Option<&Step<'a>> {
        self.makers.get(tensor).map(|at| &self.steps[*at])
    }

    fn constant_of(&self, tensor: &str) -> Option<&Constant> {
        match self.values.get(tensor) {
            Some(Value::Constant(constant)) => Some(constant),
            _ => None,
        }
    }
}

impl<'a> Import<'_, 'a> {
    /// Makes the outputs of a step; what cannot be made is refused where it is needed.
    fn step(&mut self, step: &Step<'a>) {
        let made = self.made(step);
        for (place, name) in step.outputs.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let value = match &made {
                Ok(values) => values.get(place).cloned().unwrap_or_else(|| {
                    Value::Refused(step.error(self.file, format!("its output {place} is no layer's: do without it")))
                }),
                Err(error) => Value::Refused(error.clone()),
            };
            self.values.insert(name.clone(), value);
        }
    }

    fn made(&mut self, step: &Step<'a>) -> Result<Vec<Value>, InputError> {
        let refuse = |message: String| step.error(self.file, message);
        if step.outputs.iter().all(String::is_empty) {
            return Err(refuse("has no output: remove it".to_owned()));
        }
        if let Some(constant) = self.constant(step).map_err(refuse)? {
            return Ok(vec![Value::Constant(constant)]);
        }
        if let Some(value) = self.matched(step).map_err(refuse)? {
            return Ok(vec![value]);
        }
        for name in step.inputs.iter().filter(|name| !name.is_empty()) {
            match self.values.get(name) {
                Some(Value::Refused(error)) => return Err(error.clone()),
                Some(_) => {}
                None => return Err(step.error(self.file, format!("its input \"{name}\" is made by no node"))),
            }
        }
        if step.op == "If" {
            return self.branch(step);
        }
        self.operator(step).map_err(|message| step.error(self.file, message))
    }

    /// The constant that a step makes of constants, if it takes nothing else.
    fn constant(&self, step: &Step<'a>) -> Result<Option<Constant>, String> {
        if step.op == "Constant" {
            return constant_of(step).map(Some);
        }
        if step.op == "Shape"
            && let Some(dims) = step.input(0).and_then(|name| self.values.get(name)).and_then(Value::sizes)
        {
            return Ok(fold::fold(step, &[Some(&Constant { dims, ..Constant::default() })]));
        }
        if step.op == "CastLike"
            && let Some(constant) = step.input(0).and_then(|name| self.constant_of(name))
        {
            return Ok(Some(constant.clone()));
        }
        let inputs: Vec<Option<&Constant>> = step.inputs.iter().map(|name| self.constant_of(name)).collect();
        let given = step.inputs.iter().zip(&inputs).filter(|(name, _)| !name.is_empty());
        if step.inputs.is_empty() || step.op == "If" || given.into_iter().any(|(_, constant)| constant.is_none()) {
            return Ok(None);
        }
        match fold::fold(step, &inputs) {
            Some(constant) => Ok(Some(constant)),
            None => {
                Err("computes a constant in a way that is not known: export with fixed shapes and constants folded \
                         (torch.onnx.export does by default, onnx-simplifier else)"
                    .to_owned())
            }
        }
    }

    /// The layer that a step ends an expression of.
    fn matched(&mut self, step: &Step<'a>) -> Result<Option<Value>, String> {
        let found =
            self.patterns.iter().filter(|(pattern, _)| pattern.root() == step.op).find_map(|(pattern, made)| {
                let found = pattern.find(step, self)?;
                Some((made.clone(), found))
            });
        let Some((made, found)) = found else { return Ok(None) };
        let Some(Value::Data(data)) = found.0.get(&'x').and_then(|name| self.values.get(name)).cloned() else {
            return Ok(None);
        };
        match made {
            Made::Layer(layer) => self.each(step, layer, &data).map(Some),
            Made::LayerNorm => self.spelled_norm(step, &data, &found),
            Made::ResponseNorm => self.response_norm(step, &data, &found),
        }
    }

    /// The outputs of the branch that a known condition selects.
    fn branch(&mut self, step: &Step<'a>) -> Result<Vec<Value>, InputError> {
        let condition = step.input(0).and_then(|name| self.constant_of(name)).and_then(Constant::scalar);
        let Some(condition) = condition else {
            let message = "its condition depends on the samples: export one of the branches";
            return Err(step.error(self.file, message));
        };
        let name = if condition != 0.0 { "then_branch" } else { "else_branch" };
        let Some(graph) = step.attribute(name).and_then(|attribute| attribute.graph.as_ref()) else {
            return Err(step.error(self.file, format!("has no {name}: export it again")));
        };
        for tensor in &graph.initializers {
            self.values.insert(tensor.name.to_owned(), Value::Constant(Constant::of(tensor, true)));
        }
        for inner in graph::branch(self.file, graph, step.index)? {
            self.step(&inner);
        }
        let value = |name: &&str| match self.values.get(*name) {
            Some(Value::Refused(error)) => Err(error.clone()),
            Some(value) => Ok(value.clone()),
            None => Err(step.error(self.file, format!("\"{name}\" is made by no node of the branch"))),
        };
        graph.outputs.iter().map(value).collect()
    }

    /// Adds a layer whose shape follows from its inputs, and returns its index; the error is without a place.
    fn layer(&mut self, name: String, layer: Layer, inputs: Vec<usize>, place: &str) -> Result<usize, String> {
        let ((inits, multipliers), place) = (Default::default(), place.into());
        self.sketch.add(Draft { name, layer, inputs, inits, multipliers, loss_weight: 1.0, place })
    }

    /// Adds the layer of a step.
    fn add(&mut self, step: &Step<'a>, layer: Layer, inputs: Vec<usize>) -> Result<usize, String> {
        let name = self.sketch.name(&step.name, layer.kind());
        self.layer(name, layer, inputs, &step.place(self.file))
    }

    /// Adds a layer that changes each element by itself.
    fn each(&mut self, step: &Step<'a>, layer: Layer, data: &Data) -> Result<Value, String> {
        let draft = self.add(step, layer, vec![data.draft])?;
        Ok(Value::Data(Data { draft, ..data.clone() }))
    }

    /// Notes once what was left out.
    fn note(&mut self, text: &str) {
        let note = format!("{}: {text}", self.file);
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn shape(&self, data: &Data) -> Shape {
        self.sketch.shape(data.draft)
    }

    /// The samples that a step takes.
    fn data(&self, step: &Step<'a>, place: usize) -> Result<Data, String> {
        let name = step.inputs.get(place).map_or("", String::as_str);
        match self.values.get(name) {
            Some(Value::Data(data)) => Ok(data.clone()),
            Some(Value::Repeated(data, sizes)) => Err(format!(
                "takes samples of {:?} repeated to {sizes:?}: only products and sums of samples do here, so repeat none before it",
                data.view.sizes()
            )),
            Some(Value::Constant(_)) => Err(format!("takes the constant \"{name}\" where samples are wanted")),
            _ => Err(format!("its input \"{name}\" is made by no node")),
        }
    }

    /// The draft of samples in the order of its own axes: an image, or features.
    fn natural(&mut self, step: &Step<'a>, data: &Data) -> Result<usize, String> {
        let shape = self.shape(data);
        let layer = match data.view.order(shape) {
            Some(Order::Natural) => return Ok(data.draft),
            Some(Order::Flat) => Layer::Flatten,
            Some(Order::Shuffled(groups)) => {
                Layer::Select(lockstep_models::Select { first: 0, channels: shape.features(), groups })
            }
            None => {
                return Err(format!(
                    "takes samples of {shape} rearranged to {:?}: only [batch, channels, height, width] and [batch, {}] \
                     are layers' inputs, and channels may be shuffled between groups",
                    data.view.sizes(),
                    shape.elements()
                ));
            }
        };
        let name = self.sketch.name(&data.named, layer.kind());
        self.layer(name, layer, vec![data.draft], &step.place(self.file))
    }

    /// A draft's output in the usual order, in as many dimensions as `data`, at least 2.
    fn ordered(&self, draft: usize, data: &Data) -> Value {
        let rank = if self.sketch.shape(draft).places() > 1 { 4 } else { data.view.0.len() };
        let view = View::new(data.view.batch(), self.sketch.shape(draft), rank.clamp(2, 4));
        Value::Data(Data { draft, view, named: String::new() })
    }
}

/// The tensor of a `Constant`.
fn constant_of(step: &Step<'_>) -> Result<Constant, String> {
    if let Some(tensor) = step.tensor("value") {
        return Ok(Constant::of(tensor, tensor.dims.len() > 1));
    }
    let scalar = |number: f64, whole| Constant { numbers: Some(vec![number]), whole, ..Constant::default() };
    if let Some(attribute) = step.attribute("value_int") {
        return Ok(scalar(attribute.integer as f64, true));
    }
    if let Some(attribute) = step.attribute("value_float") {
        return Ok(scalar(attribute.float.into(), false));
    }
    if let Some(attribute) = step.attribute("value_ints") {
        return Ok(Constant::row(attribute.integers.clone()));
    }
    if let Some(attribute) = step.attribute("value_floats") {
        let numbers = attribute.floats.iter().map(|number| f64::from(*number)).collect();
        return Ok(Constant {
            dims: vec![attribute.floats.len() as i64],
            numbers: Some(numbers),
            ..Constant::default()
        });
    }
    Err("has no tensor as its value: export it with one".to_owned())
}
