//! `Configuration`: the job of one row of an experiment, and the product that generates all of them.

use std::sync::Arc;

use lockstep_models::{Job, Model, Program, READ_AHEAD, TransformAt};
use lockstep_topology::placement::with_room;
use lockstep_topology::{
    Algorithm, Cluster, ErrorPlace, Hosting, HostingRule, InputError, Limits, Placement, PlacementRule, Time, blocks,
};

use crate::experiment::Experiment;
use crate::input::Stated as StatedInput;
use crate::published::PublishedPoint;
use crate::scenario::NONE;
use crate::transport::TransportKind;
use lockstep_report::Setting;

/// An experiment may have at most this many configurations.
const MOST: usize = 100_000;

/// One row of the answer.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// What is trained and how.
    pub job: Job,
    /// Learners on each device, the most where devices have unequal numbers; the job's workers are all of them.
    pub learners: u32,
    /// Configurations of the same key have the same batch, so that their throughput per rank can be compared.
    pub batch_key: u64,
    /// The scenario, where the experiment has scenarios.
    pub scenario: Option<Arc<str>>,
}

impl Configuration {
    /// The program that is both simulated and executed.
    ///
    /// # Errors
    /// See [`Job::program`].
    pub fn program(&self) -> Result<Program, InputError> {
        self.job.program()
    }

    /// The algorithm of the allreduce, `-` for a single rank.
    pub fn algorithm(&self) -> String {
        if self.job.workers == 1 { "-".to_owned() } else { self.job.algorithm_name() }
    }

    /// The columns that distinguish it from others.
    pub fn setting(&self) -> Setting {
        let job = &self.job;
        Setting {
            model: job.model_in_numbers(),
            strategy: job.layout_name(),
            learners: self.learners,
            ranks: job.workers,
            batch_per_rank: job.batch_per_rank,
            accumulate: job.accumulate,
            global_batch: job.global_batch(),
            algorithm: self.algorithm(),
            bucket: job.bucket.to_string(),
            recompute: job.recompute.any().map(ToString::to_string),
        }
    }

    /// Devices of its workers.
    pub fn devices(&self) -> u32 {
        self.job.unequal_learners.as_ref().map_or(self.job.workers / self.learners.max(1), |each| each.len() as u32)
    }

    /// Learners by device.
    pub fn learners_by_device(&self) -> Vec<u32> {
        let equal = || vec![self.learners; self.devices() as usize];
        self.job.unequal_learners.as_ref().map_or_else(equal, |each| each.to_vec())
    }

    /// `lenet, 2 ranks x 16, ring`: its name in progress lines and in tracks of traces.
    pub fn label(&self) -> String {
        let job = &self.job;
        let scenario = self.scenario.iter().filter(|name| &***name != NONE).map(|name| format!(", {name}"));
        let scenario: String = scenario.collect();
        let ranks = job.workers.to_string();
        format!("{}{scenario}", self.label_with(&ranks, &job.batch_per_rank.to_string(), &job.algorithm_name()))
    }

    /// The label of the same model with these numbers of ranks and samples per rank and this algorithm.
    pub fn label_with(&self, ranks: &str, batch_per_rank: &str, algorithm: &str) -> String {
        let model = self.job.model_in_numbers();
        match ranks {
            "1" => format!("{model}, 1 rank x {batch_per_rank}"),
            ranks => format!("{model}, {ranks} ranks x {batch_per_rank}, {algorithm}"),
        }
    }

