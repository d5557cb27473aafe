//! `Again`: the layers whose forward pass runs again before the backward pass, in groups that do so together.

use lockstep_topology::InputError;

use crate::memory::Reads;
use crate::recompute::{Module, Recompute};
use crate::{Job, LayerId, Model, Phase, fused_chains_within};

/// Layers of which something is dropped, and those that are run again for it.
#[derive(Debug, Clone, Default)]
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
        let none = Again { groups: Vec::new(), before: vec![Vec::new(); layers], group_of: vec![None; layers] };
        if job.recompute == Recompute::None {
            return Ok(none);
        }
        let stages = job.stages_of(model)?;
        let chunk = |id: LayerId| stages.as_ref().map_or(0, |stages| stages.chunk_of(id));
        let units = units(job, model, &chunk);
        let group_of = groups(&job.recompute, model, &chunk);
        let mut unit_of = vec![None; layers];
        for (unit, members) in units.iter().enumerate() {
            members.iter().for_each(|id| unit_of[id.index()] = Some(unit));
        }
        // Of a unit its output alone is stored.
        let dropped: Vec<Option<usize>> = units
            .iter()
            .map(|members| {
                let output = members[members.len() - 1];
                let consumers = model.consumers(output);
                let inside = |other: &LayerId| group_of[other.index()].0 == group_of[output.index()].0;
                let (group, leaves) = group_of[output.index()];
                let stays = consumers.iter().all(|other| chunk(*other) == chunk(output));
                group.filter(|_| stays && !consumers.is_empty() && (leaves || consumers.iter().all(inside)))
            })
            .collect();
        let mut needed = vec![false; units.len()];
        for unit in (0..units.len()).rev() {
            let (members, output) = (&units[unit], units[unit][units[unit].len() - 1]);
            let consumers: Vec<usize> = model.consumers(output).iter().filter_map(|id| unit_of[id.index()]).collect();
            let read = backward_reads(model, members).is_some_and(|reads| reads.output)
                || consumers.iter().any(|of| backward_reads(model, &units[*of]).is_some_and(|reads| reads.input))
                || consumers.iter().any(|of| needed[*of]);
            needed[unit] = dropped[unit].is_some() && read;
        }
        let mut again = none;
        for unit in (0..units.len()).filter(|unit| needed[*unit]) {
            let group = dropped[unit].unwrap_or_default();
            again.groups.resize(again.groups.len().max(group + 1), Vec::new());
            again.groups[group].extend(&units[unit]);
            let output = units[unit][units[unit].len() - 1];
            for id in model.consumers(output).iter().chain(&units[unit]) {
                again.before[id.index()].push(group);
            }
            units[unit].iter().for_each(|id| again.group_of[id.index()] = Some(group));
        }
        if again.group_of.iter().all(Option::is_none) {
            let message = format!("drops nothing of {} that backward passes read: leave it out", model.name());
            return Err(InputError::flag("recompute", job.recompute.to_string(), message));
        }
        Ok(again)
    }
}

/// Layers whose tensors in between are not stored: fused chains, and relayouts.
fn units(job: &Job, model: &Model, chunk: &dyn Fn(LayerId) -> u32) -> Vec<Vec<LayerId>> {
    let chains = if job.fuse { fused_chains_within(model, chunk) } else { Vec::new() };
    let mut is_placed = vec![false; model.layers().len()];
    chains.iter().flatten().for_each(|id| is_placed[id.index()] = true);
    let others = model.iter().filter(|(id, node)| !(node.layer.is_input() || is_placed[id.index()]));
    let mut units: Vec<Vec<LayerId>> = others.map(|(id, _)| vec![id]).chain(chains.iter().cloned()).collect();
    units.sort();
    units
}

/// By layer: its group, and whether its output is dropped although layers outside of the group read it.
fn groups(of: &Recompute, model: &Model, chunk: &dyn Fn(LayerId) -> u32) -> Vec<(Option<usize>, bool)> {
    let mut groups = vec![(None, false); model.layers().len()];
    let (mut count, mut before) = (0, None);
    let mut known: Vec<(u32, u32, Option<Module>)> = Vec::new();
    let every = if let Recompute::Full { every } = of { *every } else { 1 };
    let mut first = 0;
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
                Recompute::Selective(modules) => modules.iter().find(|module| module.holds(node)).copied(),
                _ => None,
            };
            if module.is_none() && matches!(of, Recompute::Selective(_)) {
                continue;
            }
            // Normalisations of a block are dropped each by itself.
            let own = if module == Some(Module::LayerNorm) { id.0 } else { first };
            let key = (own, chunk(id), module);
            let group = known.iter().position(|other| *other == key).unwrap_or_else(|| {
                known.push(key);
                known.len() - 1
            });
            groups[id.index()] = (Some(group), matches!(module, Some(Module::LayerNorm | Module::CoreAttention)));
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
