//! Figures that follow from a model or an algorithm alone: computed, never typed in.

use lockstep_models::{Layer, Model, Pass};
use lockstep_sim::{Conditions, Held, NetworkModel, Platform, Roofline, SimError, shuffle_time};
use lockstep_topology::{Algorithm, Bandwidth, Cluster, Collective, Group, Hosting, HostingRule, InputError};
use lockstep_topology::{Placement, PlacementRule, Schedule};

use super::quantity::Dimension;

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
    /// Seconds in which so many nodes of a cluster that hold so many bytes of samples together shuffle them (Kumar et al. 2018 §4.1).
    ShuffleTime(String, u32, u64),
}

impl Computed {
    /// What its unit must measure.
    pub fn dimension(&self) -> Dimension {
        match self {
            Computed::Parameters(_) | Computed::Rounds(..) | Computed::BytesFactor(..) => Dimension::Number,
            Computed::ParameterBytes(_) | Computed::WeightBytes(_) | Computed::InputBytes(..) => Dimension::Size,
            Computed::TrainingWork(..) => Dimension::Work,
            Computed::ServerTime(..) | Computed::TreeTime(..) | Computed::ShuffleTime(..) => Dimension::Time,
            Computed::ExchangeRate(..) => Dimension::Rate,
        }
    }

    /// The figure in bytes, FLOPs, seconds, bytes per second, or a number.
    ///
    /// # Errors
    /// An unknown model, an algorithm that cannot serve so many.
    pub fn value(&self) -> Result<f64, InputError> {
        match self {
            Computed::Parameters(model) => Ok(Model::load(model)?.parameter_elements() as f64),
            Computed::ParameterBytes(model) => Ok(ELEMENT_BYTES * Model::load(model)?.parameter_elements() as f64),
            Computed::WeightBytes(model) => Ok(weight_bytes(&Model::load(model)?)),
            Computed::InputBytes(model, samples) => Ok(f64::from(*samples)
                * matrix_layers(&Model::load(model)?, |node| {
                    node.input_shapes.iter().map(|shape| shape.elements() as f64 * ELEMENT_BYTES).sum()
                })),
            Computed::TrainingWork(model, samples) => {
                Ok(3.0 * matrix_layers(&Model::load(model)?, |node| node.work(Pass::Forward, *samples).flops))
            }
            Computed::ServerTime(model, workers, rate) => {
                let elements = (weight_bytes(&Model::load(model)?) / ELEMENT_BYTES) as u64;
                let algorithm = Algorithm::ParameterServer { servers: 1, dedicated: true };
                let schedule = allreduce(&algorithm, workers + 1, elements, 0)?;
                Ok(schedule.bytes_sent(*workers) as f64 / rate.bytes_per_s())
            }
            Computed::TreeTime(model, workers, rate) => {
                let elements = (weight_bytes(&Model::load(model)?) / ELEMENT_BYTES) as u64;
                let schedule = allreduce(&Algorithm::BinomialTree, *workers, elements, elements)?;
                Ok(f64::from(schedule.rounds()) * ELEMENT_BYTES * elements as f64 / rate.bytes_per_s())
            }
            Computed::ExchangeRate(model, seconds) => {
                Ok(2.0 * ELEMENT_BYTES * Model::load(model)?.parameter_elements() as f64 / seconds)
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

/// The time of one shuffle by the cluster's first nodes, an equal part of the bytes on each.
fn shuffle(cluster: &Cluster, nodes: u32, bytes: u64) -> Result<f64, InputError> {
    let placement = Placement::new(cluster, 1, &PlacementRule::Pack)?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let (network, conditions) = (NetworkModel::MaxMin, Conditions::none());
    let platform =
        Platform { cluster, placement: &placement, hosting: &hosting, costs: &Roofline, network, conditions };
    let held = Held { nodes, bytes: bytes / u64::from(nodes.max(1)) };
    match shuffle_time(&platform, held) {
        Ok(time) => Ok(time.as_secs_f64()),
        Err(SimError::Input(error)) => Err(error),
        Err(other) => Err(InputError::new("shuffle", cluster.name(), other.to_string())),
    }
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
    let matrix = |node: &&lockstep_models::Node| matches!(node.layer, Layer::Conv2d(_) | Layer::Dense(_));
    model.layers().iter().filter(matrix).map(of).sum()
}
