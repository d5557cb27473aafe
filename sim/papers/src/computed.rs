//! Figures that follow from a model or an algorithm alone: computed, never typed in.

use std::sync::Arc;

use lockstep_models::memory::{Plan, Reuse};
use lockstep_models::{Job, Model, Pass, Program, Strategy};
use lockstep_sim::{CollectiveRun, FoldRule, Held, Platform, Roofline, SimError};
use lockstep_sim::{shuffle_time, simulate_collective};
use lockstep_topology::{Algorithm, Bandwidth, Cluster, Collective, Group, Hosting, HostingRule, InputError};
use lockstep_topology::{Placement, PlacementRule, Schedule};

use super::unit::Dimension;

/// Bytes of an fp32 element.
const ELEMENT_BYTES: f64 = 4.0;

/// A closed form and what it is taken of.
#[derive(Debug, Clone, PartialEq)]
pub enum Computed {
    /// Learnable parameters.
    Parameters(String),
    /// Their bytes.
    ParameterBytes(String),
    /// Bytes of all weights but biases (Iandola et al. 2016, Eq. 1).
    WeightBytes(String),
    /// Bytes of what convolutions and dense layers take in for so many samples (Eq. 2).
    InputBytes(String, u32),
    /// FLOPs of forward and backward passes of so many samples, the backward pass twice the forward one (Table 1).
    TrainingWork(String, u32),
    /// Seconds in which a dedicated server of one wire takes in and gives back the weights of so many workers, both at once.
    ServerTime(String, u32, Bandwidth),
    /// Seconds of a reduction tree up and down among so many workers, the weights in one piece (Eq. 4).
    TreeTime(String, u32, Bandwidth),
    /// Bytes per second that exchanging all gradients in the time of a backward pass takes (Goyal et al. 2017 §4.3).
    ExchangeRate(String, f64),
    /// Steps of an allreduce among so many.
    Rounds(Algorithm, u32),
    /// Bytes that each of so many members sends in an allreduce over those of the buffer.
    BytesFactor(Algorithm, u32),
    /// What convolutions and dense layers take in for so many samples over all weights, both in bytes (Iandola et al. 2016, Table 1).
    DataOverWeights(String, u32),
    /// Seconds in which so many workers at so many FLOP/s each do their part of a square product for one sample (Krizhevsky 2014,
    /// footnote 4).
    ProductTime(u32, u32, f64),
    /// Seconds in which a worker takes in what one sample has of so many features (as there).
    TransferTime(u32, Bandwidth),
    /// Passes of a step: a scheme's through dense layers, forward and backward, and both through the convolutions (Fig. 2).
    Passes(String, Strategy, u32),
    /// Bytes of all outputs and gradients of so many samples, each in a place of its own (Koliousis et al. 2019 §4.5).
    OutputBytes(String, u32),
    /// The share of these that a plan saves which counts the references of operators (as there).
    PlanSaving(String, u32),
    /// How many times as long as another algorithm one takes among so many hosts of a cluster: over each layer's gradients of a
    /// model, or over so many bytes (Goyal et al. 2017 §4.1).
    ExchangeRatio(Box<ExchangeRatio>),
    /// Seconds in which so many nodes of a cluster that hold so many bytes of samples together shuffle them (Kumar et al. 2018 §4.1).
    ShuffleTime(String, u32, u64),
}

/// Two algorithms among the same hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeRatio {
    /// The cluster.
    pub cluster: String,
    /// Its hosts that take part, each with one member.
    pub workers: u32,
    /// What is exchanged.
    pub buffers: Buffers,
    /// The algorithm whose time is divided by.
    pub algorithm: Algorithm,
    /// And the one whose time is divided.
    pub than: Algorithm,
}

/// What is exchanged, buffer by buffer.
#[derive(Debug, Clone, PartialEq)]
pub enum Buffers {
    /// The gradients of each of a model's layers.
    Layers(String),
    /// One buffer of so many bytes.
    Bytes(u64),
}

impl Computed {
    /// What its unit must measure.
    pub fn dimension(&self) -> Dimension {
        match self {
            Computed::Parameters(_)
            | Computed::Rounds(..)
            | Computed::BytesFactor(..)
            | Computed::DataOverWeights(..)
            | Computed::Passes(..)
            | Computed::PlanSaving(..)
            | Computed::ExchangeRatio(_) => Dimension::Number,
            Computed::ParameterBytes(_)
            | Computed::WeightBytes(_)
            | Computed::InputBytes(..)
            | Computed::OutputBytes(..) => Dimension::Size,
            Computed::ProductTime(..) | Computed::TransferTime(..) => Dimension::Time,
            Computed::TrainingWork(..) => Dimension::Work,
            Computed::ServerTime(..) | Computed::TreeTime(..) | Computed::ShuffleTime(..) => Dimension::Time,
            Computed::ExchangeRate(..) => Dimension::Rate,
        }
    }

