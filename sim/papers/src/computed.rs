//! Computes figures that follow from a model or an algorithm alone, instead of typing them in.

use std::sync::Arc;

use lockstep_models::memory::{Plan, Reuse};
use lockstep_models::{Job, Model, Pass, SetPerNode, Strategy};
use lockstep_sim::{CollectiveRun, Platform, Roofline, SimError};
use lockstep_sim::{shuffle_time, simulate_collective};
use lockstep_topology::document::{Entry, Table};
use lockstep_topology::{Algorithm, Bandwidth, Cluster, Collective, Dtype, Group, Hosting, HostingRule, InputError};
use lockstep_topology::{Placement, PlacementRule, Schedule, unknown_name};

use super::unit::UnitDimension;

/// Bytes of an fp32 element: the papers' closed forms count fp32.
const ELEMENT_BYTES: f64 = Dtype::F32.bytes(1) as f64;

/// Keys of a `computed` table.
const KEYS: [&str; 15] = [
    "what",
    "model",
    "samples",
    "workers",
    "bandwidth",
    "seconds",
    "algorithm",
    "than",
    "cluster",
    "bytes",
    "features",
    "flops",
    "strategy",
    "rate",
    "decay",
];

/// The buffers of an exchange: one of `bytes`, or one for the gradients of each layer of `model`.
const BUFFERS: &str = "bytes or model";

/// A closed form and its arguments.
#[derive(Debug, Clone)]
pub struct Computed {
    form: &'static Form,
    of: Given,
}

/// A closed form: its name, the dimension of its unit, and its keys in the order in which they are read.
#[derive(Debug)]
struct Form {
    name: &'static str,
    dimension: UnitDimension,
    keys: &'static [&'static str],
    value: fn(&Given) -> Result<f64, InputError>,
}

/// The values of the keys; those that a form does not take keep their defaults.
#[derive(Debug, Clone, PartialEq)]
struct Given {
    model: String,
    cluster: String,
    samples: u32,
    workers: u32,
    features: u32,
    bytes: Option<u64>,
    bytes_per_s: f64,
    seconds: f64,
    flops_s: f64,
    algorithm: Algorithm,
    than: Algorithm,
    strategy: Strategy,
    rate: f64,
    decay: f64,
}

const fn form(
    name: &'static str,
    dimension: UnitDimension,
    keys: &'static [&'static str],
    value: fn(&Given) -> Result<f64, InputError>,
) -> Form {
    Form { name, dimension, keys, value }
}