    /// Where its ranks run on `cluster`, in host order; sets the nodes of the job's ranks.
    ///
    /// # Errors
    /// More ranks than places.
    pub fn place(&mut self, cluster: &Cluster, experiment: &Experiment) -> Result<(Placement, Hosting), InputError> {
        let rule = match experiment.ranks_per_node {
            Some(each) if !experiment.on_this_machine() => PlacementRule::PerHost(each),
            _ => PlacementRule::Pack,
        };
        // On this machine ranks take the role of switches, as in the executor.
        let switches = if experiment.on_this_machine() { 0 } else { self.job.switches() };
        let ranks = self.devices().saturating_add(self.job.servers() - switches);
        let placed =
            Placement::new(cluster, ranks, &rule).map_err(|error| match with_room(&experiment.cluster, ranks) {
                Some(larger) if error.place == ErrorPlace::Flag("ranks") && rule == PlacementRule::Pack => {
                    let message = format!("{}: write cluster {larger}", error.message);
                    InputError { message, ..error }
                }
                _ => error,
            })?;
        let joined = if switches > 0 { self.job.algorithm.joined(placed.ranks()) } else { Vec::new() };
        let mut placement = placed.and_switches(cluster, &joined, &self.job.algorithm)?;
        if self.learners > 1 {
            placement = self.share_devices(cluster, &placement)?;
        }
        let hosting = Hosting::new(&placement, &experiment.hosting(&self.job)?)?;
        if !experiment.on_this_machine() && self.learners == 1 {
            let ranks: Vec<_> = placement.all().collect();
            self.job.node_sizes = Some(placement.node_sizes(&ranks));
        }
        Ok((placement, hosting))
    }

    /// Each place of `places` for all learners of a device, servers unchanged.
    fn share_devices(&self, cluster: &Cluster, places: &Placement) -> Result<Placement, InputError> {
        let learners = self.learners_by_device();
        let each = |rank: u32| learners.get(rank as usize).map_or(1, |count| *count as usize);
        let listed = places.all().flat_map(|rank| vec![places.device(rank); each(rank.0)]).collect();
        let usual = Limits::default();
        let ranks_per_core = usual.ranks_per_core.saturating_mul(self.learners);
        let limits = Limits { ranks_per_gpu: self.learners, ranks_per_core, ..usual };
        Placement::within(cluster, self.job.ranks(), &PlacementRule::Listed(listed), limits)
    }

    /// Learners of one device sum their differences there before the ring crosses devices (Koliousis et al. 2019,
    /// §4.2), so for a hierarchical algorithm devices are the nodes.
    pub(super) fn group_by_device(&mut self) {
        self.job.learners = self.learners;
        if self.learners > 1 {
            let mut sizes = self.learners_by_device();
            sizes.extend(vec![1; self.job.servers() as usize]);
            self.job.node_sizes = Some(sizes);
        }
    }
}

impl Experiment {
    /// Its configurations: for each strategy, for each batch, for each number of ranks, each algorithm; one for a single rank, which
    /// exchanges nothing.
    ///
    /// Ranks are on one node until [`Configuration::place`] says otherwise.
    ///
    /// # Errors
    /// No model, an unknown one, a global batch that does not divide, or an unsuitable algorithm; each program is built
    /// once to find out.
    pub fn configurations(&self) -> Result<Vec<Configuration>, InputError> {
        if self.clusters.len() > 1 {
            let message = "is a list, and this command uses one cluster: name one, or ask sim predict or sim sweep";
            return Err(self.locate(InputError::flag("cluster", self.clusters.join(","), message)));
        }
        if self.strategies.len() > 1 {
            let each = self.of_strategies();
            let all: Vec<Vec<_>> = each.iter().map(Experiment::configurations).collect::<Result<_, _>>()?;
            return Ok(all.concat());
        }
        self.check_read()?;
        self.check_tuning()?;
        self.check_growth()?;
        let model = Arc::new(self.load_model(&self.model)?);
        self.check_read_by(&model)?;
        let batches = self.batch.per_rank().len() + self.batch.global().len();
        let algorithms = self.methods(self.learners);
        let ranks = self.rank_counts()?;
        if batches * ranks.len() * algorithms.len() > MOST {
            let message = format!("more than {MOST} configurations: leave some out");
            return Err(InputError::new("experiment", self.name.clone(), message));
        }
        let mut all = Vec::new();
        for batch in 0..batches {
            for ranks in ranks.iter().copied() {
                let alone = ranks.saturating_mul(self.learners) == 1;
                for algorithm in algorithms.iter().take(if alone { 1 } else { usize::MAX }) {
                    let configuration = self.configuration(&model, batch, ranks, algorithm)?;
                    configuration.program().map_err(|error| self.locate(error))?;
                    all.push(configuration);
                }
            }
        }
        Ok(all)
    }

