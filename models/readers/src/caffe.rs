//! Reads models from Caffe's network definitions, of a net to train or to deploy (Iandola et al. 2016, FAQ 1).
//!
//! Layers of the training phase count. Layers without an equivalent here are refused by name and line. Solvers and
//! files of weights are read separately.

mod layers;
mod multipliers;
mod solver;
mod sums;
mod text;
mod training;
mod weights;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lockstep_topology::{ErrorPlace, InputError, LineIndex};

use super::sketch::Sketch;
use layers::Meaning;
use lockstep_models::layer::Inits;
use lockstep_models::{Dimension, Layer, Scale, Select, Shape};
use lockstep_models::{Draft, Model};
pub use solver::Solver;
use text::{Message, Source};
use training::in_training;
pub(super) use weights::read as read_weights;

/// Fields of a file.
const TOP: &[&str] =
    &["name", "layer", "layers", "input", "input_dim", "input_shape", "state", "force_backward", "debug_info"];

/// Fields of forks at the top of a file that choose how layers are computed, not what.
const TOP_OF_FORKS: &[&str] = &[
    "bn_stats_batch_size",
    "compile_net_state",
    "default_backward_math",
    "default_backward_type",
    "default_forward_math",
    "default_forward_type",
    "eltwise_mem_sharing",
    "engine",
    "global_grad_scale",
    "global_grad_scale_adaptive",
    "multinode",
    "net_mode",
    "quantize",
];

const ONE_BLOB: &str = "a net without a loss must end in one blob, its scores: add a SoftmaxWithLoss";

/// The weight of a loss that only helps training (Szegedy et al. 2015, §5).
const SIDE_LOSS: f32 = 0.3;

/// A network being converted to drafts.
struct Import<'a> {
    /// The current producer of each blob: a layer whose output has its input's name works in place.
    blobs: BTreeMap<&'a str, usize>,
    /// Blobs in the order in which they were made that no layer has taken yet.
    open: Vec<&'a str>,
    /// Batch norms whose scale layer has not been found yet.
    unscaled: BTreeSet<usize>,
    losses: u32,
    /// The shape of the samples, where it is given in addition to the file.
    given: Option<Shape>,
    /// Names of parameters, which Caffe shares among layers.
    parameters: BTreeSet<&'a str>,
    /// Fields that Caffe ignores, with their places.
    ignored: Vec<(&'a str, ErrorPlace)>,
    /// What else is not as in the file.
    notes: Vec<String>,
    sketch: Sketch,
}

/// The model in `text`, the content of `file`, on samples of the shape `given` where there is one.
pub(super) fn parse(file: &str, text: &str, given: Option<Shape>) -> Result<Model, InputError> {
    let lines = &LineIndex::of(text);
    let net = Source { file, text, lines }.read()?;
    net.allow(&[TOP, TOP_OF_FORKS])?;
    net.message("state")?.allow(&[&["phase", "level"]])?;
    let stem = || Path::new(file).file_stem().map_or("caffe".into(), |stem| stem.to_string_lossy().into_owned());
    let name = match net.text("name")? {
        "" => stem(),
        name => name.split_whitespace().collect::<Vec<_>>().join("-"),
    };
    let mut import = Import {
        blobs: BTreeMap::new(),
        open: Vec::new(),
        unscaled: BTreeSet::new(),
        losses: 0,
        given,
        parameters: BTreeSet::new(),
        ignored: Vec::new(),
        notes: Vec::new(),
        sketch: Sketch::default(),
    };
    import.input(&net)?;
    for field in net.fields().iter().filter(|field| matches!(field.name, "layer" | "layers")) {
        let layer = field.message()?;
        if in_training(layer)? {
            import.layer(layer)?;
        }
    }
    import.end(&net)?;
    let notes = import.notes();
    Ok(Model::build(name, "Caffe network definition".to_owned(), import.sketch.finish())?.with_notes(notes))
}

