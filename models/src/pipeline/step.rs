//! Defines one entry of a stage's list: a pass of one micro-batch through one chunk of layers.

use std::fmt;

/// The passes of a micro-batch through a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PipelinePass {
    /// Outputs from inputs, in layer order.
    Forward,
    /// Gradients in the opposite order: all of the chunk, or those of activations alone where a schedule has weight passes.
    Backward,
    /// Gradients of the chunk's parameters, from gradients of activations that the backward pass has left.
    Weight,
}

impl PipelinePass {
    /// Those whose results cross from one chunk to the next.
    pub const CROSSING: [PipelinePass; 2] = [PipelinePass::Forward, PipelinePass::Backward];
}

lockstep_topology::named!(PipelinePass, "pass of a pipeline": Forward = "forward", Backward = "backward", Weight = "weight");

/// One pass of one micro-batch through one chunk.
///
/// ```
/// # use lockstep_models::{PipelinePass, PipelineStep};
/// let step = PipelineStep { micro_batch: 3, chunk: 1, pass: PipelinePass::Backward };
/// assert_eq!(step.to_string(), "backward of chunk 1, micro-batch 3");
/// // Of three chunks, the gradient comes from the one behind.
/// assert_eq!(step.waits_for(3).map(|before| before.chunk), Some(2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineStep {
    /// The micro-batch, from 0.
    pub micro_batch: u32,
    /// The chunk among those of all stages, from 0 in layer order.
    pub chunk: u32,
    /// Which pass.
    pub pass: PipelinePass,
}

impl PipelineStep {
    /// The step whose result it takes, of `chunks` chunks of all stages; `None` for the first forward pass.
    ///
    /// The backward pass of an earlier chunk also follows its own forward pass, via the last chunk.
    pub fn waits_for(self, chunks: u32) -> Option<PipelineStep> {
        match self.pass {
            PipelinePass::Forward => self.chunk.checked_sub(1).map(|chunk| PipelineStep { chunk, ..self }),
            PipelinePass::Backward if self.chunk < chunks.saturating_sub(1) => {
                Some(PipelineStep { chunk: self.chunk + 1, ..self })
            }
            PipelinePass::Backward => Some(PipelineStep { pass: PipelinePass::Forward, ..self }),
            PipelinePass::Weight => Some(PipelineStep { pass: PipelinePass::Backward, ..self }),
        }
    }
}

impl fmt::Display for PipelineStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of chunk {}, micro-batch {}", self.pass, self.chunk, self.micro_batch)
    }
}