/// Every closed form.
static FORMS: [Form; 19] = {
    use UnitDimension::{Number, Rate, Size, Time, Work};
    [
        // Learnable parameters, and their bytes.
        form("parameters", Number, &["model"], |of| Ok(of.load()?.parameter_elements() as f64)),
        form("parameter-bytes", Size, &["model"], |of| Ok(ELEMENT_BYTES * of.load()?.parameter_elements() as f64)),
        // Bytes of all weights but biases (Iandola et al. 2016, Eq. 1).
        form("weight-bytes", Size, &["model"], |of| Ok(weight_bytes(&of.load()?))),
        // Bytes of the inputs of convolutions and dense layers, for all samples (Eq. 2).
        form("input-bytes", Size, &["model", "samples"], |of| Ok(input_bytes(&of.load()?, of.samples))),
        // These divided by the bytes of all weights (Table 1).
        form("data-over-weights", Number, &["model", "samples"], |of| {
            let model = of.load()?;
            Ok(input_bytes(&model, of.samples) / weight_bytes(&model))
        }),
        // FLOPs of the forward and backward passes of all samples; a backward pass has twice those of a forward
        // pass (Table 1).
        form("training-work", Work, &["model", "samples"], |of| {
            Ok(3.0 * matrix_layers(&of.load()?, |node| node.work(Pass::Forward, of.samples).flops))
        }),
        // Seconds in which a dedicated server with one wire receives and sends the weights of all workers,
        // both at once.
        form("server-time", Time, &["model", "workers", "bandwidth"], |of| {
            let elements = (weight_bytes(&of.load()?) / ELEMENT_BYTES) as u64;
            let schedule = allreduce(&"parameter-server:1:dedicated".parse()?, of.workers + 1, elements, 0)?;
            Ok(schedule.bytes_sent(of.workers) as f64 / of.bytes_per_s)
        }),
        // Seconds of a reduction tree among the workers, up and down, with the weights in one piece (Eq. 4).
        form("tree-time", Time, &["model", "workers", "bandwidth"], |of| {
            let elements = (weight_bytes(&of.load()?) / ELEMENT_BYTES) as u64;
            let schedule = allreduce(&"binomial-tree".parse()?, of.workers, elements, elements)?;
            Ok(f64::from(schedule.rounds()) * ELEMENT_BYTES * elements as f64 / of.bytes_per_s)
        }),
        // Bytes per second needed to exchange all gradients during a backward pass (Goyal et al. 2017 §4.3).
        form("exchange-rate", Rate, &["model", "seconds"], |of| {
            Ok(2.0 * ELEMENT_BYTES * of.load()?.parameter_elements() as f64 / of.seconds)
        }),
        // The time of one algorithm divided by that of another among hosts of a cluster: for the gradients of each
        // layer of a model, or for one buffer (Goyal et al. 2017 §4.1).
        form("exchange-ratio", Number, &[BUFFERS, "cluster", "than", "workers", "algorithm"], |of| {
            let cluster = Cluster::load(&of.cluster)?;
            Ok(among_hosts(&cluster, of, &of.than)? / among_hosts(&cluster, of, &of.algorithm)?)
        }),
        // Steps of an allreduce among the workers.
        form("rounds", Number, &["algorithm", "workers"], |of| {
            let elements = u64::from(of.workers);
            Ok(f64::from(allreduce(&of.algorithm, of.workers, elements, elements)?.rounds()))
        }),
        // Seconds in which the nodes of a cluster shuffle the samples that they hold together (Kumar et al. 2018 §4.1).
        form("shuffle-time", Time, &["cluster", "workers", "bytes"], |of| {
            shuffle(&Cluster::load(&of.cluster)?, of.workers, of.bytes.unwrap_or(0))
        }),
        // Seconds in which each worker computes its part of a square product for one sample (Krizhevsky 2014,
        // footnote 4).
        form("product-time", Time, &["flops", "features", "workers"], |of| {
            Ok(2.0 * f64::from(of.features).powi(2) / f64::from(of.workers) / of.flops_s)
        }),
        // Seconds in which a worker receives the features of one sample (same footnote).
        form("transfer-time", Time, &["features", "bandwidth"], |of| {
            Ok(ELEMENT_BYTES * f64::from(of.features) / of.bytes_per_s)
        }),
        // Passes of a step: a scheme's through dense layers, forward and backward, and both through the
        // convolutions (Fig. 2).
        form("passes", Number, &["model", "strategy", "workers"], |of| Ok(2.0 + 2.0 * f64::from(dense_passes(of)?))),
        // Bytes of the outputs and gradients of all samples, none sharing memory (Koliousis et al. 2019 §4.5).
        form("output-bytes", Size, &["model", "samples"], |of| of.planned(Reuse::Nothing)),
        // The share of these that the plan of a training saves, by which simulator and executor place buffers.
        form("plan-saving", Number, &["model", "samples"], |of| {
            Ok(1.0 - of.planned(Reuse::Full)? / of.planned(Reuse::Nothing)?)
        }),
        // The decay with which k small steps shrink a weight as much as one step at √k times the rate (Krizhevsky 2014
        // §5): (1 − (1 − εω)^k) / (√k·ε).
        form("scaled-decay", Number, &["workers", "rate", "decay"], |of| {
            let kept = (0..of.workers).fold(1.0, |kept, _| kept * (1.0 - of.rate * of.decay));
            Ok((1.0 - kept) / (f64::from(of.workers).sqrt() * of.rate))
        }),
        // Bytes that a member sends in an allreduce, divided by those of the buffer.
        form("bytes-factor", Number, &["algorithm", "workers"], |of| {
            let elements = u64::from(of.workers) << 10;
            let schedule = allreduce(&of.algorithm, of.workers, elements, elements)?;
            Ok(schedule.bytes_sent(0) as f64 / (ELEMENT_BYTES * elements as f64))
        }),
    ]
};

impl Computed {
    /// Reads a `computed` table.
    ///
    /// # Errors
    /// An unknown form, or a key of it that is missing or wrong.
    pub(super) fn read(entry: &Entry<'_>) -> Result<Computed, InputError> {
        let table = entry.section("a computed figure", &KEYS)?;
        let form = table.need("what", "\"parameters\"")?.read(|text| {
            let names = FORMS.each_ref().map(|form| form.name);
            let known = FORMS.iter().find(|form| form.name == text);
            known.ok_or_else(|| unknown_name(text, "computed figure", &names))
        })?;
        let mut of = Given::nothing();
        let reads = |key: &str| key == "what" || form.keys.iter().any(|one| one.split(" or ").any(|one| one == key));
        let others: Vec<&str> = KEYS.into_iter().filter(|key| !reads(key)).collect();
        table.unread(&others, &format!("{} does not depend on it", form.name))?;
        form.keys.iter().try_for_each(|key| of.set(key, &table))?;
        Ok(Computed { form, of })
    }

    /// The dimension of its unit.
    pub fn dimension(&self) -> UnitDimension {
        self.form.dimension
    }

    /// The same figure for another number of workers, dedicated servers not counted; `None` where it does not
    /// depend on it.
    pub(super) fn among(&self, workers: u32) -> Option<Computed> {
        let counts = self.form.keys.contains(&"workers");
        counts.then(|| Computed { form: self.form, of: Given { workers, ..self.of.clone() } })
    }

