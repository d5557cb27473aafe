//! `Job`: holds everything that decides a program except the cluster: model, strategy and sizes.

use std::collections::BTreeSet;
use std::sync::Arc;

use lockstep_topology::{Algorithm, Bytes, Collective, ErrorPlace, Group, InputError, Time};

use super::{Bucket, Strategy};
use crate::{
    Assignment, Axis, AxisAlgorithms, AxisSet, Gradients, LayerId, Mesh, Model, Moments, PassRanks, PipelineSchedule,
    Precision, Program, Proofs, Recompute, Sampling, StageCut, Stages, TransformAt, UpdateRule,
};

/// Everything that decides a program except where its ranks run.
#[derive(Debug, Clone)]
pub struct Job {
    /// What is trained.
    pub model: Arc<Model>,
    /// How it is spread over ranks.
    pub strategy: Strategy,
    /// Ranks that train.
    pub workers: u32,
    /// The axes of the workers; `None`: those that the strategy gives them.
    pub mesh: Option<Mesh>,
    /// Where the layers are cut into the stages of the mesh's axis `pipeline`.
    pub cut: StageCut,
    /// In which order its stages take the passes of micro-batches.
    pub schedule: PipelineSchedule,
    /// Workers on each device, which are neighbours; only learners share one. The most where their numbers are unequal.
    pub learners: u32,
    /// Workers by device, where their numbers are unequal.
    pub unequal_learners: Option<Arc<[u32]>>,
    /// Samples per worker and micro-batch: n in Goyal et al. 2017. With a mesh, those of each coordinate on its
    /// axis `data`.
    pub batch_per_rank: u32,
    /// Micro-batches per step and worker.
    pub accumulate: u32,
    /// How gradients are cut into exchanges.
    pub bucket: Bucket,
    /// Algorithm of the allreduce.
    pub algorithm: Algorithm,
    /// Algorithms of the exchanges along axes that have their own.
    pub axis_algorithms: AxisAlgorithms,
    /// Algorithm of exchanges of activations along [`Strategy::activation_axes`], where it serves them; else they are
    /// `direct`.
    pub activations: Option<Algorithm>,
    /// Bytes per lane; `None`: the algorithm's own choice.
    pub chunk: Option<Bytes>,
    /// Exchanges in flight at once (c in Goyal et al. 2017 §4.2): the n-th unblocks the (n + c)-th.
    pub concurrent_exchanges: u32,
    /// The nodes of consecutive ranks, as numbers of ranks; `None`: all on one.
    pub node_sizes: Option<Vec<u32>>,
    /// How samples are drawn.
    pub sampling: Sampling,
    /// Whether neighbouring layers are fused into one kernel.
    pub fuse: bool,
    /// Whether exchanges are rounded up to equal parts.
    pub pad: bool,
    /// Batches of each rank that are read, decoded and uploaded ahead of their loads; 0: each when its load comes;
    /// `None`: batches are already in memory.
    pub ahead: Option<u32>,
    /// Where decoded samples are transformed.
    pub transform_at: TransformAt,
    /// The numbers in which layers are trained.
    pub precision: Precision,
    /// Those in which gradients are kept and exchanged.
    pub gradients: Gradients,
    /// Those in which the optimizer keeps its state.
    pub moments: Moments,
    /// The rule of the optimizer.
    pub rule: UpdateRule,
    /// Which activations are computed again.
    pub recompute: Recompute,
    /// Whether gradients are clipped by their global norm.
    pub clips: bool,
    /// The time on a node's main thread at the end of a device's job, where a strategy has one thread for a
    /// node's devices.
    pub callback: Time,
    /// Proved schedules, shared with clones.
    pub proofs: Proofs,
}

impl Job {
    /// A job with one exchange at a time, one micro-batch, 25 MiB buckets, ring, fusion and padding.
    pub fn new(model: Arc<Model>, workers: u32, batch_per_rank: u32) -> Job {
        Job {
            model,
            strategy: Strategy::default(),
            workers,
            mesh: None,
            cut: StageCut::Work,
            schedule: PipelineSchedule::OneForwardOneBackward,
            learners: 1,
            unequal_learners: None,
            batch_per_rank,
            accumulate: 1,
            bucket: Bucket::Size(Bytes(25 << 20)),
            algorithm: Algorithm::ring(),
            axis_algorithms: AxisAlgorithms::default(),
            activations: None,
            chunk: None,
            concurrent_exchanges: 1,
            node_sizes: None,
            sampling: Sampling::OneShuffle,
            fuse: true,
            pad: true,
            ahead: None,
            transform_at: TransformAt::Host,
            precision: Precision::F32,
            gradients: Gradients::F32,
            moments: Moments::F32,
            rule: UpdateRule::default(),
            recompute: Recompute::None,
            clips: false,
            callback: Time::ZERO,
            proofs: Proofs::default(),
        }
    }

