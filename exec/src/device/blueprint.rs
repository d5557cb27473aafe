//! Describes what a device is made for: the chains of a rank's role, their memory, and the initial values.

use std::ops::Range;

use lockstep_models::memory::{BufferAddresses, Plan};
use lockstep_models::{Area, Buffer, GradientShare, LayerId, Op, Program, Role};
use lockstep_topology::Dtype;

use crate::pool::Arenas;

use super::ChainLayer;

/// A fused chain of layers.
#[derive(Debug, Clone)]
pub struct ChainPlan {
    /// Its layers.
    pub layers: Vec<LayerId>,
    /// The most samples in one of its passes.
    pub samples: usize,
    /// The place of its parameters.
    pub parameters: Range<usize>,
    /// The place of their gradients.
    pub gradients: Range<usize>,
    /// How these gradients are made.
    pub gradient_share: GradientShare,
    /// The place of its running statistics among all.
    pub statistics: Range<usize>,
}

/// The specification of a device.
pub struct Blueprint<'a> {
    /// The program.
    pub program: &'a Program,
    /// The role of its rank.
    pub role: &'a Role,
    /// The memory plan of tensors.
    pub plan: &'a Plan,
    /// The pool that lends their memory, and whether dead tensors are overwritten with NaN.
    pub arenas: &'a Arenas,
    /// The program's chains.
    pub chains: Vec<ChainPlan>,
    /// Elements of the buffers that the program declares, as far as this rank holds them.
    pub declared: Vec<usize>,
    /// The places of buffers.
    pub places: BufferAddresses,
    /// Initial learnable parameters, in the layout of their buffer.
    pub parameters: Vec<f32>,
    /// Initial running statistics.
    pub statistics: Vec<f32>,
}

impl<'a> Blueprint<'a> {
    /// The blueprint for `rank`, of `role`, with these initial values.
    pub fn new(
        program: &'a Program,
        (role, rank): (&'a Role, u32),
        (plan, arenas): (&'a Plan, &'a Arenas),
        declared: Vec<usize>,
        (parameters, statistics): (Vec<f32>, Vec<f32>),
    ) -> Blueprint<'a> {
        let span = |ranges: Vec<Range<u64>>| -> Range<usize> {
            match (ranges.first(), ranges.last()) {
                (Some(first), Some(last)) => first.start as usize..last.end as usize,
                _ => 0..0,
            }
        };
        let places = BufferAddresses::of_role(program, (role, rank), arenas.reuse);
        let weights = program.weights_of_layers();
        let chain = |(index, layers): (usize, &Vec<LayerId>)| {
            let nodes = || layers.iter().map(|id| program.model.node(*id));
            let read = layers.iter().flat_map(|id| program.model.parameters_read_by(*id));
            let parameters = span(read.map(|p| p.range.clone()).collect());
            // Chains of other roles need no memory here.
            let samples = program.samples_of(role, index) as usize;
            let place = |buffer| if samples > 0 { places.place(buffer, &parameters) } else { 0..0 };
            ChainPlan {
                layers: layers.clone(),
                gradients: place(Buffer::Gradients),
                parameters: place(weights),
                gradient_share: program.gradient_share(index),
                samples,
                statistics: span(nodes().filter_map(|node| node.statistics.clone()).collect()),
            }
        };
        let chains = program.chains.iter().enumerate().map(chain).collect();
        let parameters = places.of(Buffer::Parameters).spread(&parameters);
        Blueprint { program, role, plan, arenas, chains, declared, places, parameters, statistics }
    }

    /// The elements and the format of each buffer that the program declares, as far as this rank holds it.
    pub fn declared_numbers(&self) -> impl Iterator<Item = (usize, Dtype)> {
        let dtype = |index| self.program.dtype(Buffer::Declared(index));
        self.declared.iter().enumerate().map(move |(index, elements)| (*elements, dtype(index)))
    }

    /// Samples of a micro-batch when it is loaded.
    pub fn loaded(&self) -> usize {
        let loaded = self.role.tasks.iter().find_map(|task| match task.op {
            Op::Load { samples, into: None, .. } => Some(samples),
            _ => None,
        });
        loaded.unwrap_or(self.program.batch_per_rank) as usize
    }

    /// Micro-batches whose activations are kept at once.
    pub fn contexts(&self) -> usize {
        self.role.micro_batches_in_flight() as usize
    }

    /// Elements of a loaded micro-batch; none where the role's layers read no samples.
    pub fn input_elements(&self) -> usize {
        let is_input = |area: Area| matches!(area, Area::Activation(LayerId(0)));
        let has_input = self.role.tasks.iter().any(|task| match &task.op {
            Op::Load { into, .. } => into.is_none(),
            Op::Compute { chain, .. } => {
                self.program.model.node(self.program.chains[*chain][0]).inputs.contains(&LayerId(0))
            }
            Op::Copy(copies) => is_input(copies.first().from) || is_input(copies.first().to),
            _ => false,
        });
        if has_input { self.loaded() * self.program.model.input().elements() as usize } else { 0 }
    }

    /// A chain's layers with their shapes.
    pub fn members(&self, chain: usize) -> Vec<ChainLayer<'a>> {
        let node = |id: &LayerId| self.program.model.node(*id);
        let member = |id| ChainLayer { layer: &node(id).layer, inputs: &node(id).input_shapes };
        self.chains[chain].layers.iter().map(member).collect()
    }
}