/// A layer of the file, with the blobs that it takes and makes.
struct Written<'l, 'a> {
    message: &'l Message<'a>,
    kind: &'a str,
    name: &'a str,
    bottoms: Vec<&'a str>,
    tops: Vec<&'a str>,
    /// The producers of the bottoms that have one.
    inputs: Vec<usize>,
}

impl<'a> Written<'_, 'a> {
    fn refuse(&self, message: String) -> InputError {
        self.message.error(format!("{} \"{}\"", self.kind, self.name), message)
    }

    fn first(&self) -> Result<usize, InputError> {
        self.inputs.first().copied().ok_or_else(|| self.refuse("has no input: give it a bottom".to_owned()))
    }

    fn top(&self) -> Result<&'a str, InputError> {
        self.tops.first().copied().ok_or_else(|| self.refuse("has no output: give it a top".to_owned()))
    }
}

impl<'a> Import<'a> {
    /// The input that a net to deploy states before its layers.
    fn input(&mut self, net: &Message<'a>) -> Result<(), InputError> {
        let mut names = net.all("input");
        let Some(name) = names.next() else { return Ok(()) };
        if let Some(second) = names.next() {
            return Err(second.error("is a second input: a model has one"));
        }
        let mut dims: Vec<u32> = net.all("input_dim").map(|field| field.size()).collect::<Result<_, _>>()?;
        if dims.is_empty() {
            let shape = net.message("input_shape")?;
            shape.allow(&[&["dim"]])?;
            dims = shape.all("dim").map(|field| field.size()).collect::<Result<_, _>>()?;
        }
        self.samples(name.text()?, &dims, net)
    }

    /// `blob` holds the samples, of the sizes `dims` with the batch first.
    fn samples(&mut self, blob: &'a str, dims: &[u32], place: &Message<'a>) -> Result<(), InputError> {
        let [_, channels, ref sides @ ..] = dims[..] else {
            return Err(place.error(
                blob,
                "has no shape: state the batch and what a sample is, e.g. dim: 1 dim: 3 dim: 224 dim: 224",
            ));
        };
        let (height, width) = (sides.first().copied().unwrap_or(1), sides.get(1).copied().unwrap_or(1));
        // Labels come from the data.
        if !self.blobs.is_empty() && (channels, height, width) == (1, 1, 1) {
            return Ok(());
        }
        let shape = self.given.unwrap_or(Shape::of_image(channels, height, width));
        if !self.blobs.is_empty() || sides.len() > 2 {
            return Err(place.error(blob, "a model has one input of at most four dimensions, before all layers"));
        }
        self.add(blob, "input", Layer::input(shape), Vec::new(), Inits::default(), 1.0, place)
    }

    /// Which fields are left out because Caffe ignores them.
    fn notes(&self) -> Vec<String> {
        let Some((name, place)) = self.ignored.first() else { return self.notes.clone() };
        let more = match self.ignored.len() {
            1 => String::new(),
            all => format!(", and {} more", all - 1),
        };
        let ignored = format!("{place}: fields that Caffe ignores are left out: {name}{more}");
        std::iter::once(ignored).chain(self.notes.iter().cloned()).collect()
    }

    /// Notes once what is not as in the file.
    fn note(&mut self, of: &Message<'a>, text: &str) {
        if !self.notes.iter().any(|note| note.ends_with(text)) {
            self.notes.push(format!("{}: {text}", of.place()));
        }
    }