    /// The workers' axes: the given ones, with `data` among them, else `data` alone.
    ///
    /// # Errors
    /// No workers.
    pub(super) fn data_mesh(&self) -> Result<Mesh, InputError> {
        let Some(mesh) = &self.mesh else { return Mesh::new(&[(Axis::Data, self.workers)]) };
        let given = mesh.outer_first().map(|axis| (axis, mesh.size(axis)));
        let data = (Axis::Data, 1);
        Mesh::new(&given.chain((!mesh.axes().contains(Axis::Data)).then_some(data)).collect::<Vec<_>>())
    }

    fn mesh_text(&self) -> String {
        self.mesh.as_ref().map_or_else(String::new, Mesh::to_string)
    }

    /// Reports an error of a pipeline's numbers as one of the job's settings for them.
    pub(crate) fn of_mesh(&self, error: InputError) -> InputError {
        match error.place {
            ErrorPlace::Flag("stages") => InputError::flag("mesh", self.mesh_text(), error.message),
            ErrorPlace::Flag("micro_batches") => InputError::flag("accumulate", error.value, error.message),
            _ => error,
        }
    }

    /// The stages among which the layers of the job's model are divided; `None` where each rank has all layers.
    ///
    /// # Errors
    /// More chunks than layers, a list of cuts that does not fit, a first cut that leaves the samples to a later stage.
    pub fn stages(&self) -> Result<Option<Stages>, InputError> {
        self.stages_of(&self.model)
    }

    /// The same for `model`, a rank's part of each layer of the job's.
    ///
    /// # Errors
    /// More chunks than layers, a list of cuts that does not fit, a first cut that leaves the samples to a later stage.
    pub(crate) fn stages_of(&self, model: &Model) -> Result<Option<Stages>, InputError> {
        let stages = self.mesh.as_ref().map_or(1, |mesh| mesh.size(Axis::Pipeline));
        if stages == 1 {
            return Ok(None);
        }
        let cut = Stages::new(model, stages, self.schedule.chunks(), &self.cut).map_err(|error| self.of_mesh(error))?;
        if !cut.serve_tie(model) {
            model.refuse_tie((
                "mesh",
                self.mesh_text(),
                "gives one stage two layers in two of its chunks (another cut, e.g. layers, may not)",
            ))?;
        }
        let last = |chunk: u32| chunk as usize + 1 == cut.chunks().len();
        let reads_samples =
            (0..).take_while(|chunk| !last(*chunk)).any(|chunk| cut.crossing(model, chunk).contains(&LayerId(0)));
        if reads_samples {
            let message =
                "leaves layers that read the samples to a later stage: cut behind all of them, or use fewer stages";
            return Err(InputError::flag("cut", self.cut.to_string(), message));
        }
        Ok(Some(cut))
    }

    /// Micro-batches per step and worker: those that gradients accumulate over, or a learner's from one synchronisation
    /// to the next.
    pub fn micro_batches(&self) -> u32 {
        self.accumulate.saturating_mul(self.strategy.period())
    }

    /// How many batches of [`Job::batch_per_rank`] samples all workers take at once: one each, unless they share
    /// them in a mesh.
    pub fn sources(&self) -> u32 {
        self.mesh.as_ref().map_or(self.workers, |mesh| mesh.size(Axis::Data) * mesh.size(Axis::Device))
    }

    /// `resnet-50 in bf16`: the model, and its precision where it is not fp32.
    pub fn model_in_numbers(&self) -> String {
        self.precision.beside(self.model.name())
    }

    /// `model-parallel over data=2,tensor=2`: the strategy, and the mesh where one is given.
    pub fn layout_name(&self) -> String {
        let mesh = self.mesh.as_ref().map(|mesh| format!(" over {mesh}"));
        format!("{}{}", self.strategy, mesh.unwrap_or_default())
    }

    /// `ring, tensor=library:nccl`: the algorithm, those of axes that have their own, and a default of activations that
    /// is neither: `ring, activations by library:nccl`.
    pub fn algorithm_name(&self) -> String {
        let of_axes = (!self.axis_algorithms.is_empty()).then(|| format!(", {}", self.axis_algorithms));
        let own = self.default_of_activations().filter(|default| **default != self.algorithm);
        let of_activations = own.map(|default| format!(", activations by {default}"));
        format!("{}{}{}", self.algorithm, of_axes.unwrap_or_default(), of_activations.unwrap_or_default())
    }

