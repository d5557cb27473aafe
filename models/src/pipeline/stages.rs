//! Divides layers into the chunks of a pipeline's stages, with what they compute, and what crosses from each
//! to the next.

use std::ops::Range;

use lockstep_topology::InputError;

use super::{PipelinePass, StageCut};
use crate::{LayerId, Model, Pass, Phase, Tie};

/// Consecutive layers that one stage computes, with figures of one sample.
#[derive(Debug, Clone, PartialEq)]
pub struct StageChunk {
    /// Positions of its layers in the model.
    pub layers: Range<u32>,
    /// Learnable parameters; one that layers of several chunks share counts in each.
    pub parameters: u64,
    /// Floating-point operations of the forward pass, a multiply-add being two.
    pub forward_flops: f64,
    /// Of the backward pass, without gradients that nothing needs.
    pub backward_flops: f64,
    /// Of the gradients of inputs alone, where they are a pass of their own.
    pub data_flops: f64,
    /// The same of the gradients of parameters.
    pub weight_flops: f64,
    /// Elements of activations that later chunks read and this chunk or an earlier one has made: they cross to the next
    /// chunk. A tensor counts once here, and again at each boundary that it crosses.
    pub crossing_elements: u64,
}

/// A model cut into the stages of a pipeline.
///
/// The input belongs to stage 0 and each loss to the stage of its position, which has its scores or receives them.
///
/// ```
/// # use lockstep_models::{StageCut, Stages, random_model};
/// let model = random_model(7, false);
/// let stages = Stages::new(&model, 2, 1, &StageCut::Work).unwrap();
/// assert_eq!(stages.chunks().iter().map(|chunk| chunk.parameters).sum::<u64>(), model.parameter_elements());
/// assert_eq!(stages.chunks_of(1).count(), 1);
/// // No tensor leaves the last stage.
/// assert_eq!(stages.chunks()[1].crossing_elements, 0);
/// assert!(Stages::new(&model, 1000, 1, &StageCut::Work).unwrap_err().to_string().contains("1000"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    stages: u32,
    chunks: Vec<StageChunk>,
}

impl StageChunk {
    /// Floating-point operations of a pass over one sample, where the passes of a micro-batch are `passes`.
    pub fn flops(&self, pass: PipelinePass, passes: &[PipelinePass]) -> f64 {
        match pass {
            PipelinePass::Forward => self.forward_flops,
            PipelinePass::Backward if passes.contains(&PipelinePass::Weight) => self.data_flops,
            PipelinePass::Backward => self.backward_flops,
            PipelinePass::Weight => self.weight_flops,
        }
    }
}

impl Stages {
    /// Cuts `model` into `stages` stages of `chunks` chunks each; chunk c belongs to stage c % `stages`.
    ///
    /// # Errors
    /// More chunks than layers, no stages or chunks, a list of layers that does not fit.
    pub fn new(model: &Model, stages: u32, chunks: u32, cut: &StageCut) -> Result<Stages, InputError> {
        let layers = model.layers().len();
        let all = u64::from(stages) * u64::from(chunks);
        if all == 0 {
            return Err(InputError::flag("stages", all.to_string(), "a pipeline needs at least 1: use 1 or more"));
        }
        if all > layers as u64 {
            let each = if chunks > 1 { format!(" of {chunks} chunks each") } else { String::new() };
            let fit = layers as u32 / chunks;
            let cure = if fit == 0 { "use fewer chunks".to_owned() } else { format!("use at most {fit}") };
            let message = format!("{stages} stages{each} need {all} layers, and {} has {layers}: {cure}", model.name());
            return Err(InputError::flag("stages", stages.to_string(), message));
        }
        let flops: Vec<[f64; 4]> = model.iter().map(|(id, _)| flops(model, id)).collect();
        let work: Vec<f64> = flops.iter().map(|[forward, backward, ..]| forward + backward).collect();
        let begins = cut.begins(model, all as usize, &work)?;
        let ends = begins[1..].iter().copied().chain([layers]);
        let crossing = crossing(model);
        let chunk = |(first, end): (usize, usize)| StageChunk {
            layers: first as u32..end as u32,
            parameters: read_in(model, first..end),
            forward_flops: flops[first..end].iter().map(|[forward, ..]| forward).sum(),
            backward_flops: flops[first..end].iter().map(|[_, backward, ..]| backward).sum(),
            data_flops: flops[first..end].iter().map(|[.., data, _]| data).sum(),
            weight_flops: flops[first..end].iter().map(|[.., weight]| weight).sum(),
            crossing_elements: crossing[end],
        };
        Ok(Stages { stages, chunks: begins.iter().copied().zip(ends).map(chunk).collect() })
    }