    /// Adds a layer of the file.
    fn layer(&mut self, message: &Message<'a>) -> Result<(), InputError> {
        let kind = message.get("type").map_or(Ok(""), |field| field.name_of_type())?;
        let name = message.text("name")?;
        let texts = |field: &str| message.all(field).map(|blob| blob.text()).collect::<Result<Vec<_>, _>>();
        let (bottoms, tops) = (texts("bottom")?, texts("top")?);
        let ignored = layers::ignored(kind, message)?;
        self.ignored.extend(ignored.into_iter().map(|field| (field.name, field.place())));
        let inputs: Vec<usize> = bottoms.iter().filter_map(|bottom| self.blobs.get(bottom).copied()).collect();
        let shapes: Vec<Shape> = inputs.iter().map(|input| self.sketch.shape(*input)).collect();
        let layer = Written { message, kind, name, bottoms, tops, inputs };
        let meaning = match self.given {
            Some(_) if layers::is_data(kind) => {
                layers::data::check(message)?;
                Meaning::Samples(vec![1, 1])
            }
            _ => layers::meaning(kind, message, &shapes)?,
        };
        // A loss takes labels too, but a net to deploy does not say where from.
        let needed = if matches!(&meaning, Meaning::Layer(made, _) if made.is_loss()) {
            layer.bottoms.get(..1).unwrap_or(&[])
        } else {
            &layer.bottoms
        };
        let unknown = needed.iter().find(|bottom| !self.blobs.contains_key(*bottom));
        if let (Some(bottom), false) = (unknown, matches!(meaning, Meaning::Nothing)) {
            return Err(layer.refuse(format!("takes \"{bottom}\", which no layer before it makes in training")));
        }
        match meaning {
            Meaning::Nothing => Ok(()),
            Meaning::Samples(dims) => self.samples(layer.top()?, &dims, message),
            Meaning::Copies => {
                let of = layer.first()?;
                self.taken(&layer.bottoms);
                layer.tops.iter().for_each(|top| self.made(top, of));
                Ok(())
            }
            Meaning::Axpy => {
                self.taken(&layer.bottoms);
                self.axpy((layer.top()?, name), &layer.inputs, message)
            }
            Meaning::Sum(factors) => {
                self.taken(&layer.bottoms);
                self.sum((layer.top()?, name), &layer.inputs, &factors, message)
            }
            Meaning::Parts(parts) => {
                let of = layer.first()?;
                self.taken(&layer.bottoms);
                layer.tops.iter().copied().zip(parts).try_for_each(|(top, (first, channels))| {
                    let part = Layer::Select(Select { first, channels, groups: 1 });
                    self.add(top, name, part, vec![of], Inits::default(), 1.0, message)
                })
            }
            Meaning::Softmax => {
                // At the end of a net to deploy it belongs to the loss, which `end` adds.
                let of = layer.first()?;
                self.taken(&layer.bottoms);
                self.made(layer.top()?, of);
                Ok(())
            }
            Meaning::Layer(Layer::Scale(Scale { bias }), _) if self.has_statistics(layer.first()?) => {
                self.scale_of_norm(&layer, bias)
            }
            Meaning::Layer(made, inits) if made.is_loss() => self.loss(&layer, made, inits),
            Meaning::Layer(made, inits) => self.computing(layer, made, inits),
        }
    }

    /// The scale behind a batch norm, which is one layer with it here.
    fn scale_of_norm(&mut self, layer: &Written<'_, 'a>, bias: bool) -> Result<(), InputError> {
        let of = layer.first()?;
        if !self.unscaled.remove(&of) {
            return Err(layer.refuse("a batch norm has one scale here: leave the second out".to_owned()));
        }
        if !bias {
            let text = "a scale behind a batch norm has no bias_term: it gets biases, which cost hardly any time";
            self.note(layer.message, text);
        }
        self.taken(&layer.bottoms);
        self.made(layer.top()?, of);
        let multipliers = self.multipliers(layer.message)?;
        self.sketch.multiply(of, multipliers);
        Ok(())
    }

    /// A loss, which needs no output.
    fn loss(&mut self, layer: &Written<'_, 'a>, made: Layer, inits: Inits) -> Result<(), InputError> {
        let of = layer.first()?;
        self.taken(&layer.bottoms);
        let weight = layer.message.number("loss_weight", 1.0)?;
        if weight <= 0.0 {
            return Err(layer.refuse("loss_weight must be positive: leave the layer out".to_owned()));
        }
        self.losses += 1;
        let top = layer.tops.first().copied().unwrap_or(layer.name);
        self.add(top, layer.name, made, vec![of], inits, weight, layer.message)?;
        self.open.retain(|blob| *blob != top);
        Ok(())
    }

