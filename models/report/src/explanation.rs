//! Defines the explanation of a prediction in JSON; names end in their unit, shares run from 0 to 1.

use schemars::JsonSchema;
use serde::Serialize;

/// Explains a predicted row.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// What bounds the step: a resource, `waiting: latency` or `waiting: imbalance`.
    pub bound: String,
    /// For which share of the step.
    pub bound_utilisation: f64,
    /// Share of the step in which nothing is busy, for latencies.
    pub waiting_for_latency: f64,
    /// And for members of exchanges that come late.
    pub waiting_for_imbalance: f64,
    /// Resources by class, the class with the busiest resource first.
    pub classes: Vec<ClassFigures>,
    /// The busiest resources.
    pub busiest: Vec<ResourceFigures>,
    /// The critical path of the median step by kind of task: adds up to its time.
    pub critical_path: Vec<KindFigures>,
    /// The longest tasks on it.
    pub critical_tasks: Vec<TaskFigures>,
    /// The computation of a step, and how far communication slows it down.
    pub computation: ComputationFigures,
    /// The exchanges of a step in program order.
    pub exchanges: Vec<ExchangeFigures>,
    /// What is done between steps: a shuffle, an evaluation, a checkpoint.
    pub between_steps: Vec<PeriodicFigures>,
    /// The device whose memory is fullest.
    pub memory: MemoryFigures,
    /// The bandwidth that would hide communication.
    pub hiding: HidingFigures,
    /// Sensitivities of the step time, the strongest first.
    pub sensitivities: Vec<SensitivityFigures>,
    /// Those to rates minus those to times, all of them: −1 but for events that change places.
    pub sensitivity_sum: f64,
    /// How they were worked out: as derivatives of one simulation, which are of small changes, these scaled to what larger changes of
    /// computation and communication do, or by two simulations for each parameter.
    pub sensitivity_basis: String,
    /// Parameters without effect on it.
    pub does_not_react_to: Vec<String>,
    /// How far the figures behind it are known.
    pub error_bar: ErrorBar,
    /// The simulator's exact shortcuts, which change its own running time alone.
    pub shortcuts: Vec<ShortcutFigures>,
}

/// The use of one of the simulator's exact shortcuts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ShortcutFigures {
    /// `folding`, `library`, `ring`, `rings`, `micro-batches` or `iterations`.
    pub shortcut: String,
    /// How often it was taken, e.g. for how many iterations of the simulated run.
    pub taken: u64,
    /// What is counted: `ranks`, `exchanges`, `times`, `micro-batches` or `iterations`.
    pub unit: String,
    /// Why it was not taken, the last time that it was not.
    pub why_not: Option<String>,
}

/// Explains the time of a collective.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveExplanation {
    /// Resources by class, the class with the busiest resource first.
    pub in_use: Vec<ClassFigures>,
    /// Sensitivities of the time, the strongest first: d log time / d log parameter.
    pub reacts_to: Vec<SensitivityFigures>,
    /// Parameters without effect on it.
    pub does_not_react_to: Vec<String>,
    /// Sensitivities to rates minus those to times: −1 but for messages that change places.
    pub sensitivity_sum: f64,
}

/// The use of a class of resources over the counted steps.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClassFigures {
    /// `cores`, `multiprocessors`, `host memory`, `GPU memory`, or a kind of link.
    pub class: String,
    /// The busiest one.
    pub busiest: String,
    /// Its utilisation; of a CPU, of the threads that its ranks have.
    pub utilisation: f64,
    /// The mean over all in use.
    pub mean_utilisation: f64,
    /// How many are in use.
    pub resources: u32,
}

/// The use of one resource over the counted steps.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ResourceFigures {
    /// Its name.
    pub resource: String,
    /// Share of its capacity.
    pub utilisation: f64,
}

/// A kind of task on the critical path.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct KindFigures {
    /// `load`, `forward`, `backward`, `update`, `exchange` or `wait`.
    pub kind: String,
    /// Seconds of the step.
    pub seconds: f64,
    /// Share of the step.
    pub share: f64,
}

/// A task on the critical path, over all ranks and repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TaskFigures {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub task: String,
    /// Seconds of the step.
    pub seconds: f64,
}

