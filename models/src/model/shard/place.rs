//! `place`: decides from a table and the layers' signatures where the tensors of each layer lie along an axis.
//!
//! Layers are placed in order. A layer whose weights the table splits works on the part of an index that they name; another
//! one keeps a layout that all its inputs have, where its signature leaves the index free, or has the one that the table gives.
//! The order of a row's entries decides, never a size, so a model's layouts do not change with its dimensions. What a layer
//! needs of its inputs and what it gives back of their gradients then follows from the index; where that differs from what
//! the producer has, the layout changes in between.

use lockstep_topology::InputError;

use super::super::{LayerId, Model, Node, Tie};
use super::table::{Entry, Table};
use super::{COLUMNS, FEATURES, SAMPLES, VOCABULARY};
use crate::layer::{Features, IndexUse, Pass};
use crate::{AxisLayout, Dimension};

const WHOLE: AxisLayout = AxisLayout::Replicated;

/// What each rank computes of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All of it.
    Whole,
    /// Its own samples.
    Samples,
    /// A part of an index of the signature.
    Index(usize),
}

/// Where the tensors of a layer lie.
#[derive(Debug, Clone, Copy)]
struct Placed {
    part: Part,
    /// Of its weights.
    weights: AxisLayout,
    /// Of its output as it makes it, and as its consumers find it.
    made: AxisLayout,
    output: AxisLayout,
    /// Of the gradient of its output as its consumers leave it.
    gradient: AxisLayout,
}

/// A model whose layers are placed.
pub(super) struct Placement<'a> {
    whole: &'a Model,
    table: &'a Table,
    ranks: u32,
    /// Parts into which the rows of each sample are split where ranks have samples of their own.
    sample_parts: u32,
    layers: Vec<Placed>,
    /// By layer: whether the last rank's part of its features is shorter.
    padded: Vec<bool>,
}

/// What a layer needs of an input, and what it gives back of the input's gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) input: AxisLayout,
    pub(super) gradient: AxisLayout,
}

/// Places the layers of `whole` on `ranks` ranks along an axis; where they have samples of their own, each is one of
/// `sample_parts` equal parts of the rows of one, which may be all of it.
///
/// # Errors
/// A row that names no layer, and layers that no entry of their row serves.
pub(super) fn place<'a>(
    whole: &'a Model,
    table: &'a Table,
    (ranks, sample_parts): (u32, u32),
) -> Result<Placement<'a>, InputError> {
    table.check(whole)?;
    let mut placement = Placement { whole, table, ranks, sample_parts, layers: Vec::new(), padded: Vec::new() };
    for (id, node) in whole.iter() {
        let part = placement.part(id, node)?;
        let (made, weights) = placement.made(node, part);
        let output = if made == AxisLayout::Partial { placement.sum(id, node) } else { made };
        placement.layers.push(Placed { part, weights, made, output, gradient: output });
        let padded = placement.is_padded(node, output);
        placement.padded.push(padded);
    }
    for (id, node) in whole.iter().rev() {
        if placement.layers[id.index()].output == WHOLE {
            placement.layers[id.index()].gradient = placement.gradient_of_whole(id, node);
        }
    }
    Ok(placement)
}