    /// A layer that computes its output from its inputs.
    fn computing(&mut self, layer: Written<'_, 'a>, made: Layer, inits: Inits) -> Result<(), InputError> {
        layer.first()?;
        let top = layer.top();
        let Written { message, kind, name, bottoms, inputs, .. } = layer;
        self.taken(&bottoms);
        let norm = made.rule().kind().statistics;
        let multipliers = self.multipliers(message)?;
        let top = top?;
        self.add(top, name, made, inputs, inits, 1.0, message)?;
        // The blobs of Caffe's batch norm are its statistics.
        if norm {
            self.unscaled.insert(self.blobs[top]);
        } else {
            self.sketch.multiply(self.blobs[top], multipliers);
        }
        if matches!(kind, "PReLU" | "PRELU") {
            self.note(message, "the slopes of a PReLU are not learned here but constant: it costs as much");
        }
        Ok(())
    }

    /// Whether a layer is a batch norm.
    fn has_statistics(&self, index: usize) -> bool {
        self.sketch.layer(index).rule().kind().statistics
    }

    /// A net to deploy ends in its scores: appends a loss.
    fn end(&mut self, net: &Message<'a>) -> Result<(), InputError> {
        if !self.unscaled.is_empty() {
            let text = "a batch norm has no scale behind it: it gets factors and biases, which cost hardly any time";
            self.note(net, text);
        }
        if self.losses > 0 {
            return Ok(());
        }
        let shape = |blob: &&str| self.sketch.shape(self.blobs[*blob]);
        let alike =
            self.open.iter().all(|blob| shape(blob) == shape(&self.open[0]) && shape(blob).size(Dimension::Row) == 1);
        let Some((scores, sides)) = self.open.clone().split_last().map(|(last, sides)| (*last, sides.to_vec())) else {
            return Err(net.error("blobs []", ONE_BLOB));
        };
        if !alike && !sides.is_empty() {
            return Err(net.error(format!("blobs {:?}", self.open), ONE_BLOB));
        }
        for side in sides {
            self.note(net, "blobs of scores beside the last have a loss of weight 0.3 each");
            let of = self.blobs[side];
            self.add("side_loss", "side_loss", Layer::SoftmaxCrossEntropy, vec![of], Inits::default(), SIDE_LOSS, net)?;
        }
        let of = self.blobs[scores];
        self.add("loss", "loss", Layer::SoftmaxCrossEntropy, vec![of], Inits::default(), 1.0, net)
    }

    /// Adds a layer that makes `blob`.
    #[expect(clippy::too_many_arguments, reason = "all of them are what a layer is")]
    fn add(
        &mut self,
        blob: &'a str,
        name: &str,
        layer: Layer,
        inputs: Vec<usize>,
        inits: Inits,
        loss_weight: f32,
        message: &Message<'a>,
    ) -> Result<(), InputError> {
        let (kind, place) = (layer.kind(), message.place());
        // The sketch numbers these two names where a layer of the file has them; the first of each is generated here.
        let name = match &layer {
            input if input.is_input() => "input".to_owned(),
            _ if name == "loss" && self.losses <= 1 && layer.is_loss() => "loss".to_owned(),
            _ => self.sketch.name(name, kind),
        };
        let draft = Draft { name: name.clone(), layer, inputs, inits, multipliers: Vec::new(), loss_weight, place };
        let index = self.sketch.add(draft).map_err(|wrong| message.error(format!("{kind} \"{name}\""), wrong))?;
        self.made(blob, index);
        Ok(())
    }

    fn made(&mut self, blob: &'a str, by: usize) {
        self.blobs.insert(blob, by);
        self.open.retain(|open| *open != blob);
        self.open.push(blob);
    }

    fn taken(&mut self, blobs: &[&str]) {
        self.open.retain(|open| !blobs.contains(open));
    }
}

#[cfg(test)]
mod tests;
