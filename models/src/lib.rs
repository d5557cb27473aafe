//! Defines what is computed: layers, models, strategies, and the program that is both simulated and executed.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod augmentation;
mod averaging;
mod axis;
mod axis_algorithms;
mod buffer;
mod by_coordinate;
mod check;
mod consensus;
mod copy;
pub mod critical_path;
mod devices;
mod driver;
mod formula;
pub mod graph;
mod held;
mod input_wait;
mod jitter;
pub mod layer;
mod layer_id;
mod layout;
mod lower;
mod members;
pub mod memory;
mod mesh;
mod model;
mod need;
mod optimizer;
pub mod overlap;
mod partition;
mod parts;
mod pass_samples;
mod passes;
mod periodic;
pub mod pipeline;
mod precision;
pub mod profile;
mod program;
mod rank_model;
mod ranks;
mod sampling;
mod set_sizes;
mod span;
mod step_numbers;
mod straggling;
mod strategy;
mod supply;
mod task;
mod timeline;
mod totals;
mod transform_at;
mod tuner;
mod turns;

pub use augmentation::Augmentation;
pub use averaging::{Assignment, Averaging};
pub use axis::{Axis, AxisSet};
pub use axis_algorithms::AxisAlgorithms;
pub use buffer::{Buffer, Declared, Start};
pub use by_coordinate::ByCoordinate;
pub use check::Proofs;
pub use consensus::SharedModels;
pub use copy::{Area, Copy, Rows};
pub use critical_path::CriticalPath;
pub use devices::DeviceRates;
pub use driver::{AccuracyMonitor, Claim, ClaimAnswer, Decision, Driver, Observation, Pools, RunControl, Target};
pub use formula::{BoundBuffer, BoundFormula, BoundTerm, Coefficient, Elementwise, Formula, MultiplyAdd, Operand};
pub use graph::{Graph, LayoutChange, LayoutRow};
pub use jitter::{Distribution, Family, Fit, Jitter, fits};
pub use layer::{
    Affine, BatchNorm, BlurPool, Border, Conv2d, Dense, Dropout, GroupNorm, Init, InitRules, KernelClass, Layer,
    LayerNorm, LeakyRelu, LocalResponseNorm, Pass, Pool2d, PoolKind, Reshape, Resize, ResponseNorm, Scale, Select,
    Shape, Softmax, Work, samples_per_group,
};
pub use layer_id::LayerId;
pub use layout::{AxisLayout, Dimension, Layout};
pub use members::Members;
pub use mesh::Mesh;
pub use model::{
    Draft, Gather, InitialValues, Model, Multiplied, Multipliers, Node, Parameter, Piece, ShardLayer, Sharding,
    multiplied_parts, node_first, random_model,
};
pub use need::{Loops, Need};
pub use optimizer::{Decay, MomentumForm, Optimizer, RunLength, Scaling, WarmUp};
pub use partition::Partition;
pub use passes::{READ_AHEAD, fused_chains};
pub use periodic::{Periodic, PeriodicSpan, Pieces, pieces_within};
pub use pipeline::{PipelinePass, PipelineSchedule, PipelineStep, StageBody, StageChunk, StageCut, StageOrder, Stages};
pub use precision::{Gradients, Precision};
pub use program::{Program, Role};
pub use ranks::RankRange;
pub use sampling::Sampling;
pub use set_sizes::{SampleForm, SetSizes, StoredSamples};
pub use span::Span;
pub use step_numbers::{SgdStep, StepNumbers};
pub use straggling::straggling_s;
pub use strategy::{Bucket, Job, Shard, Strategy};
pub use supply::{CopiedBy, Input, SampleSource, SetPerNode, missed_share};
pub use task::{After, Exchange, Op, Phase, SampleMove, Stream, Task, TaskId};
pub use timeline::{INPUT_WAIT, Step, Timeline, WAIT, median, quantile};
pub use totals::{Total, Totals};
pub use transform_at::TransformAt;
pub use tuner::{DEFAULT_THRESHOLD, Trial, Tuner, Verdict};
pub use turns::Turns;