impl Placement<'_> {
    /// The layout of the output of a layer as it makes it, and as its consumers find it.
    pub(super) fn outputs(&self, id: LayerId) -> (AxisLayout, AxisLayout) {
        let placed = &self.layers[id.index()];
        (placed.made, placed.output)
    }

    /// Whether ranks have the same part of a parameter for both layers that share it, and the same part of its gradient: entries of
    /// a table are rows of a matrix.
    pub(super) fn serves(&self, Tie { owner, reader }: Tie) -> bool {
        let sums = |id| self.outputs(id).0 == SAMPLES;
        match [owner, reader].map(|id| self.weights(id)) {
            [VOCABULARY, FEATURES] => true,
            [WHOLE, WHOLE] => sums(owner) == sums(reader),
            _ => false,
        }
    }

    /// Of its weights.
    pub(super) fn weights(&self, id: LayerId) -> AxisLayout {
        self.layers[id.index()].weights
    }

    /// The layout of the gradient of a layer's output as its consumers leave it.
    pub(super) fn gradient(&self, id: LayerId) -> AxisLayout {
        self.layers[id.index()].gradient
    }

    /// How input number `at` of `consumer` must change; `None` where it is used as it is.
    pub(super) fn change(&self, consumer: LayerId, at: usize) -> Option<Need> {
        let producer = self.layers[self.whole.node(consumer).inputs[at].index()];
        let need = self.need(consumer, at);
        let returned = self.whole.needs_input_gradient(consumer) && need.gradient != producer.gradient;
        (need.input != producer.output || returned).then_some(need)
    }

    fn need(&self, consumer: LayerId, at: usize) -> Need {
        let (node, placed) = (self.whole.node(consumer), &self.layers[consumer.index()]);
        match placed.part {
            Part::Samples => Need { input: SAMPLES, gradient: SAMPLES },
            Part::Index(index) => {
                let of = |pass| node.signature.layouts(pass, index).expect("an index that a layer may split");
                let (forward, backward) = (of(Pass::Forward), of(Pass::BackwardData));
                Need { input: forward.inputs[at], gradient: backward.made[at] }
            }
            Part::Whole if node.layer.is_loss() => Need { input: WHOLE, gradient: WHOLE },
            // A pass that all ranks run is linear in the gradient.
            Part::Whole => Need { input: WHOLE, gradient: placed.gradient },
        }
    }

    /// The gradient of an output that all ranks have: summands as long as all consumers give such and no parameters need it.
    fn gradient_of_whole(&self, id: LayerId, node: &Node) -> AxisLayout {
        let partial = |consumer: &LayerId| {
            let inputs = self.whole.node(*consumer).inputs.iter().enumerate();
            let mut own = inputs.filter(|(_, input)| **input == id);
            own.all(|(at, _)| self.need(*consumer, at).gradient == AxisLayout::Partial)
        };
        let consumers = self.whole.consumers(id);
        let stays = !self.table.has_whole_gradient(id, node) && node.parameters.is_empty() && !consumers.is_empty();
        if stays && consumers.iter().all(partial) { AxisLayout::Partial } else { WHOLE }
    }

    fn part(&self, id: LayerId, node: &Node) -> Result<Part, InputError> {
        let of_weights = |entry: &&Entry| match entry {
            Entry::If(VOCABULARY) | Entry::Always(VOCABULARY) => looked_up(node).is_some(),
            _ => node.is_product() || merged(node).is_some() && !node.signature.parameters.is_empty(),
        };
        for entry in self.table.of_weights(id, node).iter().filter(of_weights) {
            if node.signature.features() == Features::Groups {
                let why = "has groups, whose channels do not see each other";
                return Err(refusal(node, why));
            }
            let possible = match entry {
                Entry::Always(VOCABULARY) => true,
                Entry::If(COLUMNS) | Entry::Always(COLUMNS) if contracted(node).is_none() => false,
                Entry::If(COLUMNS) => self.inputs_are(node, FEATURES) && !self.has_padded_input(node),
                Entry::Always(COLUMNS) => self.input_divides(node),
                Entry::Always(FEATURES) if rows(node) < self.ranks => {
                    return Err(too_few_rows(node, self.ranks));
                }
                Entry::Always(FEATURES) => true,
                Entry::If(_) | Entry::Always(_) => false,
            };
            if let (true, Entry::If(layout) | Entry::Always(layout)) = (possible, *entry) {
                let index = match layout {
                    VOCABULARY => looked_up(node),
                    COLUMNS => contracted(node),
                    _ => own_feature(node),
                };
                return index.map(Part::Index).ok_or_else(|| self.unserved(node, layout));
            }
        }
        for entry in self.table.of_output(id, node) {
            if let Some(part) = self.possible(node, *entry) {
                return Ok(part);
            }
        }
        Err(self.unserved(node, FEATURES))
    }

    /// What a rank computes of a layer if an entry gives the layout of its output.
    fn possible(&self, node: &Node, entry: Entry) -> Option<Part> {
        // A view before layers that need all features is no copy if it has them all.
        let is_view_of_vector = || {
            let id = LayerId(self.layers.len() as u32);
            let mut consumers = self.whole.consumers(id).iter();
            node.layer.rule().kind().is_view && consumers.all(|id| self.whole.node(*id).layer.rule().kind().flattens)
        };
        match entry {
            Entry::Always(WHOLE) => Some(Part::Whole),
            Entry::If(FEATURES) if !self.inputs_suit(node) || is_view_of_vector() => None,
            Entry::If(FEATURES) => self.follows(node),
            Entry::Always(FEATURES) => self.follows(node),
            Entry::If(SAMPLES) if !self.inputs_are(node, SAMPLES) => None,
            Entry::If(SAMPLES) | Entry::Always(SAMPLES) => self.takes_samples(node).then_some(Part::Samples),
            _ => None,
        }
    }

    /// The features of a layer that follow one by one from those of its inputs.
    fn follows(&self, node: &Node) -> Option<Part> {
        let index = own_feature(node)?;
        if node.signature.indices[index].usage == IndexUse::Merged {
            return Some(Part::Index(index));
        }
        let features = node.signature.output.iter().filter(|(_, of)| *of == Dimension::Feature);
        // Heads and groups stay whole.
        let divides = features.count() == 1 || node.signature.indices[index].size.is_multiple_of(self.ranks.into());
        let follows = match node.signature.features() {
            Features::Follow => divides,
            Features::Groups => divides && !node.is_product(),
            Features::Rows | Features::Whole => false,
        };
        follows.then_some(Part::Index(index))
    }

    /// Whether ranks may each take some of the samples: a part of a batch has other statistics than the whole, and a loss's
    /// labels are those of the whole batch. Of parts of samples each row must be for itself.
    fn takes_samples(&self, node: &Node) -> bool {
        let own_batches = self.layers.first().is_none_or(|input| input.part == Part::Samples);
        let kind = node.layer.rule().kind();
        let of_batch = node.statistics.is_some() || kind.is_loss || kind.reads_integers;
        (own_batches || !of_batch) && (self.sample_parts == 1 || has_free_rows(node, self.sample_parts))
    }

    /// Whether the inputs are as a part of the layer's own features needs them, some of them split.
    fn inputs_suit(&self, node: &Node) -> bool {
        let layouts = own_feature(node).and_then(|index| node.signature.layouts(Pass::Forward, index));
        let own = || node.inputs.iter().map(|input| self.layers[input.index()].output);
        layouts.is_some_and(|needed| own().eq(needed.inputs) && own().any(|layout| layout == FEATURES))
    }

    fn inputs_are(&self, node: &Node, layout: AxisLayout) -> bool {
        node.inputs.iter().all(|input| self.layers[input.index()].output == layout)
    }

    fn has_padded_input(&self, node: &Node) -> bool {
        node.inputs.iter().any(|input| self.padded[input.index()])
    }

    /// Whether ranks can have equal parts of the features of its inputs: a padded one would have to keep its column unchanged.
    fn input_divides(&self, node: &Node) -> bool {
        node.input_shapes.iter().all(|shape| shape.features().is_multiple_of(self.ranks))
            && !self.has_padded_input(node)
    }

    /// Whether the last rank's part of its output is shorter. Padding spreads to what follows from it.
    fn is_padded(&self, node: &Node, output: AxisLayout) -> bool {
        if node.is_product() || output == FEATURES && !self.inputs_are(node, FEATURES) {
            return !node.output.features().is_multiple_of(self.ranks);
        }
        self.has_padded_input(node)
    }

    /// The layouts of the output as a layer makes it, and of its weights.
    fn made(&self, node: &Node, part: Part) -> (AxisLayout, AxisLayout) {
        match part {
            Part::Whole => (WHOLE, WHOLE),
            Part::Samples => (SAMPLES, WHOLE),
            Part::Index(index) => {
                let of = node.signature.layouts(Pass::Forward, index).expect("an index that a layer may split");
                let weights = of.parameters.first().map_or(of.made[0], |weight| match weight {
                    AxisLayout::Split(Dimension::Output) => FEATURES,
                    other => *other,
                });
                (of.made[0], weights)
            }
        }
    }

    /// Where summands of an output are added up.
    fn sum(&self, id: LayerId, node: &Node) -> AxisLayout {
        let entries = self.table.of_output(id, node).iter();
        let mut wanted = entries.filter_map(|entry| match entry {
            Entry::Always(SAMPLES) if self.takes_samples(node) => Some(SAMPLES),
            Entry::Always(WHOLE) => Some(WHOLE),
            _ => None,
        });
        wanted.next().unwrap_or(WHOLE)
    }

    fn unserved(&self, node: &Node, wanted: AxisLayout) -> InputError {
        let may = node.signature.features();
        let served = match may {
            Features::Rows => "replicated, split(sample), split(feature), or weights split(input)",
            Features::Follow => "replicated, split(sample) or split(feature)",
            Features::Groups | Features::Whole => "replicated or split(sample)",
        };
        let why = format!("may be {served}, and the table leaves none of these (it asks for {wanted})");
        refusal(node, &why)
    }
}

