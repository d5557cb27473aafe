//! A job: model, strategy and sizes, everything that decides a program except the cluster.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lockstep_topology::{Algorithm, Bytes, Group, InputError};

use crate::{Assignment, Averaging, Model, Program, Sampling, Strategy, lower, passes};

/// How gradients are cut into exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket {
    /// One exchange per layer with parameters (Goyal et al. 2017 §4).
    Layer,
    /// One exchange of everything after the backward pass (Iandola et al. 2016 §6).
    Whole,
    /// Neighbouring layers until this size is reached.
    Size(Bytes),
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bucket::Layer => f.write_str("layer"),
            Bucket::Whole => f.write_str("whole"),
            Bucket::Size(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for Bucket {
    type Err = String;

    fn from_str(text: &str) -> Result<Bucket, String> {
        match text {
            "layer" => Ok(Bucket::Layer),
            "whole" => Ok(Bucket::Whole),
            size => match size.parse::<Bytes>() {
                Ok(Bytes(0)) | Err(_) => Err(format!("{text:?} is no bucket: write layer, whole or a size like 25MiB")),
                Ok(bytes) => Ok(Bucket::Size(bytes)),
            },
        }
    }
}

/// Everything that decides a program except where its ranks run.
#[derive(Debug, Clone)]
pub struct Job {
    /// What is trained.
    pub model: Arc<Model>,
    /// How it is spread over ranks.
    pub strategy: Strategy,
    /// Ranks that train.
    pub workers: u32,
    /// Workers on each device, which are neighbours; only learners share one.
    pub learners: u32,
    /// Samples per worker and micro-batch: n in Goyal et al. 2017.
    pub batch_per_rank: u32,
    /// Micro-batches per step and worker.
    pub accumulate: u32,
    /// How gradients are cut into exchanges.
    pub bucket: Bucket,
    /// Method of the allreduce.
    pub algorithm: Algorithm,
    /// Bytes per lane; `None`: the algorithm's own choice.
    pub chunk: Option<Bytes>,
    /// Exchanges in flight at once (c in Goyal et al. 2017 §4.2): the n-th unblocks the (n + c)-th.
    pub concurrent_exchanges: u32,
    /// How consecutive ranks lie on nodes; `None`: all on one.
    pub node_sizes: Option<Vec<u32>>,
    /// Who draws samples together.
    pub sampling: Sampling,
    /// Whether neighbouring layers are fused into one kernel.
    pub fuse: bool,
}

impl Job {
    /// A job with one exchange at a time, one micro-batch, 25 MiB buckets, ring and fusion.
    pub fn new(model: Arc<Model>, workers: u32, batch_per_rank: u32) -> Job {
        Job {
            model,
            strategy: Strategy::Ssgd,
            workers,
            learners: 1,
            batch_per_rank,
            accumulate: 1,
            bucket: Bucket::Size(Bytes(25 << 20)),
            algorithm: Algorithm::Ring,
            chunk: None,
            concurrent_exchanges: 1,
            node_sizes: None,
            sampling: Sampling::OneShuffle,
            fuse: true,
        }
    }

    /// How its learners average their models; `None` where all ranks train one.
    pub fn averaging(&self) -> Option<Averaging> {
        self.strategy.averaging(self.workers, self.learners)
    }

    /// Micro-batches per step and worker: those that gradients accumulate over, or a learner's from one synchronisation to
    /// the next.
    pub fn micro_batches(&self) -> u32 {
        self.accumulate.saturating_mul(self.strategy.period())
    }

    /// Samples per step over all workers.
    pub fn global_batch(&self) -> u64 {
        u64::from(self.workers) * u64::from(self.batch_per_rank) * u64::from(self.micro_batches())
    }

    /// Samples that a gradient is the mean over, and that the rate may follow: all of a step, but for learners, who take each
    /// batch for themselves.
    pub fn gradient_samples(&self) -> u64 {
        if self.averaging().is_some() { u64::from(self.batch_per_rank) } else { self.global_batch() }
    }

    /// Whether learners ask for their batches.
    pub(crate) fn claims(&self) -> bool {
        self.averaging().is_some_and(|averaging| averaging.assignment != Assignment::Own)
    }

    /// Ranks that take part, dedicated servers included.
    pub fn ranks(&self) -> u32 {
        self.workers.saturating_add(self.servers())
    }

    /// Ranks that only serve.
    pub fn servers(&self) -> u32 {
        match self.algorithm {
            Algorithm::ParameterServer { servers, dedicated: true } if self.workers > 1 => servers,
            _ => 0,
        }
    }

    /// How the members of the allreduce lie on nodes, which only a hierarchical method asks for.
    pub fn group(&self) -> Group {
        match (&self.node_sizes, &self.algorithm) {
            (Some(sizes), Algorithm::Hierarchical(_)) => Group::nodes(sizes),
            _ => Group::flat(self.ranks()),
        }
    }

    /// Strategy → graph → program → passes, each checked.
    ///
    /// # Errors
    /// Sizes of zero, sizes that overflow, or an algorithm that cannot serve the group.
    pub fn program(&self) -> Result<Program, InputError> {
        for (name, value) in [
            ("--ranks", self.workers),
            ("--batch-per-rank", self.batch_per_rank),
            ("--accumulate", self.accumulate),
            ("--concurrent-exchanges", self.concurrent_exchanges),
        ] {
            if value == 0 {
                return Err(InputError::new(name, "0", "must be at least 1"));
            }
        }
        self.check_learners()?;
        let (graph, shard) = self.strategy.graph(self)?;
        graph.check().map_err(|error| InputError::new("strategy", self.strategy.to_string(), error.to_string()))?;
        let program = match shard {
            None => lower::lower(&graph, self)?,
            Some((model, sharding)) if sharding.by_node() => lower::lower_table(&graph, self, &model, &sharding)?,
            Some((model, sharding)) => lower::lower_split(&graph, self, &model, &sharding)?,
        };
        self.check_partition(&program)?;
        let program = if self.fuse { passes::fuse(program) } else { program };
        program.check()?;
        Ok(program)
    }

    /// Samples that ranks hold in parts are drawn by each from its own.
    fn check_partition(&self, program: &Program) -> Result<(), InputError> {
        if program.partition.is_some() && (program.sharding.is_some() || program.averaging.is_some()) {
            let message = format!("serves ssgd alone, and not {}: take one-shuffle or per-node", self.strategy);
            return Err(InputError::new("--sampling", self.sampling.to_string(), message));
        }
        Ok(())
    }

    /// Settings that learners have no use for.
    fn check_learners(&self) -> Result<(), InputError> {
        let refused = |flag: &str, value: String, message: &str| Err(InputError::new(flag, value, message));
        if self.averaging().is_none() {
            return Ok(());
        }
        if self.accumulate > 1 {
            let message = "learners update their models after each batch: take 1, or tau in --strategy to synchronise less \
                           often";
            return refused("--accumulate", self.accumulate.to_string(), message);
        }
        if !self.workers.is_multiple_of(self.learners.max(1)) {
            let message = format!("each do not divide {} learners among devices: take a divisor", self.workers);
            return refused("--learners", self.learners.to_string(), &message);
        }
        let two_levels = self.averaging().is_some_and(|averaging| averaging.references.is_some());
        let serves =
            !matches!(self.algorithm, Algorithm::Library(_) | Algorithm::ParameterServer { dedicated: true, .. });
        if two_levels && !serves {
            let message = "crosses devices by reference models, one of each: take ring, or hierarchical:ring";
            return refused("--algorithm", self.algorithm.to_string(), message);
        }
        let all = u64::from(self.workers) * u64::from(self.strategy.period());
        if all > u64::from(u32::MAX) {
            let message = "gives more than 2^32 batches an iteration: take a smaller tau";
            return refused("--strategy", self.strategy.to_string(), message);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{After, Area, Buffer, Copy, Declared, Op, Phase, Rows, Task};

    fn job(workers: u32) -> Job {
        Job::new(Arc::new(Model::load("lenet").unwrap()), workers, 16)
    }

    fn names(program: &Program, role: usize) -> Vec<&str> {
        program.roles[role].tasks.iter().map(|task| task.name.as_str()).collect()
    }

    #[test]
    fn lenet_on_two_ranks_with_an_exchange_per_layer() {
        let program = Job { bucket: Bucket::Layer, ..job(2) }.program().unwrap();
        assert_eq!(
            names(&program, 0),
            [
                "load",
                "forward conv1+relu1+pool1",
                "forward conv2+relu2+pool2",
                "forward dense1+relu3",
                "forward dense2",
                "forward loss",
                "backward-data loss",
                "backward dense2",
                "backward dense1+relu3",
                "backward conv2+relu2+pool2",
                "backward-weight conv1+relu1+pool1",
                "allreduce dense2",
                "update dense2",
                "allreduce dense1",
                "update dense1",
                "allreduce conv2",
                "update conv2",
                "allreduce conv1",
                "update conv1",
            ]
        );
        // dense2's exchange waits for dense2's backward pass alone, and for the last exchange of the iteration before.
        let first = &program.roles[0].tasks[11];
        assert_eq!(first.after, [After { task: 7, lag: 0 }, After { task: 17, lag: 1 }]);
        assert_eq!(program.roles[0].tasks[13].after, [After { task: 8, lag: 0 }, After { task: 11, lag: 0 }]);
        let Op::Exchange(exchange) = &first.op else { panic!("an exchange") };
        assert_eq!(exchange.range, 1_101_696..1_111_946); // the last 10 × 1024 + 10 parameters
    }

    /// Goyal et al. 2017, §4.2: the n-th exchange unblocks the (n + c)-th, on all ranks in one order. No exchange blocks its
    /// rank's thread, so c is not bounded by threads as it is there; only a library's does, and then c is 1.
    #[test]
    fn at_most_c_exchanges_are_in_flight() {
        for c in 1..=5u32 {
            let dedicated: Algorithm = "parameter-server:1:dedicated".parse().unwrap();
            for algorithm in [Algorithm::Ring, dedicated] {
                let job = Job { bucket: Bucket::Layer, concurrent_exchanges: c, algorithm, ..job(3) };
                let program = job.program().unwrap();
                for role in &program.roles {
                    let exchanges: Vec<usize> = role.exchanges().map(|(id, _)| id).collect();
                    assert_eq!(exchanges.len(), 4);
                    let limit = c.min(4) as usize;
                    for (n, id) in exchanges.iter().enumerate() {
                        let (earlier, lag) = if n < limit { (n + 4 - limit, 1) } else { (n - limit, 0) };
                        let wanted = After { task: exchanges[earlier], lag };
                        assert!(role.tasks[*id].after.contains(&wanted), "exchange {n} of {} with c = {c}", role.name);
                    }
                }
            }
            let library = Job { algorithm: "library:mpi".parse().unwrap(), concurrent_exchanges: c, ..job(3) };
            let refused = Job { bucket: Bucket::Layer, ..library }.program().err().map(|error| error.to_string());
            assert_eq!(refused.is_some_and(|error| error.contains("one exchange at a time")), c > 1, "c = {c}");
        }
    }

    #[test]
    fn one_rank_has_no_exchange_and_updates_after_backward() {
        let program = Job { bucket: Bucket::Whole, ..job(1) }.program().unwrap();
        assert_eq!(program.roles[0].exchanges().count(), 0);
        let last = program.roles[0].tasks.last().unwrap();
        assert_eq!(last.op, Op::Update { range: 0..1_111_946 });
        assert_eq!(last.after, [], "the compute stream's order implies it");
    }

    #[test]
    fn accumulation_repeats_compute_and_nothing_else() {
        let (once, four) = (job(2).program().unwrap(), Job { accumulate: 4, ..job(2) }.program().unwrap());
        assert_eq!(four.roles[0].tasks.len(), once.roles[0].tasks.len() + 1);
        let Op::Repeat { count, body, claimed: false } = four.roles[0].tasks[0].op else { panic!("a repeat first") };
        assert_eq!((count, body), (4, 11));
        assert_eq!(four.global_batch(), 128);
        assert_eq!(four.roles[0].repeat_of(11), Some((0, 4)));
        assert_eq!(four.roles[0].repeat_of(12), None);
    }

    #[test]
    fn a_dedicated_server_is_a_role_that_only_exchanges() {
        let algorithm: Algorithm = "parameter-server:1:dedicated".parse().unwrap();
        let program = Job { algorithm, bucket: Bucket::Layer, ..job(3) }.program().unwrap();
        assert_eq!((program.ranks(), program.workers, program.role_of(3)), (4, 3, 1));
        assert_eq!(names(&program, 1), ["allreduce dense2", "allreduce dense1", "allreduce conv2", "allreduce conv1"]);
    }

    #[test]
    fn fusion_keeps_every_pass_of_every_layer() {
        for name in ["mlp", "lenet", "resnet-32"] {
            let model = Arc::new(Model::load(name).unwrap());
            let count = |fuse| {
                let program = Job { fuse, ..Job::new(model.clone(), 2, 4) }.program().unwrap();
                let mut passes = vec![[0; 3]; model.layers().len()];
                for task in &program.roles[0].tasks {
                    let Op::Compute { chain, phase, .. } = task.op else { continue };
                    for id in &program.chains[chain] {
                        let node = &mut passes[id.0 as usize];
                        node[0] += usize::from(phase == Phase::Forward);
                        node[1] += usize::from(matches!(phase, Phase::BackwardWeight | Phase::Backward));
                        node[2] += usize::from(matches!(phase, Phase::BackwardData | Phase::Backward));
                    }
                }
                passes
            };
            for (id, passes) in count(true).iter().enumerate().skip(1) {
                assert_eq!(passes[0], 1, "forward of layer {id} of {name}");
                let backward = passes[1] + passes[2];
                assert!(backward <= 2, "backward of layer {id} of {name}");
            }
            assert_eq!(count(false).iter().map(|p| p[0]).sum::<usize>(), model.layers().len() - 1);
        }
    }

    #[test]
    fn sizes_of_zero_are_refused() {
        for broken in
            [Job { workers: 0, ..job(1) }, Job { batch_per_rank: 0, ..job(1) }, Job { accumulate: 0, ..job(1) }]
        {
            assert!(broken.program().unwrap_err().to_string().contains("at least 1"));
        }
    }

    #[test]
    fn a_program_that_could_not_run_is_refused() {
        let program = job(2).program().unwrap();
        let refused = |change: &dyn Fn(&mut Program)| {
            let mut program = program.clone();
            change(&mut program);
            program.check().unwrap_err().to_string()
        };
        let broken = |change: fn(&mut Program)| refused(&change);
        let wait = broken(|p| p.roles[0].tasks[1].after.push(After { task: 3, lag: 0 }));
        assert!(wait.contains("never start"), "{wait}");
        let group = broken(|p| p.groups[0].ranks.count = 3);
        assert!(group.contains("members"), "{group}");
        let range = broken(|p| {
            for task in &mut p.roles[0].tasks {
                if let Op::Exchange(exchange) = &mut task.op {
                    exchange.range.end += 1;
                }
            }
        });
        assert!(range.contains("does not have"), "{range}");
        let copied = |from: Area, elements| {
            move |p: &mut Program| {
                p.buffers.push(Declared { name: "here".into(), elements: 10 });
                let rows = vec![Rows::one(elements, 0, 0)];
                let copy = Copy { from, to: Area::Buffer(Buffer::Declared(0)), rows, add: false, clear: false };
                let load = p.roles[0].tasks[0].clone();
                p.roles[0].tasks.push(Task { name: "copy".into(), op: Op::Copy(copy), ..load });
            }
        };
        let mut fits = program.clone();
        copied(Area::Activation(crate::LayerId(1)), 10)(&mut fits);
        assert_eq!(fits.check(), Ok(()));
        let long = refused(&copied(Area::Activation(crate::LayerId(1)), 11));
        assert!(long.contains("do not have"), "{long}");
        let itself = refused(&copied(Area::Buffer(Buffer::Declared(0)), 10));
        assert!(itself.contains("to itself"), "{itself}");
        let roles = broken(|p| p.roles[0].ranks.first = 1);
        assert!(roles.contains("gap"), "{roles}");
    }
}