    /// Its numbers of ranks: the mesh's, where it has one.
    pub(super) fn rank_counts(&self) -> Result<Vec<u32>, InputError> {
        match &self.mesh {
            None => Ok(self.ranks.clone()),
            Some(mesh) if self.states("ranks") && self.ranks != [mesh.ranks()] => {
                let message = format!("has {} ranks, and ranks says another number: leave ranks out", mesh.ranks());
                Err(self.locate(InputError::flag("mesh", mesh.to_string(), message)))
            }
            Some(mesh) => Ok(vec![mesh.ranks()]),
        }
    }

    /// The model called `name`, with the experiment's initial values; errors are at the line that gives it.
    ///
    /// # Errors
    /// No name, or whatever [`lockstep_readers::load_model`] refuses.
    pub fn load_model(&self, name: &str) -> Result<Model, InputError> {
        if name.is_empty() {
            let message = "is missing: name a model, e.g. lenet, or an experiment file";
            return Err(InputError::flag("model", "", message));
        }
        let unfolded = if self.unfold { Some(lockstep_readers::unfolded_name(name)) } else { None };
        let unfolded = unfolded.transpose().map_err(|error| self.locate(error))?;
        let load = |name: &str| {
            lockstep_readers::load_model(name).map_err(|error| match error.place {
                ErrorPlace::None => self.locate(error.at(ErrorPlace::Flag("model"))),
                _ => error,
            })
        };
        let name = unfolded.as_deref().unwrap_or(name);
        let Some(positions) = self.seq_length else { return Ok(load(name)?.with_inits(&self.inits)) };
        let loaded = load(&lockstep_readers::model_with(name, &format!("positions={positions}")));
        // A model may be too large with the positions of its file, which is no reason to refuse it with others.
        if loaded.is_err() && load(name).is_ok_and(|model| model.tokens().is_none()) {
            let message = format!("is of models of tokens, and {name} is none: leave it out");
            return Err(self.locate(InputError::flag("seq_length", positions.to_string(), message)));
        }
        Ok(loaded?.with_inits(&self.inits))
    }

    /// The published figure for a configuration.
    pub fn published_for(&self, configuration: &Configuration) -> Option<f64> {
        let job = &configuration.job;
        let fits = |point: &&PublishedPoint| {
            point.ranks == configuration.devices()
                && point.batch_per_rank.is_none_or(|batch| batch == job.batch_per_rank)
                && point.algorithm.as_ref().is_none_or(|algorithm| *algorithm == job.algorithm)
        };
        self.published.as_ref()?.points.iter().find(fits).map(|point| point.images_per_s)
    }

    /// The configuration of `ranks` ranks with the batch at `batch`, whether or not the experiment lists it.
    ///
    /// # Errors
    /// A global batch that does not divide.
    pub fn configuration(
        &self,
        model: &Arc<Model>,
        batch: usize,
        ranks: u32,
        algorithm: &Algorithm,
    ) -> Result<Configuration, InputError> {
        let devices = ranks;
        let Some(ranks) = devices.checked_mul(self.learners) else {
            let message = format!("times {devices} ranks are more than 2^32: use fewer");
            return Err(self.locate(InputError::flag("learners", self.learners.to_string(), message)));
        };
        if self.learners > 1 && self.strategy.averaging(ranks, self.learners).is_none() {
            let message = format!("{} has no learners that could share a device: use the strategy sma", self.strategy);
            return Err(self.locate(InputError::flag("learners", self.learners.to_string(), message)));
        }
        let (batch_per_rank, accumulate, batch_key) = self.batch_of(batch, ranks)?;
        if self.loaded.is_some() {
            self.check_transform()?;
        }
        let precision = self.numbers()?;
        let mut configuration = Configuration {
            job: Job {
                strategy: self.strategy.clone(),
                accumulate,
                bucket: self.bucket,
                algorithm: algorithm.clone(),
                axis_algorithms: self.axis_algorithms.clone(),
                // Runs on GPUs call the library's allreduce alone.
                activations: self.serving_library(self.learners).filter(|_| !self.device.is_gpu()).cloned(),
                chunk: self.chunk,
                concurrent_exchanges: self.concurrent_exchanges,
                fuse: self.fuse,
                pad: self.pad,
                ahead: match &self.input {
                    Some(stated) => Some(stated.prefetch()),
                    None => self.prepared_for(ranks).map(|_| READ_AHEAD),
                },
                transform_at: self.transform_at,
                sampling: self.sampling,
                mesh: self.mesh.clone(),
                cut: self.cut.clone(),
                schedule: self.schedule,
                precision,
                gradients: self.gradients,
                recompute: self.recompute.clone(),
                moments: self.optimizer.moments,
                rule: self.optimizer.rule,
                clips: self.optimizer.clip_norm.is_some(),
                callback: self.input.as_ref().map_or(Time::ZERO, StatedInput::callback),
                ..Job::new(Arc::clone(model), ranks, batch_per_rank)
            },
            learners: self.learners,
            batch_key,
            scenario: None,
        };
        configuration.job.node_sizes = Some(self.nodes_here(configuration.job.ranks())?);
        configuration.group_by_device();
        Ok(configuration)
    }

