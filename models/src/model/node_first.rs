//! Builds the model of a rank where each node computes losses on its first rank alone: gathers collect the scores
//! before each loss.
//!
//! Losses come after all other layers, so at the end of the forward pass each gather is followed by its loss.

use lockstep_topology::InputError;

use super::shard::draft;
use super::{LayerId, Model, ShardLayer};
use crate::{Axis, AxisLayout, AxisSet, Dimension, Layer, Layout};

/// Nodes, and the devices of each.
const NODE_AXES: AxisSet = AxisSet::of(&[Axis::Data, Axis::Device]);
/// Samples of all of a node's ranks on its first one.
pub(crate) const NODE_FIRST: Layout =
    Layout::new(NODE_AXES, AxisLayout::Split(Dimension::Sample)).with(Axis::Device, AxisLayout::First);

/// `whole` with a gather before the scores that losses take, and the layout of each layer.
///
/// # Errors
/// Scores that other layers take as well: their gradient would be a sum in another order.
pub fn node_first(whole: &Model) -> Result<(Model, Vec<ShardLayer>), InputError> {
    whole.refuse_tie(("strategy", "first-device-table".to_owned(), "computes losses on one rank of a node"))?;
    let (mut drafts, mut layers) = (Vec::new(), Vec::new());
    let weights = AxisLayout::Replicated;
    let is_loss = |id: &LayerId| whole.node(*id).layer.is_loss();
    let mut place = vec![0; whole.layers().len()];
    for (id, node) in whole.iter().filter(|(id, _)| !is_loss(id)) {
        place[id.index()] = drafts.len();
        let inputs = node.inputs.iter().map(|input| place[input.index()]).collect();
        drafts.push(draft(node.name.clone(), node.layer.clone(), inputs, node.loss_weight));
        let layout = Layout::new(NODE_AXES, AxisLayout::Split(Dimension::Sample));
        layers.push(ShardLayer { origin: id, output: layout, gradient: layout, weights });
    }
    let at_first = |origin| ShardLayer { origin, output: NODE_FIRST, gradient: NODE_FIRST, weights };
    let mut gathered: Vec<(LayerId, usize)> = Vec::new();
    for (id, node) in whole.iter().filter(|(id, _)| is_loss(id)) {
        let scores = node.inputs[0];
        if !whole.consumers(scores).iter().all(is_loss) {
            let message = format!(
                "{} goes to {} and to other layers, which a loss on the first rank does not allow for: use ssgd",
                whole.node(scores).name,
                node.name
            );
            return Err(InputError::flag("strategy", "first-device-table", message));
        }
        let known = gathered.iter().find(|(of, _)| *of == scores).map(|(_, at)| *at);
        let gather = known.unwrap_or_else(|| {
            let from = whole.node(scores);
            let inputs = vec![place[scores.index()]];
            drafts.push(draft(format!("{} gathered", from.name), Layer::relayout(from.output), inputs, 1.0));
            layers.push(at_first(scores));
            gathered.push((scores, drafts.len() - 1));
            drafts.len() - 1
        });
        drafts.push(draft(node.name.clone(), node.layer.clone(), vec![gather], node.loss_weight));
        layers.push(at_first(id));
    }
    let model = Model::build(whole.name().to_owned(), whole.source().to_owned(), drafts)?;
    Ok((model, layers))
}