/// The index of a layer's own features: the outermost of its output's, or the classes of a loss that ranks may share.
fn own_feature(node: &Node) -> Option<usize> {
    let own = node.signature.output.iter().find(|(_, dimension)| *dimension == Dimension::Feature);
    merged(node).or(own.map(|(index, _)| *index))
}

/// The index of the classes of a loss that ranks may share.
fn merged(node: &Node) -> Option<usize> {
    node.signature.indices.iter().position(|index| index.usage == IndexUse::Merged)
}

/// Whether a layer works on each row of a sample by itself, wherever it is, and `parts` divide the rows.
fn has_free_rows(node: &Node, parts: u32) -> bool {
    let signature = &node.signature;
    let is_free = |(index, _): &(usize, Dimension)| {
        let in_weights = signature.parameters.iter().flatten().any(|(own, _)| own == index);
        signature.indices[*index].usage == IndexUse::Free && !in_weights
    };
    let mut rows = signature
        .inputs
        .iter()
        .chain([&signature.output])
        .map(|operand| operand.iter().skip(1).take_while(|(_, dimension)| *dimension != Dimension::Feature));
    let divide = node.input_shapes.iter().chain([&node.output]).all(|shape| shape.part_of_rows(parts).is_some());
    divide && !node.layer.rule().kind().counts_places && rows.all(|mut rows| rows.all(is_free))
}