    /// Refuses to transform on devices what no threads decode.
    ///
    /// # Errors
    /// Such a setting, with its cure.
    pub fn check_transform(&self) -> Result<(), InputError> {
        if self.input.is_some() || self.decodes() || self.transform_at == TransformAt::Host {
            return Ok(());
        }
        let message = "these data need no decoding, so nothing is transformed: use packed JPEG or PNG files \
                       (lockstep data pack), or host";
        Err(self.locate(InputError::flag("transform_at", self.transform_at.to_string(), message)))
    }

    /// How `ranks` ranks are spread over nodes where no cluster says it: consecutive ranks share a node, as many as the
    /// experiment asks for or as a process has; else all are on one node.
    pub(super) fn nodes_here(&self, ranks: u32) -> Result<Vec<u32>, InputError> {
        let here = self.on_this_machine();
        let of_process = self.processes.filter(|count| here && ranks.is_multiple_of(*count)).map(|count| ranks / count);
        let Some(each) = self.ranks_per_node.filter(|_| here).or(of_process) else { return Ok(vec![ranks]) };
        if ranks > each && !ranks.is_multiple_of(each) {
            let message = format!("do not divide {ranks} ranks: use a number that does, or a cluster with such hosts");
            return Err(self.locate(InputError::flag("ranks_per_node", each.to_string(), message)));
        }
        let each = each.min(ranks);
        Ok(vec![each; (ranks / each) as usize])
    }

    /// How ranks are grouped into processes: threads share one on each host; MPI has one for each rank, or as many as
    /// `mpirun` started.
    fn hosting(&self, job: &Job) -> Result<HostingRule, InputError> {
        match (self.transport, self.processes) {
            (TransportKind::Mpi, Some(processes)) => blocks(job.ranks(), job.servers(), processes)
                .map(HostingRule::Listed)
                .map_err(|message| InputError::flag("ranks", job.ranks().to_string(), message)),
            (transport, _) => Ok(transport.hosting()),
        }
    }

    /// Describes how `configurations` are trained, in full: recipe, rates, momentum, decays, initial values.
    pub fn account_of_training(&self, configurations: &[Configuration]) -> String {
        let mut lines = Vec::new();
        if let Some(recipe) = &self.recipe {
            let batch = recipe.global_batch.map(|batch| format!(", made for a global batch of {batch}"));
            lines.push(format!("recipe {} ({}{})", recipe.name, recipe.source, batch.unwrap_or_default()));
        }
        lines.extend(self.account_of_solver());
        lines.push(self.optimizer.to_string());
        lines.extend(configurations.first().and_then(|first| first.job.model.multipliers()));
        let mut rates: Vec<String> = Vec::new();
        for configuration in configurations {
            let batch = configuration.job.gradient_samples();
            let whose = if configuration.job.strategy.trains_apart() { "a learner's" } else { "a global" };
            let rate = format!("{} at {whose} batch of {batch}", self.optimizer.target_rate(batch));
            if !rates.contains(&rate) {
                rates.push(rate);
            }
        }
        lines.push(format!("target rate {}", rates.join(", ")));
        lines.extend(configurations.first().map(|first| format!("initial values: {}", first.job.model.inits())));
        lines.join("\n")
    }
}