    /// [`Job::activations`], where ranks exchange activations along an axis without an algorithm of its own.
    pub fn default_of_activations(&self) -> Option<&Algorithm> {
        let axes = self.strategy.activation_axes();
        let ranks = |axis| self.mesh.as_ref().map_or(self.workers, |mesh| mesh.size(axis));
        let exchanges = axes.iter().any(|axis| ranks(axis) > 1);
        self.activations.as_ref().filter(|_| exchanges && self.axis_algorithms.along(axes).is_none())
    }

    /// Samples per step over all workers.
    pub fn global_batch(&self) -> u64 {
        u64::from(self.sources()) * u64::from(self.batch_per_rank) * u64::from(self.micro_batches())
    }

    /// Samples that a gradient is the mean over, and that the rate may follow: all of a step; for learners, those
    /// of one batch.
    pub fn gradient_samples(&self) -> u64 {
        if self.strategy.trains_apart() { u64::from(self.batch_per_rank) } else { self.global_batch() }
    }

    /// Whether learners claim their batches.
    pub(crate) fn claims(&self) -> bool {
        self.averaging().is_some_and(|averaging| averaging.assignment != Assignment::Own)
    }

    /// The algorithm of exchanges of parameters along `axes`.
    pub fn algorithm_along(&self, axes: AxisSet) -> &Algorithm {
        self.axis_algorithms.along(axes).unwrap_or(&self.algorithm)
    }

    /// The algorithm of exchanges of activations along `axes` by `collective`.
    pub(crate) fn activations_along(&self, axes: AxisSet, collective: &Collective) -> Algorithm {
        let serves = |default: &&Algorithm| default.serves(collective) && axes == self.strategy.activation_axes();
        let default = self.activations.as_ref().filter(serves);
        if *collective == Collective::AllToAll {
            return Algorithm::pairwise();
        }
        self.axis_algorithms.along(axes).or(default).cloned().unwrap_or_else(Algorithm::direct)
    }

    /// Workers by device, where several share one.
    pub(crate) fn devices(&self) -> Option<Arc<[u32]>> {
        let equal = || vec![self.learners; (self.workers / self.learners) as usize].into();
        self.unequal_learners.clone().or_else(|| (self.learners > 1).then(equal))
    }

