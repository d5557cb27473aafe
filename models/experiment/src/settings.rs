//! The table of settings: everything that an experiment can say, a row each, in the order in which help lists their flags.
//!
//! A row gives the field of `Experiment` (where it has one of its own) with its default, and what `Setting` says of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_models::{
    Augmentation, Bucket, Claim, DEFAULT_THRESHOLD, Decay, InitRules, MomentumForm, Optimizer, Sampling, Scaling,
    Strategy, Target, WarmUp,
};
use lockstep_topology::{Algorithm, Bytes, ErrorPlace};

use super::alike::{self, Unlike};
use super::form::{
    ACCURACY, ALGORITHM, CHOICE, CHUNK, CHUNK_OR_AUTO, COUNT, LONG, MOMENTUM, NOT_NEGATIVE, SEED, SWITCH, TEXT,
    THRESHOLD, word,
};
use super::optimizer::{inits, optimizer};
use super::setting::{Axis, Each, One, PREDICT, ROW, RUN, Reads, SWEEP, Setting, Table};
use super::{
    Anchor, Arm, Axes, Batch, Device, Growth, LAST_EPOCHS, Learners, Length, Noise, Published, Recipe, Scenario,
    StatedInput, THIS_MACHINE, TransportKind, axes, input, learners, noise, published, read, scenario,
};
use crate::tuner_log::Logged;

