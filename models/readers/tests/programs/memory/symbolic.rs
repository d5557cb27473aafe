//! Runs a program on names instead of numbers: every byte of the arena records which tensor was written there last.

use std::ops::Range;

use lockstep_models::memory::{Content, Plan, Reads, Reuse};
use lockstep_models::{LayerId, Op, Phase, Program};

/// A tensor by its layer and what it holds.
type Name = (LayerId, Content);

struct Arena<'a> {
    program: &'a Program,
    plan: &'a Plan,
    bytes: Vec<Option<Name>>,
}

impl Arena<'_> {
    fn range(&self, (layer, content): Name) -> Option<Range<usize>> {
        match content {
            Content::Output => self.plan.outputs[layer.index()].clone(),
            _ => self.plan.gradients[layer.index()].clone(),
        }
    }

    /// A view in the place of its input is its input, under either name.
    fn known_as(&self, (layer, content): Name) -> Name {
        let node = self.program.model.node(layer);
        match node.inputs.first() {
            Some(input)
                if node.layer.rule().kind().is_view
                    && content == Content::Output
                    && self.plan.outputs[layer.index()] == self.plan.outputs[input.index()] =>
            {
                self.known_as((*input, content))
            }
            _ => (layer, content),
        }
    }

    fn write(&mut self, name: Name) {
        if let Some(range) = self.range(name) {
            let name = self.known_as(name);
            self.bytes[range].fill(Some(name));
        }
    }

    fn read(&self, name: Name, task: &str) -> Result<(), String> {
        let Some(range) = self.range(name) else { return Err(format!("{task}: {name:?} has no place")) };
        let name = self.known_as(name);
        match self.bytes[range].iter().find(|found| **found != Some(name)) {
            Some(found) => Err(format!("{task}: {found:?} where {name:?} should be")),
            None => Ok(()),
        }
    }
}

/// Plans and follows; returns the length of the arena.
pub(super) fn run(program: &Program, reuse: Reuse) -> Result<usize, String> {
    let plan = Plan::of_role(program, &program.roles[0], reuse);
    follow(program, &plan)?;
    Ok(plan.bytes)
}

/// Runs the micro-batch of the first role; an error if a task reads what another tensor has overwritten.
pub(super) fn follow(program: &Program, plan: &Plan) -> Result<(), String> {
    let model = &program.model;
    let mut arena = Arena { program, plan, bytes: vec![None; plan.bytes] };
    let mut written = vec![false; model.layers().len()];
    for (position, task) in program.roles[0].tasks.iter().enumerate() {
        let Op::Compute { chain, phase, .. } = task.op else { continue };
        let layers = &program.chains[chain];
        let (inputs, output) = (&model.node(layers[0]).inputs, layers[layers.len() - 1]);
        let is_loss = model.node(output).layer.is_loss();
        let reads = Reads::of(model, layers, phase);
        for input in inputs.iter().filter(|id| reads.input && id.0 > 0) {
            arena.read((*input, Content::Output), &task.name)?;
        }
        if reads.output {
            arena.read((output, Content::Output), &task.name)?;
        }
        if phase.makes_outputs() {
            arena.write((output, Content::Output));
        } else if !is_loss {
            arena.read((output, Content::Gradient), &task.name)?;
        }
        if matches!(phase, Phase::BackwardData | Phase::Backward) {
            for input in inputs.iter().filter(|id| plan.gradients[id.index()].is_some()) {
                if written[input.index()] {
                    arena.read((*input, Content::Gradient), &task.name)?;
                }
                written[input.index()] = true;
                arena.write((*input, Content::Gradient));
            }
        }
        plan.dead[position].iter().for_each(|range| arena.bytes[range.clone()].fill(None));
    }
    Ok(())
}