    /// Every algorithm that exchanges may take.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = &Algorithm> {
        [&self.algorithm].into_iter().chain(self.axis_algorithms.iter().map(|(_, algorithm)| algorithm))
    }

    /// Refuses an algorithm of an axis that `mesh` does not have.
    pub(crate) fn check_axis_algorithms(&self, mesh: &Mesh) -> Result<(), InputError> {
        let Some((axis, algorithm)) = self.axis_algorithms.iter().find(|(axis, _)| !mesh.axes().contains(*axis)) else {
            return Ok(());
        };
        let message =
            format!("{} on the axes {mesh} has no axis {axis}: use one of these, or leave it out", self.strategy);
        Err(InputError::flag("axis_algorithms", format!("{axis}={algorithm}"), message))
    }

    /// Reports an error of an algorithm as one of the axis that it was given for.
    pub(crate) fn of_axis(&self, error: InputError) -> InputError {
        let is_it = |algorithm: &Algorithm| algorithm.to_string() == error.value;
        let of_axis = self.axis_algorithms.iter().find(|(_, algorithm)| is_it(algorithm));
        match (of_axis, error.place.clone()) {
            (Some((axis, algorithm)), ErrorPlace::Flag("algorithm")) if !is_it(&self.algorithm) => {
                InputError::flag("axis_algorithms", format!("{axis}={algorithm}"), error.message)
            }
            _ => error,
        }
    }

    /// Ranks that take part, dedicated servers included.
    pub fn ranks(&self) -> u32 {
        self.workers.saturating_add(self.servers())
    }

    /// Dedicated servers.
    pub fn servers(&self) -> u32 {
        if self.workers > 1 { self.algorithm.servers() } else { 0 }
    }

    /// The switches among the dedicated servers.
    pub fn switches(&self) -> u32 {
        if self.workers > 1 { self.algorithm.switches() } else { 0 }
    }

    /// How many ranks are on each machine, which only a hierarchical algorithm needs.
    pub(crate) fn machines(&self) -> Option<Arc<[u32]>> {
        self.node_sizes.as_deref().map(Arc::from)
    }

    /// The nodes of the members of the allreduce, which only a hierarchical algorithm needs.
    pub fn group(&self) -> Group {
        match &self.node_sizes {
            Some(sizes) if self.algorithm.by_nodes() => Group::nodes(sizes),
            _ => Group::flat(self.ranks()),
        }
    }

    /// Checks that ranks which hold samples in parts can draw each from its own.
    pub(crate) fn check_partition(&self, program: &Program) -> Result<(), InputError> {
        let shares = program.sharding.as_ref().is_some_and(|sharding| sharding.pass_ranks == PassRanks::All);
        if program.partition.is_some() && (shares || self.strategy.trains_apart()) {
            let message = format!(
                "serves ssgd, zero-1 to zero-3 and first-device-table, and not {}: use one-shuffle or per-node",
                self.strategy
            );
            return Err(InputError::flag("sampling", self.sampling.to_string(), message));
        }
        Ok(())
    }

    /// How many ranks draw from each pool of samples, in the order of [`Mesh::source`].
    ///
    /// # Errors
    /// Ranks that share samples across several nodes, where each node draws its own.
    pub(crate) fn pools(&self) -> Result<Vec<u32>, InputError> {
        let nodes = self.node_sizes.as_deref();
        let shared = self.mesh.as_ref().filter(|mesh| mesh.source(mesh.ranks() - 1) != mesh.ranks() - 1);
        let (Some(mesh), Some(sizes), Sampling::PerNode) = (shared, nodes, self.sampling) else {
            return Ok(self.sampling.pools(self.sources(), nodes));
        };
        let mut node_of = sizes.iter().enumerate().flat_map(|(node, size)| std::iter::repeat_n(node, *size as usize));
        let mut by_source: Vec<Option<usize>> = vec![None; self.sources() as usize];
        let mut together = true;
        for rank in 0..mesh.ranks() {
            let (node, source) = (node_of.next(), mesh.source(rank) as usize);
            together &= by_source[source].is_none_or(|of_others| Some(of_others) == node);
            by_source[source] = node;
        }
        let pools: Vec<u32> = by_source.chunk_by(|a, b| a == b).map(|pool| pool.len() as u32).collect();
        let nodes = by_source.iter().collect::<BTreeSet<_>>().len();
        if together && nodes == pools.len() {
            return Ok(pools);
        }
        let message = "draws samples for each node, and ranks that share samples lie on several: use one-shuffle, or data as the outermost axis";
        Err(InputError::flag("sampling", self.sampling.to_string(), message))
    }

    /// Refuses settings that do not apply to learners.
    pub(crate) fn check_learners(&self) -> Result<(), InputError> {
        let refused = |key, value: String, message: &str| Err(InputError::flag(key, value, message));
        if !self.strategy.trains_apart() {
            return Ok(());
        }
        if self.accumulate > 1 {
            let strategy = ErrorPlace::Flag("strategy");
            let message = format!(
                "learners update their models after each batch: use 1, or tau in {strategy} to synchronise less often"
            );
            return refused("accumulate", self.accumulate.to_string(), &message);
        }
        let all = |each: &Arc<[u32]>| each.iter().map(|count| u64::from(*count)).sum::<u64>();
        let divides = |each: &Arc<[u32]>| all(each) == u64::from(self.workers) && !each.contains(&0);
        let equal = || self.workers.is_multiple_of(self.learners.max(1));
        if !self.unequal_learners.as_ref().map_or_else(equal, divides) {
            let message = format!("each do not divide {} learners among devices: use a divisor", self.workers);
            return refused("learners", self.learners.to_string(), &message);
        }
        if self.unequal_learners.is_some()
            && self.strategy.averaging(4, 2).is_some_and(|of| of.reference_alpha.is_some())
        {
            let message =
                "has one α for all devices' reference models: use equal numbers of learners, or sma without them";
            return refused("strategy", self.strategy.to_string(), message);
        }
        let two_levels = self.averaging().is_some_and(|averaging| averaging.reference_alpha.is_some());
        // An algorithm that depends on nodes must know that one learner of each device takes part.
        let knows = |of: &Algorithm| !of.by_nodes() || of.serves(&Collective::AllReduceToLeaders);
        let serves = |of: &Algorithm| of.library().is_none() && of.servers() == 0 && knows(of);
        if let Some(algorithm) = self.algorithms().find(|of| two_levels && !serves(of)) {
            let message = "crosses devices by reference models, one of each: use ring, or hierarchical:ring";
            return Err(self.of_axis(InputError::flag("algorithm", algorithm.to_string(), message)));
        }
        let all = u64::from(self.workers) * u64::from(self.strategy.period());
        if all > u64::from(u32::MAX) {
            let message = "gives more than 2^32 batches an iteration: use a smaller tau";
            return refused("strategy", self.strategy.to_string(), message);
        }
        Ok(())
    }
}