    /// The figure in bytes, FLOPs, seconds, bytes per second, or a number.
    ///
    /// # Errors
    /// An unknown model, an algorithm that cannot serve the workers.
    pub fn value(&self) -> Result<f64, InputError> {
        (self.form.value)(&self.of)
    }
}

impl PartialEq for Computed {
    fn eq(&self, other: &Computed) -> bool {
        self.form.name == other.form.name && self.of == other.of
    }
}

impl Given {
    fn nothing() -> Given {
        Given {
            model: String::new(),
            cluster: String::new(),
            samples: 0,
            workers: 0,
            features: 0,
            bytes: None,
            bytes_per_s: 0.0,
            seconds: 0.0,
            flops_s: 0.0,
            algorithm: Algorithm::ring(),
            than: Algorithm::ring(),
            strategy: Strategy::default(),
            rate: 0.0,
            decay: 0.0,
        }
    }

    /// Sets the value of a form's key.
    fn set(&mut self, key: &str, table: &Table<'_>) -> Result<(), InputError> {
        let need = |example| table.need(key, example);
        match key {
            "model" => self.model = need("\"nin\"")?.text()?.to_owned(),
            "cluster" => self.cluster = need("\"minsky-edr\"")?.text()?.to_owned(),
            "samples" => self.samples = need("1024")?.count()?,
            "workers" => self.workers = need("32")?.count()?,
            "features" => self.features = need("4096")?.count()?,
            "bandwidth" => self.bytes_per_s = need("\"3GB/s\"")?.read(str::parse::<Bandwidth>)?.bytes_per_s(),
            "seconds" => self.seconds = need("0.125")?.number(f64::MIN_POSITIVE)?,
            "flops" => self.flops_s = need("2e12")?.number(f64::MIN_POSITIVE)?,
            "algorithm" => self.algorithm = need("\"ring\"")?.read(str::parse)?,
            "than" => self.than = need("\"ring\"")?.read(str::parse)?,
            "strategy" => self.strategy = need("\"hybrid:b\"")?.read(str::parse)?,
            "rate" => self.rate = need("0.01")?.number(f64::MIN_POSITIVE)?,
            "decay" => self.decay = need("5e-4")?.number(f64::MIN_POSITIVE)?,
            "bytes" => self.bytes = Some(need("220000000000")?.whole(1..=(1 << 62) - 1)?),
            _ => match table.get("bytes") {
                Some(entry) => self.bytes = Some(entry.whole(4..=(1 << 40) - 1)?),
                None => self.set("model", table)?,
            },
        }
        Ok(())
    }

    fn load(&self) -> Result<Model, InputError> {
        lockstep_readers::load_model(&self.model)
    }

    /// Bytes of one rank's outputs and gradients with all samples in one batch. Only a training's own plan has layers
    /// that are fused into others.
    fn planned(&self, reuse: Reuse) -> Result<f64, InputError> {
        let program =
            Job { fuse: reuse == Reuse::Full, ..Job::new(Arc::new(self.load()?), 1, self.samples) }.program()?;
        Ok(Plan::of_role(&program, &program.roles[0], reuse).bytes as f64)
    }
}

/// Bytes of the inputs of all convolutions and dense layers.
fn input_bytes(model: &Model, samples: u32) -> f64 {
    let of = |node: &lockstep_models::Node| {
        node.input_shapes.iter().map(|shape| shape.elements() as f64 * ELEMENT_BYTES).sum::<f64>()
    };
    f64::from(samples) * matrix_layers(model, of)
}

/// Partial passes through the dense layers in a step of that many workers, one sample each.
fn dense_passes(of: &Given) -> Result<u32, InputError> {
    let job = Job { strategy: of.strategy.clone(), ..Job::new(Arc::new(of.load()?), of.workers, of.workers) };
    let sharding = job.program()?.sharding;
    Ok(sharding.map_or(1, |sharding| sharding.passes.len() as u32))
}

/// Seconds of all buffers' allreduces, one after the other, among the first hosts of a cluster, the first GPU of each.
fn among_hosts(cluster: &Cluster, of: &Given, algorithm: &Algorithm) -> Result<f64, InputError> {
    let workers = of.workers;
    let elements: Vec<u64> = match of.bytes {
        Some(bytes) => vec![bytes / ELEMENT_BYTES as u64],
        None => {
            let of_layer = |node: &lockstep_models::Node| node.parameters.iter().map(|tensor| tensor.elements()).sum();
            of.load()?.layers().iter().map(of_layer).filter(|elements: &u64| *elements > 0).collect()
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
        let time = simulate_collective(&CollectiveRun { padded: true, ..run }, &platform);
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
    let held = SetPerNode { nodes, bytes: bytes / u64::from(nodes.max(1)) };
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
