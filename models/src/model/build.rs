//! Builds a model from drafts: order, shapes, parameters and the checks that need the whole DAG.
//!
//! Every source of a [`Model`] (a file, a random generator, other formats) ends here, so a rule holds for all of them.

use lockstep_topology::{ErrorPlace, InputError};
use petgraph::graph::{DiGraph, NodeIndex};

use super::order::order;
use super::tie::owner;
use super::{LayerId, Model, Multipliers, Node, Parameter};
use crate::layer::{Inits, Learned, Signature};
use crate::{Dimension, Layer, Shape};

/// Most learnable numbers in a model: 4 TiB of fp32.
const MAX_PARAMETERS: u64 = 1 << 40;

/// A layer that has not been checked.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Unique name.
    pub name: String,
    /// What it computes.
    pub layer: Layer,
    /// Indices of the drafts that feed it.
    pub inputs: Vec<usize>,
    /// How its parameters start.
    pub inits: Inits,
    /// Factors of the rate and the decay of its parameters, in their order; those that are missing have none.
    pub multipliers: Vec<Multipliers>,
    /// The weight of a loss in the sum of losses.
    pub loss_weight: f32,
    /// File and line.
    pub place: ErrorPlace,
}

impl Draft {
    fn error(&self, message: impl Into<String>) -> InputError {
        InputError::new(&self.place, format!("{} ({})", self.name, self.layer.kind()), message)
    }
}

impl Model {
    /// The model of `drafts`, the first of which is its input; names are unique.
    ///
    /// # Errors
    /// A cycle, shapes that do not fit, losses that differ, fewer entries or scores than tokens, or too many parameters, at the
    /// place of the draft.
    pub fn build(name: String, source: String, drafts: Vec<Draft>) -> Result<Model, InputError> {
        let (model, order) = Model::assemble(name, source, &drafts)?;
        check_tokens(&model.nodes, |index| &drafts[order[index]])?;
        Ok(model)
    }

    /// The same for a rank's part, which may have some of the entries and scores alone.
    pub(super) fn build_part(name: String, source: String, drafts: &[Draft]) -> Result<Model, InputError> {
        Model::assemble(name, source, drafts).map(|(model, _)| model)
    }

    /// The model, and the index of each layer's draft.
    fn assemble(name: String, source: String, drafts: &[Draft]) -> Result<(Model, Vec<usize>), InputError> {
        check_inputs(drafts)?;
        let mut links: DiGraph<(), ()> = DiGraph::with_capacity(drafts.len(), drafts.len());
        drafts.iter().for_each(|_| {
            links.add_node(());
        });
        for (index, draft) in drafts.iter().enumerate() {
            for input in &draft.inputs {
                links.add_edge(NodeIndex::new(*input), NodeIndex::new(index), ());
            }
        }
        let order = order(&links).map_err(|cycle| {
            let first = &drafts[cycle[0]];
            let mut names: Vec<&str> = cycle.iter().map(|index| drafts[*index].name.as_str()).collect();
            names.push(&first.name);
            first.error(format!("the model has a cycle: {}: change the inputs of one of them", names.join(" → ")))
        })?;
        check_ends(drafts, &links)?;

        let mut position = vec![0; drafts.len()];
        order.iter().enumerate().for_each(|(place, index)| position[*index] = place as u32);
        let mut arenas = Arenas::default();
        let mut nodes: Vec<Node> = Vec::with_capacity(drafts.len());
        for index in &order {
            let draft = &drafts[*index];
            let inputs: Vec<LayerId> = draft.inputs.iter().map(|input| LayerId(position[*input])).collect();
            let input_shapes: Vec<Shape> = inputs.iter().map(|id| nodes[id.index()].output).collect();
            let signature = draft.layer.signature(&input_shapes).map_err(|message| draft.error(message))?;
            let output = signature.output_shape();
            let wanted = signature.parameter_shapes().next();
            let tied_to = draft.layer.rule().tie().map(|name| owner(&nodes, name, wanted));
            let tied_to = tied_to.transpose().map_err(|message| draft.error(message))?;
            let parameters = if tied_to.is_some() { Vec::new() } else { arenas.parameters(draft, &signature)? };
            let statistics = draft.layer.rule().kind().statistics.then(|| {
                let start = arenas.statistics;
                arenas.statistics += 2 * u64::from(output.features());
                start..arenas.statistics
            });
            nodes.push(Node {
                name: draft.name.clone(),
                layer: draft.layer.clone(),
                inputs,
                input_shapes,
                output,
                signature,
                parameters,
                tied_to,
                statistics,
                loss_weight: draft.loss_weight,
            });
        }
        check_integers(&nodes, |index| &drafts[order[index]])?;
        check_classes(&nodes, |index| &drafts[order[index]])?;
        Ok((link(name, source, nodes, &arenas), order))
    }
}

