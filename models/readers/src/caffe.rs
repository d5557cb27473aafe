//! Models from Caffe's network definitions, of a net to train or to deploy (Iandola et al. 2016, FAQ 1).
//!
//! What stands in the file for training counts. What this project has no layer for is refused by name and line. Rates, decays
//! and weights of single layers are not read: those are a run's.

mod layers;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

use lockstep_topology::InputError;

use super::sketch::Sketch;
use layers::Meaning;
use lockstep_models::layer::Inits;
use lockstep_models::{Draft, Model};
use lockstep_models::{Layer, Scale, Shape};
use text::{Message, Source};

/// Fields of a file.
const TOP: &[&str] = &["name", "layer", "layers", "input", "input_dim", "input_shape", "force_backward", "debug_info"];

/// A network on its way to drafts.
struct Import<'a> {
    /// What makes each blob now: a layer whose output has its input's name works in place.
    blobs: BTreeMap<&'a str, usize>,
    /// Blobs in the order in which they were made that no layer has taken yet.
    open: Vec<&'a str>,
    /// Batch norms without the scale that belongs to them.
    unscaled: BTreeMap<usize, InputError>,
    losses: u32,
    sketch: Sketch,
}

/// The model in `text`, the content of `file`.
pub(super) fn parse(file: &str, text: &str) -> Result<Model, InputError> {
    let net = Source { file, text }.read()?;
    net.allow(&[TOP])?;
    let stem = || Path::new(file).file_stem().map_or("caffe".into(), |stem| stem.to_string_lossy().into_owned());
    let name = match net.text("name")? {
        "" => stem(),
        name => name.split_whitespace().collect::<Vec<_>>().join("-"),
    };
    let mut import = Import {
        blobs: BTreeMap::new(),
        open: Vec::new(),
        unscaled: BTreeMap::new(),
        losses: 0,
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
    Model::build(name, "Caffe network definition".to_owned(), import.sketch.finish())
}

/// Whether a layer takes part in training.
fn in_training(layer: &Message<'_>) -> Result<bool, InputError> {
    let train = |rule: &str, without: bool| {
        let mut found = without;
        for field in layer.all(rule) {
            let rule = field.message()?;
            rule.allow(&[&["phase"]])?;
            found = rule.word("phase", "TRAIN")? == "TRAIN";
            if found {
                break;
            }
        }
        Ok::<bool, InputError>(found)
    };
    Ok(train("include", true)? && !train("exclude", false)?)
}

impl<'a> Import<'a> {
    /// The input that a file to deploy states before its layers.
    fn input(&mut self, net: &Message<'a>) -> Result<(), InputError> {
        let mut names = net.all("input");
        let Some(name) = names.next() else { return Ok(()) };
        if let Some(second) = names.next() {
            return Err(second.error("is a second input: a model has one"));
        }
        let mut dims: Vec<u32> = net.all("input_dim").map(|field| field.size()).collect::<Result<_, _>>()?;
        if dims.is_empty() {
            let shape = net.message("input_shape")?;
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
        let shape = Shape { channels, height, width };
        if !self.blobs.is_empty() || sides.len() > 2 {
            return Err(place.error(blob, "a model has one input of at most four dimensions, before all layers"));
        }
        self.add(blob, "input", Layer::input(shape), Vec::new(), Inits::default(), 1.0, place)
    }

    /// Adds what a layer of the file is.
    fn layer(&mut self, layer: &Message<'a>) -> Result<(), InputError> {
        let kind = layer.get("type").map_or(Ok(""), |field| field.name_of_type())?;
        let name = layer.text("name")?;
        let texts = |field: &str| layer.all(field).map(|blob| blob.text()).collect::<Result<Vec<_>, _>>();
        let (bottoms, tops) = (texts("bottom")?, texts("top")?);
        let refuse = |message: String| layer.error(format!("{kind} \"{name}\""), message);
        let inputs: Vec<usize> = bottoms.iter().filter_map(|bottom| self.blobs.get(bottom).copied()).collect();
        let shapes: Vec<Shape> = inputs.iter().map(|input| self.sketch.shape(*input)).collect();
        let first = || inputs.first().copied().ok_or_else(|| refuse("takes nothing: give it a bottom".to_owned()));
        let top = || tops.first().copied().ok_or_else(|| refuse("makes nothing: give it a top".to_owned()));
        let meaning = layers::meaning(kind, layer, &shapes)?;
        // A loss takes labels too, which a net to deploy does not say where from.
        let needed = if matches!(&meaning, Meaning::Layer(made, _) if made.is_loss()) {
            bottoms.get(..1).unwrap_or(&[])
        } else {
            &bottoms
        };
        let unknown = needed.iter().find(|bottom| !self.blobs.contains_key(*bottom));
        if let (Some(bottom), false) = (unknown, matches!(meaning, Meaning::Nothing)) {
            return Err(refuse(format!("takes \"{bottom}\", which no layer before it makes in training")));
        }
        match meaning {
            Meaning::Nothing => return Ok(()),
            Meaning::Samples(dims) => {
                return self.samples(top()?, &dims, layer);
            }
            Meaning::Copies => {
                let of = first()?;
                self.taken(&bottoms);
                for top in tops {
                    self.made(top, of);
                }
            }
            Meaning::Softmax => {
                // At the end of a net to deploy it belongs to the loss, which `end` adds.
                let of = first()?;
                self.taken(&bottoms);
                self.made(top()?, of);
            }
            Meaning::Layer(Layer::Scale(Scale { bias }), _) if self.has_statistics(first()?) => {
                let of = first()?;
                if self.unscaled.remove(&of).is_none() || !bias {
                    return Err(refuse("a batch norm has one scale here, and that has a bias_term".to_owned()));
                }
                self.taken(&bottoms);
                self.made(top()?, of);
            }
            Meaning::Layer(made, inits) if made.is_loss() => {
                let of = first()?;
                self.taken(&bottoms);
                let weight = layer.number("loss_weight", 1.0)?;
                if weight <= 0.0 {
                    return Err(refuse("loss_weight must be positive: leave the layer out".to_owned()));
                }
                self.losses += 1;
                let top = tops.first().copied().unwrap_or(name);
                self.add(top, name, made, vec![of], inits, weight, layer)?;
                self.open.retain(|blob| *blob != top);
            }
            Meaning::Layer(made, inits) => {
                first()?;
                self.taken(&bottoms);
                let norm = made.rule().kind().statistics;
                self.add(top()?, name, made, inputs, inits, 1.0, layer)?;
                if norm {
                    let message = "has no scale behind it, which batch norm has here: add a Scale with bias_term: true";
                    self.unscaled.insert(self.blobs[top()?], refuse(message.to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Whether a layer is a batch norm.
    fn has_statistics(&self, index: usize) -> bool {
        self.sketch.layer(index).rule().kind().statistics
    }

    /// A net to deploy ends in its scores: they get a loss.
    fn end(&mut self, net: &Message<'a>) -> Result<(), InputError> {
        if let Some((_, error)) = self.unscaled.pop_first() {
            return Err(error);
        }
        if self.losses > 0 {
            return Ok(());
        }
        let [scores] = self.open[..] else {
            let message = "a net without a loss must end in one blob, its scores: add a SoftmaxWithLoss";
            return Err(net.error(format!("blobs {:?}", self.open), message));
        };
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
        // The sketch numbers these two names where a layer of the file has them; the first of each is ours to give.
        let name = match &layer {
            input if input.is_input() => "input".to_owned(),
            _ if name == "loss" && self.losses <= 1 && layer.is_loss() => "loss".to_owned(),
            _ => self.sketch.name(name, kind),
        };
        let draft = Draft { name: name.clone(), layer, inputs, inits, loss_weight, place };
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
