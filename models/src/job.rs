//! A job: model, strategy and sizes, everything that decides a program except the cluster.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lockstep_topology::{Algorithm, Bytes, Group, InputError};

use crate::{Model, Program, Strategy, lower, passes};

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
            batch_per_rank,
            accumulate: 1,
            bucket: Bucket::Size(Bytes(25 << 20)),
            algorithm: Algorithm::Ring,
            chunk: None,
            concurrent_exchanges: 1,
            node_sizes: None,
            fuse: true,
        }
    }

    /// Ranks that take part, dedicated servers included.
    pub fn ranks(&self) -> u32 {
        self.workers + self.servers()
    }

    /// Ranks that only serve.
    pub fn servers(&self) -> u32 {
        match self.algorithm {
            Algorithm::ParameterServer { servers, dedicated: true } if self.workers > 1 => servers,
            _ => 0,
        }
    }

    /// How the members of the allreduce lie on nodes.
    pub fn group(&self) -> Group {
        match &self.node_sizes {
            Some(sizes) => Group::nodes(sizes),
            None => Group::flat(self.ranks()),
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
        let graph = self.strategy.graph(self);
        graph.check().map_err(|error| InputError::new("strategy", self.strategy.to_string(), error.to_string()))?;
        let program = lower::lower(&graph, self)?;
        let program = if self.fuse { passes::fuse(program) } else { program };
        program.check()?;
        Ok(program)
    }
}