    /// The same of so many workers, servers' own machines not counted; none where it is of no number of workers.
    pub(super) fn among(&self, workers: u32) -> Option<Computed> {
        match self {
            Computed::ServerTime(model, _, rate) => Some(Computed::ServerTime(model.clone(), workers, *rate)),
            Computed::TreeTime(model, _, rate) => Some(Computed::TreeTime(model.clone(), workers, *rate)),
            Computed::Rounds(algorithm, _) => Some(Computed::Rounds(algorithm.clone(), workers)),
            Computed::BytesFactor(algorithm, _) => Some(Computed::BytesFactor(algorithm.clone(), workers)),
            Computed::ShuffleTime(cluster, _, bytes) => Some(Computed::ShuffleTime(cluster.clone(), workers, *bytes)),
            _ => None,
        }
    }

    /// The figure in bytes, FLOPs, seconds, bytes per second, or a number.
    ///
    /// # Errors
    /// An unknown model, an algorithm that cannot serve so many.
    pub fn value(&self) -> Result<f64, InputError> {
        match self {
            Computed::Parameters(model) => Ok(lockstep_readers::load_model(model)?.parameter_elements() as f64),
            Computed::ParameterBytes(model) => {
                Ok(ELEMENT_BYTES * lockstep_readers::load_model(model)?.parameter_elements() as f64)
            }
            Computed::WeightBytes(model) => Ok(weight_bytes(&lockstep_readers::load_model(model)?)),
            Computed::InputBytes(model, samples) => Ok(input_bytes(&lockstep_readers::load_model(model)?, *samples)),
            Computed::DataOverWeights(model, samples) => {
                let model = lockstep_readers::load_model(model)?;
                Ok(input_bytes(&model, *samples) / weight_bytes(&model))
            }
            Computed::ProductTime(features, workers, rate) => {
                Ok(2.0 * f64::from(*features).powi(2) / f64::from(*workers) / rate)
            }
            Computed::TransferTime(features, rate) => Ok(ELEMENT_BYTES * f64::from(*features) / rate.bytes_per_s()),
            Computed::Passes(model, strategy, workers) => {
                Ok(2.0 + 2.0 * f64::from(dense_passes(model, strategy, *workers)?))
            }
            Computed::OutputBytes(model, samples) => {
                let program = alone(model, *samples)?;
                Ok(ELEMENT_BYTES * Plan::of_role(&program, &program.roles[0], Reuse::Nothing).elements as f64)
            }
            Computed::PlanSaving(model, samples) => {
                let program = alone(model, *samples)?;
                let length = |reuse| Plan::of_role(&program, &program.roles[0], reuse).elements as f64;
                Ok(1.0 - length(Reuse::Counted) / length(Reuse::Nothing))
            }
            Computed::ExchangeRatio(of) => {
                let cluster = Cluster::load(&of.cluster)?;
                let time = |algorithm: &Algorithm| among_hosts(&cluster, of.workers, &of.buffers, algorithm);
                Ok(time(&of.than)? / time(&of.algorithm)?)
            }
            Computed::TrainingWork(model, samples) => Ok(3.0
                * matrix_layers(&lockstep_readers::load_model(model)?, |node| {
                    node.work(Pass::Forward, *samples).flops
                })),
            Computed::ServerTime(model, workers, rate) => {
                let elements = (weight_bytes(&lockstep_readers::load_model(model)?) / ELEMENT_BYTES) as u64;
                let algorithm: Algorithm = "parameter-server:1:dedicated".parse()?;
                let schedule = allreduce(&algorithm, workers + 1, elements, 0)?;
                Ok(schedule.bytes_sent(*workers) as f64 / rate.bytes_per_s())
            }
            Computed::TreeTime(model, workers, rate) => {
                let elements = (weight_bytes(&lockstep_readers::load_model(model)?) / ELEMENT_BYTES) as u64;
                let schedule = allreduce(&"binomial-tree".parse()?, *workers, elements, elements)?;
                Ok(f64::from(schedule.rounds()) * ELEMENT_BYTES * elements as f64 / rate.bytes_per_s())
            }
            Computed::ExchangeRate(model, seconds) => {
                Ok(2.0 * ELEMENT_BYTES * lockstep_readers::load_model(model)?.parameter_elements() as f64 / seconds)
            }
            Computed::Rounds(algorithm, ranks) => {
                let elements = u64::from(*ranks);
                Ok(f64::from(allreduce(algorithm, *ranks, elements, elements)?.rounds()))
            }
            Computed::ShuffleTime(cluster, nodes, bytes) => shuffle(&Cluster::load(cluster)?, *nodes, *bytes),
            Computed::BytesFactor(algorithm, ranks) => {
                let elements = u64::from(*ranks) << 10;
                let schedule = allreduce(algorithm, *ranks, elements, elements)?;
                Ok(schedule.bytes_sent(0) as f64 / (ELEMENT_BYTES * elements as f64))
            }
        }
    }
}

