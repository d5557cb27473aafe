//! Defines what a task does with a chain of layers.

/// What a compute task does with its chain of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Outputs from inputs.
    Forward,
    /// The same outputs again, from the same inputs, for backward passes: they were dropped after the forward pass.
    Recompute,
    /// The loss of an output layer that training finds in the backward pass: no backward pass follows.
    Evaluate,
    /// Input gradients from output gradients.
    BackwardData,
    /// Parameter gradients from output gradients.
    BackwardWeight,
    /// Both gradients in one task.
    Backward,
}

impl Phase {
    /// Those that have measured times.
    pub const MEASURED: [Phase; 5] =
        [Phase::Forward, Phase::Evaluate, Phase::BackwardData, Phase::BackwardWeight, Phase::Backward];

    /// Whether it makes outputs from inputs, for the first time or again.
    pub fn makes_outputs(self) -> bool {
        matches!(self, Phase::Forward | Phase::Recompute | Phase::Evaluate)
    }

    /// The phase whose measured time it takes.
    pub fn as_measured(self) -> Phase {
        if self == Phase::Recompute { Phase::Forward } else { self }
    }

    /// Prefix of task names.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Recompute => "recompute",
            Phase::Evaluate => "evaluate",
            Phase::BackwardData => "backward-data",
            Phase::BackwardWeight => "backward-weight",
            Phase::Backward => "backward",
        }
    }
}
