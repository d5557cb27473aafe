//! Defines what is computed: layers, models, strategies, and the program that is both simulated and executed.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod data;
mod driver;
pub mod graph;
mod jitter;
pub mod layer;
mod lower;
pub mod memory;
mod mesh;
mod model;
mod optimizer;
mod passes;
mod periodic;
pub mod pipeline;
pub mod profile;
mod program;
mod recompute;
mod strategy;
mod task;
mod tensor;
mod timeline;

pub use data::{
    Augmentation, CopiedBy, Input, Partition, SampleForm, SampleSource, Sampling, SetPerNode, SetSizes, StoredSamples,
    TransformAt, missed_share,
};
pub use driver::{
    AccuracyMonitor, Claim, ClaimAnswer, DEFAULT_THRESHOLD, Decision, DeviceRates, Driver, Observation, Pools,
    RunControl, Target, Trial, Tuner, Verdict,
};
pub use graph::{Graph, LayoutChange, LayoutRow};
pub use jitter::{Distribution, Family, Fit, Jitter, fits};
pub use layer::{
    Affine, Attention, BatchNorm, BlurPool, Border, Conv2d, Dense, Documents, Dropout, Embedding, GroupNorm,
    IGNORED_LABEL, Init, InitRules, KernelClass, Layer, LayerId, LayerNorm, LeakyRelu, Linear, LinearCrossEntropy,
    LinearPartialSoftmax, LocalResponseNorm, MergedCrossEntropy, PARTIAL_NUMBERS, PartialSoftmax, Pass, Phase, Pool2d,
    PoolKind, Reshape, Resize, ResponseNorm, RmsNorm, Rotary, RotaryPairing, RotaryScaling, Scale, Select, Softmax,
    Work, samples_per_group,
};
pub use mesh::{Axis, AxisAlgorithms, AxisSet, ByCoordinate, Members, Mesh, RankRange};
pub use model::{
    Block, Draft, InitialValues, Model, Multiplied, Multipliers, NamedValues, Node, Parameter, PassRanks, Piece,
    ShardLayer, Sharding, Tie, multiplied_parts, node_first, random_model,
};
pub use optimizer::{
    Assignment, Averaging, Decay, MomentumForm, NoDecay, Optimizer, RunLength, Scaling, SquareSum, UpdateRule, WarmUp,
};
pub(crate) use passes::fused_chains_within;
pub use passes::{READ_AHEAD, fused_chains};
pub use periodic::{Periodic, PeriodicSpan};
pub use pipeline::{
    PipelinePass, PipelineSchedule, PipelineStep, StageBody, StageChunk, StageCut, StageLayout, StageOrder, Stages,
};
pub use program::{
    GradientShare, Loops, Need, Origin, Pieces, Program, Proofs, Role, SharedModels, Span, pieces_within,
};
pub use recompute::{Module, Recompute};
pub use strategy::{Bucket, Job, Shard, Strategy};
pub use task::{
    After, Area, Arithmetic, BoundBuffer, BoundFormula, BoundTerm, Buffer, Coefficient, Copy, Declared, Elementwise,
    Exchange, Formula, MomentStep, OfStep, Op, Operand, Rows, SampleMove, SgdStep, Squares, Start, StepNumbers, Stream,
    Task, TaskId, Term, Turns,
};
pub use tensor::{AxisLayout, Dimension, Gradients, ImageShape, Layout, Moments, Precision, SampleTensor, Shape};
pub use timeline::{CriticalPath, INPUT_WAIT, Step, Timeline, Total, Totals, WAIT, median, quantile, straggling_s};
pub use timeline::{critical_path, overlap};