/// How many rows a layer has that ranks may share: features of its output, or classes.
fn rows(node: &Node) -> u32 {
    if merged(node).is_some() { node.classes() } else { node.output.features() }
}

/// The index over which a product sums its input's features.
fn contracted(node: &Node) -> Option<usize> {
    of_weight(node, IndexUse::Contracted)
}

/// The index of the entries of a table.
fn looked_up(node: &Node) -> Option<usize> {
    of_weight(node, IndexUse::LookedUp)
}

/// The index of a layer's weight that it uses in a way.
fn of_weight(node: &Node, usage: IndexUse) -> Option<usize> {
    let (signature, weight) = (&node.signature, node.signature.parameters.first()?);
    weight.iter().map(|(index, _)| *index).find(|index| signature.indices[*index].usage == usage)
}

fn too_few_rows(node: &Node, ranks: u32) -> InputError {
    let rows = rows(node);
    let message = format!("{} has {rows} rows, too few for {ranks} ranks: use at most {rows}", node.name);
    InputError::flag("ranks", ranks.to_string(), message)
}

fn refusal(node: &Node, why: &str) -> InputError {
    let message = format!(
        "{} ({}) {why}, so that it cannot be split by features: use another model, or ssgd",
        node.name,
        node.layer.kind()
    );
    InputError::flag("strategy", "", message)
}