    /// The number of stages.
    pub fn stages(&self) -> u32 {
        self.stages
    }

    /// All chunks, in layer order.
    pub fn chunks(&self) -> &[StageChunk] {
        &self.chunks
    }

    /// The chunks of a stage, in layer order; none of a stage that does not exist.
    pub fn chunks_of(&self, stage: u32) -> impl Iterator<Item = &StageChunk> {
        let exists = if stage < self.stages { self.chunks.len() } else { 0 };
        self.chunks[..exists].iter().skip(stage as usize).step_by(self.stages as usize)
    }

    /// The chunk that a layer belongs to.
    pub fn chunk_of(&self, id: LayerId) -> u32 {
        self.chunks.partition_point(|chunk| chunk.layers.end <= id.0) as u32
    }

    /// Two layers with one parameter that are on different stages, and these stages, the lower one first.
    pub fn between(&self, model: &Model) -> Option<(Tie, (u32, u32))> {
        let tie = model.tie()?;
        let [owner, reader] = [tie.owner, tie.reader].map(|id| self.chunk_of(id) % self.stages);
        (owner != reader).then_some((tie, (owner.min(reader), owner.max(reader))))
    }

    /// Whether two layers with one parameter are in one chunk, or on two stages that have no other parameter of the owner: what a stage
    /// makes of a micro-batch in two chunks would not be one sum.
    pub fn serve_tie(&self, model: &Model) -> bool {
        model.tie().is_none_or(|tie| {
            let alone = model.node(tie.owner).parameters.len() == 1;
            self.chunk_of(tie.owner) == self.chunk_of(tie.reader) || self.between(model).is_some() && alone
        })
    }

    /// The layers whose outputs cross from `chunk` to the next: those of it or of an earlier chunk that a
    /// later one reads.
    pub fn crossing(&self, model: &Model, chunk: u32) -> Vec<LayerId> {
        let end = self.chunks[chunk as usize].layers.end;
        let crosses = |id: &LayerId| model.consumers(*id).iter().any(|consumer| consumer.0 >= end);
        (0..end).map(LayerId).filter(crosses).collect()
    }

    /// Elements of activations of one sample that a stage sends in a forward pass, those of all its chunks; nothing if
    /// it is the only stage.
    pub fn sent_elements(&self, stage: u32) -> u64 {
        if self.stages == 1 { 0 } else { self.chunks_of(stage).map(|chunk| chunk.crossing_elements).sum() }
    }
}

/// Elements of the parameters that some layers read, each once.
fn read_in(model: &Model, layers: Range<usize>) -> u64 {
    let owned_here = |owner: LayerId| layers.contains(&owner.index());
    let of = |index: usize| {
        let id = LayerId(index as u32);
        let shared_here = model.node(id).tied_to.is_some_and(owned_here);
        if shared_here { &[][..] } else { model.parameters_read_by(id) }
    };
    layers.clone().flat_map(of).map(|parameter| parameter.elements()).sum()
}

/// FLOPs of a layer over one sample: of its forward pass, of its backward pass, and of the two parts of this, each by itself.
fn flops(model: &Model, id: LayerId) -> [f64; 4] {
    let node = model.node(id);
    let needed = |pass: &&Pass| **pass != Pass::BackwardData || model.needs_input_gradient(id);
    let of = |phase| node.passes(phase).iter().filter(needed).map(|pass| node.work(*pass, 1).flops).sum();
    [Phase::Forward, Phase::Backward, Phase::BackwardData, Phase::BackwardWeight].map(of)
}

/// By layer, and for the end: the elements that layers before it make and layers from it on read.
fn crossing(model: &Model) -> Vec<u64> {
    let mut from = vec![0; model.layers().len() + 1];
    let mut until = from.clone();
    for (id, node) in model.iter() {
        if let Some(last) = model.consumers(id).iter().max() {
            from[id.index() + 1] += node.output.elements();
            until[last.index() + 1] += node.output.elements();
        }
    }
    let mut open = 0;
    let step = |(from, until): (&u64, &u64)| {
        open = open + from - until;
        open
    };
    from.iter().zip(&until).map(step).collect()
}
