//! Determines the layouts of the outputs and gradients of a model's layers when some are split, and the gathers
//! that these need.

use lockstep_topology::InputError;

use super::super::{LayerId, Model, Node};
use super::{FEATURES, Gather, SAMPLES};
use crate::AxisLayout;
use crate::layer::Features;

/// The layout of each layer's output for its consumers, and whether it keeps columns.
pub(super) fn outputs(
    whole: &Model,
    ranks: u32,
    front: &dyn Fn(LayerId) -> bool,
    pairs: bool,
) -> Result<(Vec<AxisLayout>, Vec<bool>), InputError> {
    let (mut layouts, mut columns, mut padded): (Vec<AxisLayout>, Vec<bool>, Vec<bool>) = Default::default();
    for (id, node) in whole.iter() {
        let split_inputs = node.inputs.iter().all(|input| layouts[input.index()] == FEATURES);
        let before_vector = whole.consumers(id).iter().all(|id| whole.node(*id).layer.rule().kind().flattens);
        let rows = node.layer.rule().share(ranks).is_some();
        let padding = |input: &LayerId| padded[input.index()];
        // A padded feature would have to keep its column unchanged.
        let by_columns = pairs && split_inputs && rows && !front(id) && !node.inputs.iter().any(padding);
        padded.push(if rows { !node.output.features().is_multiple_of(ranks) } else { node.inputs.iter().any(padding) });
        columns.push(by_columns);
        layouts.push(if front(id) {
            SAMPLES
        } else {
            match node.signature.features() {
                Features::Groups => {
                    return Err(refusal(node, "has groups, whose channels do not see each other"));
                }
                Features::Rows if by_columns => AxisLayout::Replicated,
                Features::Rows if node.output.features() < ranks => return Err(too_few_rows(node, ranks)),
                Features::Rows => FEATURES,
                // A view before dense layers, which need all channels, is then no copy.
                Features::Follow if split_inputs && !(before_vector && node.layer.rule().kind().is_view) => FEATURES,
                Features::Follow | Features::Whole => AxisLayout::Replicated,
            }
        });
    }
    Ok((layouts, columns))
}

fn too_few_rows(node: &Node, ranks: u32) -> InputError {
    let rows = node.output.features();
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

/// A model whose layers are split, before gathers are added.
pub(super) struct Cut<'a> {
    pub(super) whole: &'a Model,
    /// By layer: the layout of its output for its consumers.
    pub(super) outputs: &'a [AxisLayout],
    /// By layer: whether it keeps columns.
    pub(super) columns: &'a [bool],
    /// Whether partial gradients are summed where they arise.
    pub(super) pairs: bool,
}

/// The layout of the gradient of each layer's output: a partial sum where a rank computes it with its own rows only. It
/// stays one through layers without weights, whose backward passes are linear in it.
pub(super) fn gradients(cut: &Cut<'_>) -> Result<Vec<AxisLayout>, InputError> {
    let mut layouts = cut.outputs.to_vec();
    for (id, node) in cut.whole.iter().rev() {
        if cut.outputs[id.index()] != AxisLayout::Replicated || node.layer.is_loss() {
            continue;
        }
        let consumers = cut.whole.consumers(id);
        let partial =
            |consumer: &LayerId| !cut.returns(id, *consumer) && cut.gives(&layouts, *consumer) == AxisLayout::Partial;
        let count = consumers.iter().filter(|consumer| partial(consumer)).count();
        if count > 0 && count < consumers.len() {
            return Err(refusal(node, "feeds layers that are split and a loss that is not"));
        }
        if count > 0 && !node.parameters.is_empty() {
            return Err(refusal(node, "has parameters, of whose gradient each rank has a part"));
        }
        layouts[id.index()] = if count > 0 { AxisLayout::Partial } else { AxisLayout::Replicated };
    }
    Ok(layouts)
}

impl Cut<'_> {
    /// The layout of the gradient that `consumer` computes of an input which all ranks have in full.
    fn gives(&self, gradients: &[AxisLayout], consumer: LayerId) -> AxisLayout {
        let split = self.outputs[consumer.index()] == FEATURES;
        match self.whole.node(consumer).layer.is_loss() {
            true => AxisLayout::Replicated,
            false if split => AxisLayout::Partial,
            false => gradients[consumer.index()],
        }
    }

    /// Whether the gradient of `input` from `consumer` is summed over the ranks before it is used.
    fn returns(&self, input: LayerId, consumer: LayerId) -> bool {
        let rows = self.whole.node(consumer).is_product() && self.outputs[consumer.index()] == FEATURES;
        let learns = self.whole.needs_input_gradient(consumer);
        self.pairs && rows && learns && self.outputs[input.index()] == AxisLayout::Replicated
    }

    /// The gather that must precede `consumer` where it takes `input`.
    pub(super) fn gather(&self, gradients: &[AxisLayout], input: LayerId, consumer: LayerId) -> Option<Gather> {
        let weighs = self.whole.node(consumer).is_product();
        match (self.outputs[input.index()], self.outputs[consumer.index()]) {
            _ if self.returns(input, consumer) => Some(Gather::Returns),
            (FEATURES, _) if self.columns[consumer.index()] => None,
            (SAMPLES, AxisLayout::Replicated | FEATURES) => Some(Gather::Samples),
            (FEATURES, FEATURES) if weighs => Some(Gather::Features),
            (FEATURES, AxisLayout::Replicated) => {
                let partial = self.gives(gradients, consumer) == AxisLayout::Partial;
                Some(if partial { Gather::Features } else { Gather::Scores })
            }
            _ => None,
        }
    }
}
