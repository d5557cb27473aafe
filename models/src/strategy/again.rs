//! `Again`: the layers whose forward pass runs again before the backward pass, in groups that do so together.

use lockstep_topology::InputError;

use crate::memory::Reads;
use crate::recompute::{Module, Recompute};
use crate::{Job, LayerId, Model, Phase, fused_chains_within};

/// Layers of which something is dropped, and those that are run again for it.
#[derive(Debug)]
pub(super) struct Again {
    /// By group: the layers that run again, in layer order.
    pub(super) groups: Vec<Vec<LayerId>>,
    /// By layer: the groups that must have run again before its backward pass.
    pub(super) before: Vec<Vec<usize>>,
    /// By layer: the group that it runs again in.
    pub(super) group_of: Vec<Option<usize>>,
}

impl Again {
    /// Those of a rank's `model`, whose layers are a job's or parts of them.
    ///
    /// A layer runs again only if its backward pass, or that of a layer that reads it, or another that runs again, reads what was
    /// dropped: torch.utils.checkpoint stops at the last of them too.
    ///
    /// # Errors
    /// As [`Job::stages`]; settings with which nothing runs again.
    pub(super) fn of(job: &Job, model: &Model) -> Result<Again, InputError> {
        let layers = model.layers().len();
        let mut again = Again { groups: Vec::new(), before: vec![Vec::new(); layers], group_of: vec![None; layers] };
        if job.recompute == Recompute::None {
            return Ok(again);
        }
        check_modules(&job.recompute, model)?;
        let stages = job.stages_of(model)?;
        let chunk = |id: LayerId| stages.as_ref().map_or(0, |stages| stages.chunk_of(id));
        let units = units(job, model, &chunk);
        let groups = groups(&job.recompute, model, &chunk);
        let read_backward: Vec<Option<Reads>> = units.iter().map(|unit| backward_reads(model, &unit.layers)).collect();
        let mut unit_of = vec![None; layers];
        for (number, unit) in units.iter().enumerate() {
            unit.layers.iter().for_each(|id| unit_of[id.index()] = Some(number));
        }
        let mut runs_again = vec![false; units.len()];
        for (number, unit) in units.iter().enumerate().rev() {
            let consumers = model.consumers(unit.output);
            let readers = || consumers.iter().filter_map(|id| unit_of[id.index()]);
            let is_read = read_backward[number].is_some_and(|reads| reads.output)
                || readers().any(|of| read_backward[of].is_some_and(|reads| reads.input) || runs_again[of]);
            let of = groups[unit.output.index()];
            let stays = consumers.iter().all(|other| chunk(*other) == chunk(unit.output));
            let inside = consumers.iter().all(|other| groups[other.index()].group == of.group);
            let Some(group) = of.group.filter(|_| is_read && stays && (of.leaves || inside)) else { continue };
            runs_again[number] = true;
            again.groups.resize(again.groups.len().max(group + 1), Vec::new());
            again.groups[group].splice(0..0, unit.layers.iter().copied());
            consumers.iter().chain(&unit.layers).for_each(|id| again.before[id.index()].push(group));
            unit.layers.iter().for_each(|id| again.group_of[id.index()] = Some(group));
        }
        if !runs_again.contains(&true) {
            let message = format!("drops nothing of {} that backward passes read: leave it out", model.name());
            return Err(InputError::flag("recompute", job.recompute.to_string(), message));
        }
        Ok(again)
    }
}

/// Refuses modules that no layer belongs to.
fn check_modules(of: &Recompute, model: &Model) -> Result<(), InputError> {
    let Recompute::Selective(modules) = of else { return Ok(()) };
    let is_there = |module: &&Module| model.layers().iter().any(|node| module.holds(node));
    let Some(absent) = modules.iter().find(|module| !is_there(module)) else { return Ok(()) };
    let (name, own) = (absent.name(), model.name());
    let message = format!("{own} has no layers of {name}, as decoders do: leave {name} out, or use full");
    Err(InputError::flag("recompute", of.to_string(), message))
}

/// Layers whose tensors in between are not stored.
struct Unit {
    layers: Vec<LayerId>,
    /// The last of them.
    output: LayerId,
}

/// Fused chains, and other layers each by itself, in layer order.
fn units(job: &Job, model: &Model, chunk: &dyn Fn(LayerId) -> u32) -> Vec<Unit> {
    let mut units = if job.fuse { fused_chains_within(model, chunk) } else { Vec::new() };
    let mut is_placed = vec![false; model.layers().len()];
    units.iter().flatten().for_each(|id| is_placed[id.index()] = true);
    let others = model.iter().filter(|(id, node)| !(node.layer.is_input() || is_placed[id.index()]));
    units.extend(others.map(|(id, _)| vec![id]));
    units.sort();
    units.into_iter().filter_map(|layers| Some(Unit { output: *layers.last()?, layers })).collect()
}

/// What a layer is dropped with.
#[derive(Debug, Clone, Copy, Default)]
struct Dropped {
    /// The group that runs again together; `None`: its output is kept.
    group: Option<usize>,
    /// Whether it is dropped although layers outside of the group read it.
    leaves: bool,
}

/// By layer.
fn groups(of: &Recompute, model: &Model, chunk: &dyn Fn(LayerId) -> u32) -> Vec<Dropped> {
    let mut groups = vec![Dropped::default(); model.layers().len()];
    let mut known: Vec<(u32, u32, Option<Module>)> = Vec::new();
    let every = if let Recompute::Full { every } = of { *every } else { 1 };
    let (mut first, mut count, mut before) = (0, 0, None);
    for (number, block) in (0u32..).zip(model.blocks()) {
        // Neighbouring blocks of one series make a group.
        if before.as_ref() != Some(&block.series) || count == every {
            (first, count) = (number, 0);
        }
        (count, before) = (count + 1, Some(block.series));
        for id in block.layers.map(LayerId) {
            let node = model.node(id);
            if node.layer.is_relayout() {
                // What it makes belongs to what it changes.
                groups[id.index()] = groups[node.inputs[0].index()];
                continue;
            }
            let module = match of {
                Recompute::Selective(modules) => match modules.iter().find(|module| module.holds(node)) {
                    Some(module) => Some(*module),
                    None => continue,
                },
                _ => None,
            };
            // Normalisations of a block are dropped each by itself.
            let own = if module == Some(Module::LayerNorm) { id.0 } else { first };
            let key = (own, chunk(id), module);
            let group = known.iter().position(|other| *other == key).unwrap_or_else(|| {
                known.push(key);
                known.len() - 1
            });
            let leaves = matches!(module, Some(Module::LayerNorm | Module::CoreAttention));
            groups[id.index()] = Dropped { group: Some(group), leaves };
        }
    }
    groups
}

/// What the backward passes of a unit read; `None` where it has none.
fn backward_reads(model: &Model, unit: &[LayerId]) -> Option<Reads> {
    if unit.iter().any(|id| model.node(*id).layer.is_relayout()) {
        return None;
    }
    let has_weights = unit.iter().any(|id| !model.parameters_read_by(*id).is_empty());
    let phase = match (model.needs_input_gradient(unit[0]), has_weights) {
        (true, true) => Phase::Backward,
        (true, false) => Phase::BackwardData,
        (false, true) => Phase::BackwardWeight,
        (false, false) => return None,
    };
    Some(Reads::of(model, unit, phase))
}
