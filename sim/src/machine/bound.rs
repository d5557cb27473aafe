//! Models cores to which ranks are bound, where threads that decode have no others: a thread takes turns with one rank.

use std::collections::BTreeMap;

use lockstep_topology::cluster::{Device, DeviceKind};
use lockstep_topology::{InputError, Rank};

use super::Resources;
use crate::fluid::{ClassId, Fluid, ResourceId, Use};

/// The cores of ranks that fill a CPU, and the classes of activities that run on one of them.
#[derive(Debug, Default)]
pub(super) struct BoundCores {
    /// By rank: its core, and all cores of the CPU.
    of_rank: BTreeMap<u32, [ResourceId; 2]>,
    classes: BTreeMap<(ClassId, u32), ClassId>,
}

impl<F: Fluid> Resources<'_, F> {
    /// Gives each rank on a CPU the core that it is bound to, where the threads of its process decode and the ranks of the
    /// process are as many as the cores: with fewer ranks, threads have cores of their own; with more, ranks are not bound
    /// to one; and processes of a rank each, whose ranks may fold, share the cores evenly.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(super) fn bind_ranks(&mut self, cpu: &Device) -> Result<(), InputError> {
        let (platform, cluster) = (self.platform, self.platform.cluster);
        let DeviceKind::Cpu(kind) = &cpu.kind else { return Ok(()) };
        let (Some(all), true) = (self.devices[cpu.id.0 as usize], platform.conditions.input.is_some()) else {
            return Ok(());
        };
        if platform.ranks_beside(cpu.id) != kind.cores {
            return Ok(());
        }
        let of_rank = |rank: &u32| &cluster.devices()[platform.placement.device(Rank(*rank)).0 as usize];
        let here = |rank: &u32| cluster.cores_of(of_rank(rank)) == cpu.id;
        let ranks: Vec<u32> = (0..self.orbits.count(platform.placement.ranks())).filter(here).collect();
        let process = |rank: &u32| platform.hosting.process(Rank(*rank));
        if ranks.len() < 2 || ranks.iter().any(|rank| process(rank) != process(&ranks[0])) {
            return Ok(());
        }
        for rank in ranks {
            let core = self.add(format!("{} core of rank {rank}", cpu.name), None, 1.0)?;
            self.bound.of_rank.insert(rank, [core, all.cores]);
        }
        Ok(())
    }

    /// The ranks with cores of their own that share a CPU with `rank`, which is one of them; none otherwise.
    pub(crate) fn bound_beside(&self, rank: u32) -> Vec<u32> {
        let Some([_, all]) = self.bound.of_rank.get(&rank) else { return Vec::new() };
        self.bound.of_rank.iter().filter(|(_, [_, other])| other == all).map(|(rank, _)| *rank).collect()
    }

    /// The class of activities of `class` that run on the core of `rank`: `class` itself where that rank is bound to none,
    /// or the activities may use several cores.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn on_core(&mut self, class: ClassId, rank: u32) -> Result<ClassId, InputError> {
        let Some([core, all]) = self.bound.of_rank.get(&rank).copied() else { return Ok(class) };
        if let Some(known) = self.bound.classes.get(&(class, rank)) {
            return Ok(*known);
        }
        let (cap, mut uses) = (self.caps[class.0 as usize], self.uses[class.0 as usize].clone());
        let share = uses.iter().find(|one| one.resource == all).map(|one| one.per_speed);
        let bound = match share {
            Some(per_speed) if cap <= 1.0 => {
                uses.push(Use { resource: core, per_speed });
                self.class(cap, &uses)?
            }
            _ => class,
        };
        self.bound.classes.insert((class, rank), bound);
        Ok(bound)
    }
}
