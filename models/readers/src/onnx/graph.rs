//! `Net`: the graph of an ONNX file as steps in an order in which each comes after those that it takes tensors from, with
//! the file's own functions replaced by what they are made of.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_topology::InputError;

use super::proto::{Attribute, File, Function, Graph, Node};

/// Most steps of a graph.
pub(super) const MAX_NODES: usize = 100_000;

/// Most functions inside one another.
const MAX_DEPTH: usize = 16;

/// A node of the graph.
#[derive(Debug, Clone, Default)]
pub(super) struct Step<'a> {
    pub(super) name: String,
    pub(super) op: &'a str,
    pub(super) domain: &'a str,
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
    pub(super) attributes: Vec<Attribute<'a>>,
    /// Which node of the file it is or comes from.
    pub(super) index: usize,
}

impl<'a> Step<'a> {
    fn new(node: &Node<'a>, index: usize) -> Step<'a> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Step {
            name: node.name.to_owned(),
            op: node.op,
            domain: node.domain,
            inputs: owned(&node.inputs),
            outputs: owned(&node.outputs),
            attributes: node.attributes.clone(),
            index,
        }
    }

    /// Its place in errors.
    pub(super) fn place(&self, file: &str) -> String {
        format!("{file}: node {}", self.index)
    }

    /// Its name in errors.
    pub(super) fn called(&self) -> String {
        let name = if self.name.is_empty() { self.outputs.first().map_or("", String::as_str) } else { &self.name };
        format!("{} \"{name}\"", self.op)
    }

    /// An error about it.
    pub(super) fn error(&self, file: &str, message: impl Into<String>) -> InputError {
        InputError::new(self.place(file), self.called(), message.into())
    }

    /// Input `place`, if it is given.
    pub(super) fn input(&self, place: usize) -> Option<&str> {
        self.inputs.get(place).map(String::as_str).filter(|name| !name.is_empty())
    }
}

/// The steps of the file's graph, in order.
pub(super) fn steps<'a>(name: &str, file: &File<'a>, graph: &Graph<'a>) -> Result<Vec<Step<'a>>, InputError> {
    let functions: BTreeMap<(&str, &str), &Function<'a>> =
        file.functions.iter().map(|function| ((function.domain, function.name), function)).collect();
    let mut unfold = Unfold { file: name, functions, steps: Vec::new() };
    for (index, node) in graph.nodes.iter().enumerate() {
        unfold.add(Step::new(node, index), 0)?;
    }
    ordered(name, unfold.steps)
}

/// The steps of a branch, in order.
pub(super) fn branch<'a>(file: &str, graph: &Graph<'a>, index: usize) -> Result<Vec<Step<'a>>, InputError> {
    ordered(file, graph.nodes.iter().map(|node| Step::new(node, index)).collect())
}

/// Replaces functions.
struct Unfold<'f, 'a> {
    file: &'f str,
    functions: BTreeMap<(&'a str, &'a str), &'f Function<'a>>,
    steps: Vec<Step<'a>>,
}

impl<'a> Unfold<'_, 'a> {
    fn add(&mut self, step: Step<'a>, depth: usize) -> Result<(), InputError> {
        let Some(function) = self.functions.get(&(step.domain, step.op)).copied() else {
            self.steps.push(step);
            if self.steps.len() > MAX_NODES {
                let message = format!("has more than {MAX_NODES} nodes: simplify it before export");
                return Err(InputError::new(self.file, "", message));
            }
            return Ok(());
        };
        if depth == MAX_DEPTH {
            return Err(
                step.error(self.file, format!("more than {MAX_DEPTH} functions inside one another: inline them"))
            );
        }
        let mut names: BTreeMap<&str, String> = BTreeMap::new();
        for (inner, outer) in [(&function.inputs, &step.inputs), (&function.outputs, &step.outputs)] {
            names.extend(inner.iter().zip(outer).map(|(inner, outer)| (*inner, outer.clone())));
        }
        let prefix = step.outputs.first().map_or("", String::as_str);
        let named = |name: &&str| match names.get(name) {
            Some(outer) => outer.clone(),
            // An input that the call leaves out stays empty.
            None if name.is_empty() || function.inputs.contains(name) => String::new(),
            None => format!("{prefix}/{name}"),
        };
        for node in &function.nodes {
            let attributes = node.attributes.iter().filter_map(|attribute| {
                if attribute.refers.is_empty() {
                    return Some(attribute.clone());
                }
                let mut given = step.attributes.iter().chain(&function.attributes);
                let value = given.find(|given| given.name == attribute.refers)?;
                Some(Attribute { name: attribute.name, ..value.clone() })
            });
            let inner = Step {
                name: if step.name.is_empty() { node.name.to_owned() } else { format!("{}/{}", step.name, node.name) },
                op: node.op,
                domain: node.domain,
                inputs: node.inputs.iter().map(named).collect(),
                outputs: node.outputs.iter().map(named).collect(),
                attributes: attributes.collect(),
                index: step.index,
            };
            self.add(inner, depth + 1)?;
        }
        Ok(())
    }
}

/// The steps in topological order, the file's where that is one.
fn ordered<'a>(file: &str, steps: Vec<Step<'a>>) -> Result<Vec<Step<'a>>, InputError> {
    let makers: BTreeMap<&str, usize> = steps
        .iter()
        .enumerate()
        .flat_map(|(index, step)| step.outputs.iter().map(move |name| (name.as_str(), index)))
        .filter(|(name, _)| !name.is_empty())
        .collect();
    let mut waits: Vec<usize> = vec![0; steps.len()];
    let mut takers: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (index, step) in steps.iter().enumerate() {
        let from: BTreeSet<usize> = step.inputs.iter().filter_map(|name| makers.get(name.as_str()).copied()).collect();
        waits[index] = from.len();
        from.into_iter().for_each(|maker| takers[maker].push(index));
    }
    let mut ready: BTreeSet<usize> = (0..steps.len()).filter(|index| waits[*index] == 0).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for taker in &takers[index] {
            waits[*taker] -= 1;
            if waits[*taker] == 0 {
                ready.insert(*taker);
            }
        }
    }
    if let Some(stuck) = (0..steps.len()).find(|index| waits[*index] > 0) {
        return Err(steps[stuck].error(file, "takes what it makes itself, directly or through others: break the cycle"));
    }
    let mut steps: Vec<Option<Step<'a>>> = steps.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|index| steps[index].take()).collect())
}