impl Node {
    /// A layer outside any model, for inputs of these shapes; its parameters follow from them, so its work is known.
    ///
    /// # Errors
    /// Shapes that the layer cannot take.
    ///
    /// ```
    /// # use lockstep_models::{Dense, Layer, Node, Pass, Shape};
    /// let dense = Layer::Dense(Dense { out_features: 10, bias: true });
    /// let node = Node::alone(dense, vec![Shape::flat(500)])?;
    /// assert_eq!(node.work(Pass::Forward, 2).flops, 2.0 * 2.0 * 10.0 * 500.0);
    /// # Ok::<(), String>(())
    /// ```
    pub fn alone(layer: Layer, input_shapes: Vec<Shape>) -> Result<Node, String> {
        let signature = layer.signature(&input_shapes)?;
        let output = signature.output_shape();
        let (inits, place) = (Inits::default(), ErrorPlace::None);
        let (name, inputs, multipliers) = Default::default();
        let draft = Draft { name, layer, inputs, inits, multipliers, loss_weight: 1.0, place };
        let parameters = Arenas::default().parameters(&draft, &signature).map_err(|error| error.message)?;
        let Draft { name, layer, loss_weight, .. } = draft;
        let (inputs, statistics, tied_to) = (Vec::new(), None, None);
        Ok(Node { name, layer, inputs, input_shapes, output, signature, parameters, tied_to, statistics, loss_weight })
    }
}

/// The model of valid nodes: derives consumers, and where gradients must flow.
fn link(name: String, source: String, nodes: Vec<Node>, arenas: &Arenas) -> Model {
    let mut consumers = vec![Vec::new(); nodes.len()];
    let mut graph = DiGraph::with_capacity(nodes.len(), nodes.len());
    let mut needs_input_gradient = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        let id = LayerId(index as u32);
        let this = graph.add_node(id);
        for input in &node.inputs {
            consumers[input.index()].push(id);
            graph.add_edge(NodeIndex::new(input.index()), this, ());
        }
        let learns =
            |input: &LayerId| !nodes[input.index()].parameters.is_empty() || needs_input_gradient[input.index()];
        let needed = node.inputs.iter().any(learns);
        needs_input_gradient.push(needed);
    }
    Model {
        name,
        source,
        architecture: None,
        notes: Vec::new(),
        nodes,
        consumers,
        graph,
        needs_input_gradient,
        parameter_elements: arenas.parameters,
        statistics_elements: arenas.statistics,
    }
}

/// One input layer, the first; no layer feeds another twice.
fn check_inputs(drafts: &[Draft]) -> Result<(), InputError> {
    for (index, draft) in drafts.iter().enumerate() {
        if draft.layer.is_input() != (index == 0) {
            return Err(draft.error("a model has exactly one input layer, its first"));
        }
        for (place, input) in draft.inputs.iter().enumerate() {
            if draft.inputs[..place].contains(input) {
                let name = &drafts[*input].name;
                return Err(draft.error(format!("has \"{name}\" as input twice: name each input once")));
            }
        }
    }
    Ok(())
}

/// Layers compute with values, unless their kind reads integers.
fn check_integers<'a>(nodes: &[Node], draft: impl Fn(usize) -> &'a Draft) -> Result<(), InputError> {
    let Some(sample) = nodes.first().and_then(|node| node.layer.sample()) else { return Ok(()) };
    let dtype = sample.dtype;
    let wrong = |node: &Node| node.inputs.contains(&LayerId(0)) && !node.layer.rule().kind().reads_integers;
    match nodes.iter().position(wrong).filter(|_| dtype.is_integer()) {
        None => Ok(()),
        Some(index) => {
            let message = format!("computes with values, and the samples are {sample}: give it fp32");
            Err(draft(index).error(message))
        }
    }
}