/// Bytes of what all convolutions and dense layers take in.
fn input_bytes(model: &Model, samples: u32) -> f64 {
    let of = |node: &lockstep_models::Node| {
        node.input_shapes.iter().map(|shape| shape.elements() as f64 * ELEMENT_BYTES).sum::<f64>()
    };
    f64::from(samples) * matrix_layers(model, of)
}

/// Partial passes through the dense layers in a step of so many workers, one sample each.
fn dense_passes(model: &str, strategy: &Strategy, workers: u32) -> Result<u32, InputError> {
    let job = Job {
        strategy: strategy.clone(),
        ..Job::new(Arc::new(lockstep_readers::load_model(model)?), workers, workers)
    };
    let sharding = job.program()?.sharding;
    Ok(sharding.map_or(1, |sharding| sharding.passes.len() as u32))
}

/// What one rank does that takes so many samples at once, no layer fused into another.
fn alone(model: &str, samples: u32) -> Result<Program, InputError> {
    Job { fuse: false, ..Job::new(Arc::new(lockstep_readers::load_model(model)?), 1, samples) }.program()
}

/// Seconds of all buffers' allreduces, one after the other, among the first hosts of a cluster, the first GPU of each.
fn among_hosts(cluster: &Cluster, workers: u32, buffers: &Buffers, algorithm: &Algorithm) -> Result<f64, InputError> {
    let elements: Vec<u64> = match buffers {
        Buffers::Bytes(bytes) => vec![bytes / ELEMENT_BYTES as u64],
        Buffers::Layers(model) => {
            let sizes = lockstep_readers::load_model(model)?;
            let of = |node: &lockstep_models::Node| node.parameters.iter().map(|tensor| tensor.elements()).sum::<u64>();
            sizes.layers().iter().map(of).filter(|elements| *elements > 0).collect()
        }
    };
    let hosts = cluster.hosts().get(..workers as usize).ok_or_else(|| {
        InputError::new("workers", workers.to_string(), format!("there are only {} hosts", cluster.hosts().len()))
    })?;
    let members = hosts.iter().map(|host| *host.devices.get(1).unwrap_or(&host.devices[0])).collect();
    let placement = Placement::new(cluster, workers, &PlacementRule::Listed(members))?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let platform = Platform::new(cluster, &placement, &hosting, &Roofline);
    let mut seconds = 0.0;
    for elements in elements {
        let run = CollectiveRun::new(Collective::AllReduce, algorithm.clone(), Group::flat(workers), elements);
        let time = simulate_collective(&CollectiveRun { fold: FoldRule::Padded, ..run }, &platform);
        seconds += time.map_err(|error| of_simulation(error, cluster))?.time.as_secs_f64();
    }
    Ok(seconds)
}

fn of_simulation(error: SimError, cluster: &Cluster) -> InputError {
    match error {
        SimError::Input(error) => error,
        other => InputError::new("computed", cluster.name(), other.to_string()),
    }
}

/// The time of one shuffle by the cluster's first nodes, an equal part of the bytes on each.
fn shuffle(cluster: &Cluster, nodes: u32, bytes: u64) -> Result<f64, InputError> {
    let placement = Placement::new(cluster, 1, &PlacementRule::Pack)?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let platform = Platform::new(cluster, &placement, &hosting, &Roofline);
    let held = Held { nodes, bytes: bytes / u64::from(nodes.max(1)) };
    shuffle_time(&platform, held).map(|time| time.as_secs_f64()).map_err(|error| of_simulation(error, cluster))
}

fn allreduce(algorithm: &Algorithm, members: u32, elements: u64, chunk: u64) -> Result<Schedule, InputError> {
    Schedule::new(&Collective::AllReduce, algorithm, &Group::flat(members), elements, chunk)
}

/// All weights of convolutions and dense layers in bytes, biases left out.
fn weight_bytes(model: &Model) -> f64 {
    matrix_layers(model, |node| node.parameters[0].elements() as f64 * ELEMENT_BYTES)
}

/// A sum over convolutions and dense layers.
fn matrix_layers(model: &Model, of: impl Fn(&lockstep_models::Node) -> f64) -> f64 {
    let matrix = |node: &&lockstep_models::Node| node.is_product();
    model.layers().iter().filter(matrix).map(of).sum()
}