/// Makes `Experiment`, its default and `SETTINGS` of the rows.
macro_rules! settings {
    ({ $($state:tt)* } $($rows:tt)*) => {
        settings! { @rows [$($state)*] [] $($rows)* }
    };
    (@rows [$($fields:tt)*] [$($all:tt)*]
        $key:literal $field:ident: $type:ty = $default:expr, $help:expr, { $($row:tt)* } $($rest:tt)*) => {
        settings! { @rows [$($fields)* #[doc = $help] $field: $type = $default;]
            [$($all)* Setting { key: $key, help: $help, $($row)* ..ROW },] $($rest)* }
    };
    (@rows [$($fields:tt)*] [$($all:tt)*] $key:literal, $help:expr, { $($row:tt)* } $($rest:tt)*) => {
        settings! { @rows [$($fields)*] [$($all)* Setting { key: $key, help: $help, $($row)* ..ROW },] $($rest)* }
    };
    (@rows [$($(#[$doc:meta])+ $field:ident: $type:ty = $default:expr;)*] [$($all:tt)*]) => {
        /// A question: what is trained, on what, in which configurations.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Experiment {
            $($(#[$doc])+ pub $field: $type,)*
        }

        impl Default for Experiment {
            fn default() -> Experiment {
                Experiment { $($field: $default,)* }
            }
        }

        /// Every setting.
        pub static SETTINGS: &[Setting] = &[$($all)*];
    };
}

settings! {
    {
        /// Samples per step.
        batch: Batch = Batch::PerRank(vec![32]);
        /// Learners on each device: every one of `ranks` becomes so many.
        learners: u32 = 1;
        /// Whether the auto-tuner finds how many learners a device takes.
        tunes: bool = false;
        /// Runs whose tuning is decided as it was.
        tuning: Vec<Logged> = Vec::new();
        /// Processes that `mpirun` started, where it did: ranks divide among them.
        processes: Option<u32> = None;
        /// How long a measured run is.
        length: Length = Length::Steps(50);
        /// The accuracy at which a run ends; each epoch is judged then.
        target: Target = Target::default();
        /// The claims of an earlier run, which learners make again.
        replay: Option<Arc<[Claim]>> = None;
        /// So many epochs at the end of a run are each followed by an evaluation.
        judged_epochs: u32 = LAST_EPOCHS;
        /// For each key that the file or a flag gives, where.
        places: BTreeMap<String, ErrorPlace> = BTreeMap::new();
    }

    "model" model: String = String::new(),
    "Model: a name (lockstep models list), a .toml, .onnx or .prototxt (Caffe) file; variants and sizes behind a colon \
     (resnet-50:image=64)", {
        value: "MODEL", how: &One(TEXT, |e, model| e.model = model), flag_of: PREDICT | RUN,
        axis: Some(Axis {
            help: "Models (lockstep models list), or .toml files", value: "M,…",
            how: &Each(TEXT, |e, all| e.sweep.models = Some(all)),
        }),
    }
    "cluster" cluster: String = THIS_MACHINE.to_owned(),
    "Cluster: this-machine (as calibrated), a name (lockstep clusters list), or a .toml file", {
        value: "CLUSTER", default: "this-machine", how: &One(TEXT, |e, cluster| e.cluster = cluster),
        flag_of: PREDICT | RUN, in_arms: false, unlike: Unlike::Refused(alike::cluster),
        axis: Some(Axis {
            help: "Clusters (lockstep clusters list) or .toml files; dgx-a100:1..32 is 1, 2, 4 … 32 hosts of one",
            value: "C,…", how: &Each(TEXT, |e, all| e.sweep.clusters = Some(all)),
        }),
    }
    "ranks" ranks: Vec<u32> = vec![1], "Numbers of ranks that train, e.g. 8,16,32", {
        value: "N,…", default: "1", how: &Each(COUNT, |e, all| e.ranks = all), flag_of: PREDICT | RUN,
        axis: Some(Axis {
            help: "Numbers of ranks that train: 8,16, doublings such as 1..1024, or all (one on each GPU, or core where \
                   there is none)",
            value: "N,…", how: &axes::RANKS,
        }),
    }
    "strategy" strategy: Strategy = Strategy::Ssgd,
    "How training is spread over ranks: ssgd, hybrid:a, hybrid:b, hybrid:c, hybrid:g=2 (b and c also with :variable-batch), \
     model-parallel, first-device-table, sma, sma:momentum=0.9:tau=2:alpha=0.25:first-come, sma:reference-models, \
     ea-sgd:tau=4:round-robin", {
        value: "STRATEGY", default: "ssgd", how: &One(word(), |e, strategy| e.strategy = strategy),
        flag_of: PREDICT | RUN,
        axis: Some(Axis {
            help: "", value: "S,…", how: &Each(word(), |e, all| e.sweep.strategies = Some(all)),
        }),
    }
    "learners",
    "Learners on each device: every rank of --ranks becomes so many, or with auto as many as raise the throughput (sma, \
     ea-sgd)", {
        value: "M|auto", default: "1", how: &One(learners::FORM, |e, learners: Learners| e.set_learners(learners)),
        flag_of: PREDICT | RUN,
        axis: Some(Axis {
            help: "Learners on each device (sma, ea-sgd), e.g. 1,2,4: every rank becomes so many", value: "M,…",
            how: &Each(axes::LEARNERS, |e, all| e.sweep.learners = Some(all)),
        }),
    }
    "batch_per_rank", "Samples per rank and micro-batch, e.g. 16,64", {
        value: "N,…", default: "32", how: &Each(COUNT, |e, all| e.batch = Batch::PerRank(all)), flag_of: PREDICT | RUN,
        axis: Some(Axis {
            help: "", value: "N,…",
            how: &Each(COUNT, |e, all| e.sweep.batch = Some(Batch::PerRank(all))),
        }),
    }
    "global_batch", "Samples per step over all ranks, divided among them", {
        value: "N,…", how: &Each(LONG, |e, all| e.batch = Batch::Global(all)), flag_of: PREDICT | RUN,
        instead_of: Some("batch_per_rank"),
        axis: Some(Axis {
            help: "", value: "N,…",
            how: &Each(LONG, |e, all| e.sweep.batch = Some(Batch::Global(all))),
        }),
    }
    "accumulate" accumulate: u32 = 1, "Micro-batches per step and rank", {
        value: "N", default: "1", how: &One(COUNT, |e, count| e.accumulate = count), flag_of: PREDICT | RUN,
        axis: Some(Axis {
            help: "Micro-batches per step and rank, e.g. 1,4", value: "N,…",
            how: &Each(COUNT, |e, all| e.sweep.accumulate = Some(all)),
        }),
    }
    "algorithm" algorithms: Vec<Algorithm> = Vec::new(),
    "Allreduce algorithms, e.g. ring,halving-doubling,multi-color:4,parameter-server:2,hierarchical:ring", {
        value: "A,…", default: "ring", how: &Each(ALGORITHM, |e, all| e.algorithms = all), flag_of: PREDICT | RUN,
        axis: Some(Axis {
            help: "Allreduce algorithms, e.g. ring,hierarchical:halving-doubling", value: "A,…",
            how: &Each(ALGORITHM, |e, all| e.sweep.algorithms = Some(all)),
        }),
    }
    "bucket" bucket: Bucket = Bucket::Size(Bytes(25 << 20)),
    "How gradients are cut into exchanges: a size such as 25MiB, layer, whole, or tensor", {
        value: "BUCKET", default: "25MiB", how: &One(word(), |e, bucket| e.bucket = bucket), flag_of: PREDICT | RUN,
        axis: Some(Axis {
            help: "How gradients are cut into exchanges: sizes such as 4MiB, layer, whole, tensor", value: "B,…",
            how: &Each(word(), |e, all| e.sweep.buckets = Some(all)),
        }),
    }
    "chunk" chunk: Option<Bytes> = None,
    "Bytes per lane of an exchange, e.g. 256KiB; else the algorithm's own choice", {
        value: "SIZE", how: &One(CHUNK, |e, chunk| e.chunk = Some(chunk)), flag_of: PREDICT | RUN,
        axis: Some(Axis {
            help: "Bytes per lane of an exchange, e.g. 256KiB, or auto (the algorithm's own choice)", value: "SIZE,…",
            how: &Each(CHUNK_OR_AUTO, |e, all| e.sweep.chunks = Some(all)),
        }),
    }
    "concurrent_exchanges" concurrent_exchanges: u32 = 1, "Exchanges in flight at once", {
        value: "N", default: "1", how: &One(COUNT, |e, count| e.concurrent_exchanges = count), flag_of: PREDICT | RUN,
        axis: Some(Axis {
            help: "Exchanges in flight at once, e.g. 1,2,4", value: "N,…",
            how: &Each(COUNT, |e, all| e.sweep.concurrent_exchanges = Some(all)),
        }),
    }
    "scale", "Factors for figures of the clusters", {
        in_file: false, in_arms: false, reads: Reads::Prediction,
        axis: Some(Axis {
            help: "Multiply a figure of the clusters, e.g. nic=0.5,1,2 or gpu=1,2 or infiniband-latency=1,4; may be given \
                   several times",
            value: "NAME=F,…", how: &axes::SCALE,
        }),
    }
    "transport" transport: TransportKind = TransportKind::Threads, "How ranks meet: threads (memory) or mpi", {
        value: "KIND", default: "threads", how: &One(word(), |e, transport| e.transport = transport),
        flag_of: PREDICT | RUN | SWEEP, in_arms: false, canonical: |e| Some(e.transport.to_string()),
    }
    "ranks_per_node" ranks_per_node: Option<u32> = None,
    "Ranks on each node: of a cluster's host so many devices are used, on this machine neighbours make a node; else all of a \
     host's, or those of a process", {
        value: "N", how: &One(COUNT, |e, count| e.ranks_per_node = Some(count)), flag_of: PREDICT | RUN,
        canonical: |e| e.ranks_per_node.map(|count| count.to_string()),
    }
    "tuner_threshold" tuner_threshold: f64 = DEFAULT_THRESHOLD,
    "Share by which another learner must raise the throughput, with --learners auto [default: 0.05]", {
        value: "SHARE", default: "0.05", how: &One(THRESHOLD, |e, threshold| e.tuner_threshold = threshold),
        flag_of: PREDICT | RUN,
    }
    "sampling" sampling: Sampling = Sampling::OneShuffle,
    "Who draws samples together: one-shuffle (all ranks), per-node (each node with a seed of its own), or in memory \
     partitioned:groups=2:shuffle-every=100 (nodes of a group hold the set together and shuffle it)", {
        value: "RULE", default: "one-shuffle", how: &One(word(), |e, sampling| e.sampling = sampling),
        flag_of: PREDICT | RUN, unlike: Unlike::Refused(alike::shuffle), canonical: |e| Some(e.sampling.to_string()),
    }
    "device" device: Device = Device::Cpu,
    "What measured runs compute on: cpu, cuda (fp32), cuda:tf32, cuda:bf16, or null, on which computing takes no time", {
        value: "DEVICE", default: "cpu", how: &One(word(), |e, device| e.device = device), flag_of: PREDICT | RUN,
        unlike: Unlike::Refused(alike::device), canonical: |e| Some(e.device.to_string()),
    }
    "threads_per_rank" threads_per_rank: u32 = 1, "Threads of each rank", {
        value: "N", default: "1", how: &One(COUNT, |e, count| e.threads_per_rank = count),
        flag_of: PREDICT | RUN | SWEEP, canonical: |e| Some(e.threads_per_rank.to_string()),
    }
    "anchor" anchor: Option<Anchor> = None, "Scale computation so that this measured point comes out exactly", {
        value: "ranks=N,images_per_s=X", flag_of: PREDICT, in_arms: false, reads: Reads::Prediction,
        how: &One(published::ANCHOR, |e, anchor| e.anchor = Some(anchor)), unlike: Unlike::Refused(alike::anchor),
    }
    "data" data: String = "synthetic".to_owned(),
    "Data: mnist, synthetic, synthetic:SAMPLES, or a folder of IDX files", {
        value: "DATA", default: "synthetic", how: &One(TEXT, |e, data| e.data = data), flag_of: RUN,
    }
    "steps", "Optimizer steps", {
        value: "N", default: "50", how: &One(COUNT, |e, steps| e.length = Length::Steps(steps)), flag_of: RUN,
        reads: Reads::Run,
    }
    "epochs", "Passes over the training samples; the error is then the median after each of the last 5", {
        value: "N", how: &One(COUNT, |e, epochs| e.length = Length::Epochs(epochs)), flag_of: RUN, reads: Reads::Run,
        instead_of: Some("steps"),
    }
    "warmup_steps" warmup_steps: Option<u32> = None,
    "Steps at the start that step times leave out, at most all but one; else 5, or a quarter of the steps if that is less", {
        value: "N", how: &One(COUNT, |e, steps| e.warmup_steps = Some(steps)), flag_of: RUN, reads: Reads::Run,
    }
    "seed" seed: u64 = 1, "Seed of initial parameters, of the order of the samples and of dropout", {
        value: "N", default: "1", how: &One(SEED, |e, seed| e.seed = seed), flag_of: RUN, in_arms: false,
        reads: Reads::Run, canonical: |e| Some(e.seed.to_string()),
    }
    "seeds" seeds: u32 = 1,
    "Train with so many seeds in turn, e.g. 5: seed, seed + 1, …; the error is shown with mean and standard deviation", {
        value: "N", default: "1", how: &One(COUNT, |e, seeds| e.seeds = seeds), flag_of: RUN, in_arms: false,
        reads: Reads::Run, unlike: Unlike::Noted(alike::seeds),
    }
    "augment" augmentation: Augmentation = Augmentation::default(),
    "What is done to training samples: none, or some of patch,scale,crop=4,flip (predictions leave its time out)", {
        value: "WHAT", default: "none", how: &One(word(), |e, augmentation| e.augmentation = augmentation), flag_of: RUN,
        reads: Reads::Run, unlike: Unlike::Refused(alike::augmentation),
    }
    "target_accuracy",
    "End a run when the model (of learners: their average) is that accurate after an epoch, e.g. 0.99", {
        value: "X", how: &One(ACCURACY, |e, share| e.target.accuracy = Some(share)), flag_of: RUN, in_arms: false,
        reads: Reads::Run, unlike: Unlike::Noted(alike::target),
    }
    "target_epochs", "Look for it in the median accuracy of the last N epochs, e.g. 5", {
        value: "N", default: "1", how: &One(COUNT, |e, epochs| e.target.epochs = epochs), flag_of: RUN, in_arms: false,
        reads: Reads::Run,
    }
    "recompute_bn" recompute_bn: bool = false,
    "Recompute batch norm's statistics over an epoch of training samples before each evaluation", {
        default: "false", how: &One(SWITCH, |e, yes| e.recompute_bn = yes), flag_of: RUN, reads: Reads::Run,
        unlike: Unlike::Noted(alike::recompute_bn),
    }
    "recipe" recipe: Option<Recipe> = None,
    "Train as a paper did, e.g. goyal2017, iandola2016:nin, or FILE.toml; the flags below replace what it says", {
        value: "NAME", how: &super::recipe::READING, flag_of: RUN, reads: Reads::Run, first: true,
    }
    "learning_rate", "Learning rate of SGD", {
        value: "X", default: "0.02", table: Some("optimizer"), flag_of: RUN, reads: Reads::Run,
        how: &One(NOT_NEGATIVE, |e, rate| e.optimizer.learning_rate = rate),
    }
    "scaling", "How the rate follows the global batch: none, linear:256 (times batch / 256), square-root:256", {
        value: "RULE", default: "none", table: Some("optimizer"), flag_of: RUN, reads: Reads::Run,
        how: &One(word::<Scaling>(), |e, scaling| e.optimizer.scaling = scaling),
    }
    "warm_up", "How the first epochs lead to the scaled rate: none, constant:5, gradual:5, gradual:5@0.1", {
        value: "RULE", default: "none", table: Some("optimizer"), flag_of: RUN, reads: Reads::Run,
        how: &One(word::<WarmUp>(), |e, warm_up| e.optimizer.warm_up = warm_up),
    }
    "decay", "How the rate falls: constant, steps:0.1@30,60,80, every:0.5@20, polynomial:0.5, cosine", {
        value: "RULE", default: "constant", table: Some("optimizer"), flag_of: RUN, reads: Reads::Run,
        how: &One(word::<Decay>(), |e, decay| e.optimizer.decay = decay),
    }
    "momentum", "Momentum of SGD, e.g. 0.9", {
        value: "X", default: "0.9", table: Some("optimizer"), flag_of: RUN, reads: Reads::Run,
        how: &One(MOMENTUM, |e, momentum| e.optimizer.momentum = momentum),
    }
    "momentum_form",
    "What the momentum buffer holds: separate (no rate), absorbed (the rate too), corrected (absorbed, with a correction)", {
        value: "FORM", default: "separate", table: Some("optimizer"), flag_of: RUN, reads: Reads::Run,
        how: &One(word::<MomentumForm>(), |e, form| e.optimizer.form = form),
    }
    "nesterov", "Look ahead along the momentum", {
        value: "BOOL", default: "false", table: Some("optimizer"), flag_of: RUN, reads: Reads::Run,
        how: &One(CHOICE, |e, nesterov| e.optimizer.nesterov = nesterov),
    }
    "weight_decay", "Weight decay", {
        value: "X", default: "0", table: Some("optimizer"), flag_of: RUN, reads: Reads::Run,
        how: &One(NOT_NEGATIVE, |e, decay| e.optimizer.weight_decay = decay),
    }
    "decay_batch_norm", "Let batch norm's parameters decay too", {
        value: "BOOL", default: "false", table: Some("optimizer"), flag_of: RUN, reads: Reads::Run,
        how: &One(CHOICE, |e, yes| e.optimizer.decay_batch_norm = yes),
    }
    "name" name: String = String::new(), "What the experiment is called; files are named after it", {
        how: &Table(|e, entry| read::name(entry).map(|name| e.name = name)), reads: Reads::Run,
    }
    "fuse" fuse: bool = true, "Whether a layer and those that change its output element by element are one kernel", {
        default: "true", how: &One(CHOICE, |e, fuse| e.fuse = fuse), canonical: |e| Some(e.fuse.to_string()),
    }
    "growth" growth: Vec<Growth> = Vec::new(), "Learners that join once some epochs are done, e.g. 4@6", {
        how: &Each(word(), |e, all| e.growth = all), reads: Reads::Run,
    }
    "optimizer" optimizer: Optimizer = Optimizer::default(), "Table of the rate, the momentum and the decays", {
        how: &Table(optimizer), reads: Reads::Run, canonical: |e| Some(e.optimizer.to_string()),
    }
    "init" inits: InitRules = InitRules::default(), "Table of initial values that replace the model's", {
        how: &Table(|e, entry| inits(&mut e.inits, entry)), reads: Reads::Run,
    }
    "published" published: Option<Published> = None, "Table of figures that others measured, to compare with", {
        how: &Table(|e, entry| published::published(entry).map(|all| e.published = Some(all))),
        reads: Reads::Prediction,
    }
    "noise" noise: Option<Noise> = None, "Table of what varies, and by which distributions", {
        how: &Table(|e, entry| noise::read(entry).map(|noise| e.noise = Some(noise))), in_arms: false,
        reads: Reads::Prediction, unlike: Unlike::Noted(alike::noise),
    }
    "input" input: Option<StatedInput> = None, "Table of how samples reach the devices", {
        how: &Table(|e, entry| input::read(e.input.as_ref(), entry).map(|input| e.input = Some(input))),
        reads: Reads::Prediction, unlike: Unlike::Refused(alike::input),
    }
    "sweep" sweep: Axes = Axes::default(), "Table of lists in place of single values, for sim sweep alone", {
        in_arms: false, reads: Reads::Prediction, unlike: Unlike::Noted(alike::sweep),
    }
    "arm" arms: Vec<Arm> = Vec::new(), "Tables of ways to train, for exec sweep alone", {
        in_arms: false, reads: Reads::Run, unlike: Unlike::Noted(alike::arms),
    }
    "scenario" scenarios: Vec<Scenario> = Vec::new(), "Tables of what may go wrong", {
        how: &Table(|e, entry| scenario::read(entry).map(|all| e.scenarios = all)), in_arms: false,
        reads: Reads::Prediction, unlike: Unlike::Noted(alike::scenarios),
    }
}