/// All losses have the same labels.
fn check_classes<'a>(nodes: &[Node], draft: impl Fn(usize) -> &'a Draft) -> Result<(), InputError> {
    let classes = Node::classes;
    let Some(last) = nodes.last() else { return Ok(()) };
    match nodes.iter().position(|node| node.layer.is_loss() && classes(node) != classes(last)) {
        None => match nodes.iter().position(|node| node.layer.is_loss() && node.labels() != last.labels()) {
            None => Ok(()),
            Some(index) => Err(draft(index).error("takes other labels than the last loss: give both the same scores")),
        },
        Some(index) => {
            let (own, wanted) = (classes(&nodes[index]), classes(last));
            let message = format!("tells {own} classes apart, but the last loss {wanted}: give both as many scores");
            Err(draft(index).error(message))
        }
    }
}

/// A table that tokens are looked up in has an entry for each of them, and a loss at each position a score.
fn check_tokens<'a>(nodes: &[Node], draft: impl Fn(usize) -> &'a Draft) -> Result<(), InputError> {
    let Some(tokens) = nodes.first().and_then(|node| node.layer.tokens()) else { return Ok(()) };
    for (index, node) in nodes.iter().enumerate() {
        if let Layer::Embedding(table) = &node.layer
            && node.inputs.contains(&LayerId(0))
            && table.entries < tokens
        {
            let message = format!("has {} entries for {tokens} tokens: give it as many or more", table.entries);
            return Err(draft(index).error(message));
        }
        let scores = if node.layer.is_loss() { node.classes() } else { continue };
        if scores < tokens && node.labels().is_some_and(|labels| labels.shape.has(Dimension::Position)) {
            let message =
                format!("has scores of {scores} of {tokens} tokens: give the layer before it as many or more");
            return Err(draft(index).error(message));
        }
    }
    Ok(())
}

/// Every output is a loss.
fn check_ends(drafts: &[Draft], links: &DiGraph<(), ()>) -> Result<(), InputError> {
    let used = |index: &usize| links.neighbors(NodeIndex::new(*index)).next().is_some();
    let ends: Vec<usize> = (0..drafts.len()).filter(|index| !used(index)).collect();
    let is_loss = |draft: &Draft| draft.layer.is_loss();
    if let (true, Some(stray)) = (ends.len() > 1, ends.iter().map(|end| &drafts[*end]).find(|draft| !is_loss(draft))) {
        let names: Vec<String> = ends.iter().map(|end| format!("\"{}\"", drafts[*end].name)).collect();
        let message = format!(
            "nothing uses its output, so the model has {} outputs ({}): use it as an input, remove it, or end it in a loss",
            ends.len(),
            names.join(", ")
        );
        return Err(stray.error(message));
    }
    if let Some(loss) = (0..drafts.len()).filter(used).map(|index| &drafts[index]).find(|draft| is_loss(draft)) {
        return Err(loss.error("the loss must be the last layer: no other layer can use it as an input"));
    }
    match ends.first().map(|end| &drafts[*end]) {
        Some(end) if !is_loss(end) => {
            Err(end.error("the model ends without a loss: add a last layer of kind = \"softmax_cross_entropy\""))
        }
        _ => Ok(()),
    }
}

/// The numbers of elements used so far in the arenas.
#[derive(Debug, Default)]
struct Arenas {
    parameters: u64,
    statistics: u64,
}

impl Arenas {
    /// The parameters of a layer.
    fn parameters(&mut self, draft: &Draft, signature: &Signature) -> Result<Vec<Parameter>, InputError> {
        let tensors = draft.layer.rule().parameters(&draft.inits);
        assert_eq!(tensors.len(), signature.parameters.len(), "{} names its parameters", draft.layer.kind());
        let mut parameters = Vec::with_capacity(tensors.len());
        for (index, (Learned { name, init, decay }, shape)) in
            tensors.into_iter().zip(signature.parameter_shapes()).enumerate()
        {
            let elements = shape.elements();
            let end = self.parameters.saturating_add(elements);
            if end > MAX_PARAMETERS {
                let message = format!("its {name} of {elements} elements makes a model of more than {MAX_PARAMETERS}");
                return Err(draft.error(format!("{message} parameters: make it smaller")));
            }
            let name = format!("{}.{name}", draft.name);
            let multipliers = draft.multipliers.get(index).copied().unwrap_or(Multipliers::NONE);
            parameters.push(Parameter { name, shape, range: self.parameters..end, init, decay, multipliers });
            self.parameters = end;
        }
        Ok(parameters)
    }
}

#[cfg(test)]
mod tests;