/// The computation of a step, per worker.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ComputationFigures {
    /// Seconds in which the compute stream is busy.
    pub seconds: f64,
    /// The same if messages took no time: kernels and messages share cores or multiprocessors, and memory bandwidth.
    pub alone_s: f64,
}

/// Work that is done between some steps.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PeriodicFigures {
    /// `shuffle`, `evaluation` or `checkpoint`.
    pub work: String,
    /// Seconds each time.
    pub seconds: f64,
    /// Steps from one to the next, where that is known.
    pub every_steps: Option<u32>,
    /// Its tasks with what they take of the busiest rank, the longest first.
    pub tasks: Vec<TaskFigures>,
}

/// An exchange, per step and worker.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ExchangeFigures {
    /// Its name.
    pub exchange: String,
    /// Seconds in flight.
    pub seconds: f64,
    /// Of these, while the worker computes.
    pub hidden_s: f64,
    /// Seconds that it costs: while the compute stream waits, in equal parts among exchanges in flight.
    pub exposed_s: f64,
    /// What NCCL chooses, where its model gives the time: version, algorithm, protocol and channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nccl: Option<String>,
}

/// Peak memory of a device.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MemoryFigures {
    /// Which.
    pub device: String,
    /// Ranks on it; the figures are of all of them.
    pub ranks: u32,
    /// What it has, where that is known.
    pub capacity_bytes: Option<u64>,
    /// What they need, activations sharing places.
    pub total_bytes: u64,
    /// The same with a place for every activation.
    pub total_unplanned_bytes: u64,
    /// Parameters and running statistics.
    pub weights_bytes: u64,
    /// Gradients of the parameters.
    pub gradients_bytes: u64,
    /// What the optimizer keeps.
    pub optimizer_bytes: u64,
    /// Samples and labels.
    pub input_bytes: u64,
    /// Activations and their gradients, sharing places.
    pub activations_bytes: u64,
    /// The same, each in a place of its own.
    pub activations_unplanned_bytes: u64,
    /// Scratch of the exchanges in flight.
    pub communication_bytes: u64,
    /// Whether it fits.
    pub fits: Option<bool>,
    /// The largest batch per rank that would; 0: not even one sample.
    pub largest_batch_per_rank: Option<u32>,
}

/// The bandwidth that would hide communication: less than 1 % of the step exposed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HidingFigures {
    /// The share that is exposed now.
    pub exposed_share: f64,
    /// The least factor for the bandwidths of all links between devices that hides it; `null`: none does.
    pub factor: Option<f64>,
    /// Kinds of links on the ways of messages.
    pub links: Vec<LinkFigures>,
    /// The share that stays exposed with ten thousand times the bandwidth.
    pub exposed_share_without_limit: f64,
    /// The simple case: 2 · bytes of the parameters over the time of the backward pass, in 10⁹ bytes/s.
    #[serde(rename = "simple_GBps")]
    pub simple: Option<f64>,
}

/// A kind of link.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LinkFigures {
    /// Which.
    pub kind: String,
    /// The least bandwidth of such links, in 10⁹ bytes/s.
    #[serde(rename = "bandwidth_GBps")]
    pub bandwidth: f64,
    /// The same with which communication is hidden.
    #[serde(rename = "hiding_bandwidth_GBps")]
    pub hiding_bandwidth: Option<f64>,
}

/// The sensitivity of the step time to a parameter.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SensitivityFigures {
    /// Which.
    pub parameter: String,
    /// d log step time / d log parameter: percent more time per percent more of it.
    pub elasticity: f64,
    /// Where the figure is from.
    pub provenance: Vec<String>,
}

/// How far the figures behind a prediction are known.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ErrorBar {
    /// Half the width of the 95 % interval, in percent of the step time; `null` where figures are not measured.
    pub relative_pct: Option<f64>,
    /// Its ends.
    pub step_time_low_s: Option<f64>,
    /// Its ends.
    pub step_time_high_s: Option<f64>,
    /// What it rests on, or why there is none.
    pub basis: String,
    /// By how many percent of its time a single kernel of these GPUs is off in the mean, where data sheets price kernels; `null` elsewhere.
    pub kernel_error_pct: Option<f64>,
    /// By how many percent the step would be off if all of them were, the same way; errors of kernels partly cancel.
    pub step_by_kernels_pct: Option<f64>,
}
