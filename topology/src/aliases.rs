//! Names that other programs use for what has one here: strategies, collectives, algorithms, precisions, flags.
//!
//! Letter case, hyphens and underscores never distinguish two names. What is printed is always our own name.

use std::borrow::Cow;

use crate::ErrorPlace;
use crate::input_error::squeezed;

/// What another name means.
enum Meaning {
    /// Our name, behind which the text's settings stay.
    Is(&'static str),
    /// Our name, and how the two differ.
    Nearly(&'static str, &'static str),
    /// Several things, or none here: the cure.
    Not(&'static str),
}

use Meaning::{Is, Nearly, Not};

/// How FSDP differs from `zero-3`.
const FSDP: &str = "fsdp is taken as zero-3: parameters, gradients and optimizer state are shards on all ranks, cut by elements of \
                    each bucket; PyTorch cuts each tensor or each wrapped module, so its messages have other sizes";
const LEVELS: &str =
    "has several levels: write zero-1 (optimizer state), zero-2 (gradients too) or zero-3 (parameters too)";
const TENSOR: &str =
    "is an axis of the ranks, along which strategies split layers: write {tp} 2 (mesh tensor=2) with e.g. megatron";
const STAGES: &str = "is an axis of the ranks: write {pp} 2 (mesh pipeline=2) with e.g. ssgd or megatron";
const LATER: &str = "is not supported yet: ranks have the axes data ({dp}), tensor ({tp}) and pipeline ({pp})";
const MIXED: &str = "has several meanings: write bf16 or fp16, which keep fp32 weights";
const RUNTIME: &str = "is no transport here: write threads or mpi, and algorithm library:nccl for NCCL's collectives";

const BUBBLES: &str = "is not supported yet: write zb-h1, which has one chunk a stage and the peak memory of 1f1b";

/// Other names by what they name; lower case, without hyphens and underscores.
const NAMES: &[(&str, &[(&str, Meaning)])] = &[
    (
        "strategy",
        &[
            ("ddp", Is("ssgd")),
            ("dp", Is("ssgd")),
            ("dataparallel", Is("ssgd")),
            ("distributeddataparallel", Is("ssgd")),
            ("horovod", Is("ssgd")),
            ("fsdp", Nearly("zero-3", FSDP)),
            ("fsdp2", Nearly("zero-3", FSDP)),
            ("fullshard", Nearly("zero-3", FSDP)),
            ("fullyshard", Nearly("zero-3", FSDP)),
            ("fullyshardeddataparallel", Nearly("zero-3", FSDP)),
            ("zero", Not(LEVELS)),
            ("deepspeed", Not(LEVELS)),
            ("sharded", Not(LEVELS)),
            ("hsdp", Not("is not supported yet: zero-3 shards over all ranks; use that, or fewer ranks")),
            ("hybridshard", Not("is not supported yet: zero-3 shards over all ranks; use that, or fewer ranks")),
            ("tp", Not(TENSOR)),
            ("tensor", Not(TENSOR)),
            ("tensorparallel", Not(TENSOR)),
            ("pp", Not(STAGES)),
            ("pipeline", Not(STAGES)),
            ("pipelineparallel", Not(STAGES)),
            ("cp", Not(LATER)),
            ("contextparallel", Not(LATER)),
            ("ep", Not(LATER)),
            ("expertparallel", Not(LATER)),
            ("ps", Not("is an algorithm of the allreduce: write ssgd, with {algorithm} parameter-server:1")),
            (
                "parameterserver",
                Not("is an algorithm of the allreduce: write ssgd, with {algorithm} parameter-server:1"),
            ),
        ],
    ),
    (
        "collective",
        &[
            ("bcast", Is("broadcast")),
            ("alltoall", Is("alltoallv")),
            ("allreduceperf", Is("allreduce")),
            ("allgatherperf", Is("allgather")),
            ("reducescatterperf", Is("reduce-scatter")),
            ("alltoallperf", Is("alltoallv")),
            ("broadcastperf", Is("broadcast")),
            ("reduceperf", Is("reduce")),
            ("gatherperf", Is("gather")),
            ("scatterperf", Is("scatter")),
            ("allgatherintotensor", Is("allgather")),
            ("reducescattertensor", Is("reduce-scatter")),
        ],
    ),
    (
        "algorithm",
        &[
            ("nccl", Is("library:nccl")),
            ("mpi", Is("library:mpi")),
            ("openmpi", Is("library:mpi")),
            ("ringallreduce", Is("ring")),
            (
                "sharp",
                Not("is an algorithm with the GPUs of a switch and its levels: write collnet:2:1 or nvls-collnet:2:1"),
            ),
            ("rccl", Is("library:rccl")),
            ("gloo", Not("has no model here: its allreduce is a ring, so use ring")),
            ("ps", Not("write parameter-server:1, with the number of servers")),
        ],
    ),
    (
        "precision",
        &[
            ("float32", Is("fp32")),
            ("float", Is("fp32")),
            ("f32", Is("fp32")),
            ("single", Is("fp32")),
            ("tensorfloat32", Is("tf32")),
            ("bfloat16", Is("bf16")),
            ("bfloat", Is("bf16")),
            ("float16", Is("fp16")),
            ("f16", Is("fp16")),
            ("half", Is("fp16")),
            ("float8", Is("fp8")),
            ("f8", Is("fp8")),
            ("e4m3", Is("fp8")),
            ("float8e4m3fn", Is("fp8")),
            ("amp", Not(MIXED)),
            ("mixed", Not(MIXED)),
        ],
    ),
    (
        "format of gradients",
        &[
            ("float32", Is("fp32")),
            ("float", Is("fp32")),
            ("bf16", Is("half")),
            ("bfloat16", Is("half")),
            ("fp16", Is("half")),
            ("float16", Is("half")),
        ],
    ),
    (
        "schedule",
        &[
            ("zb", Is("zb-h1")),
            ("zerobubble", Is("zb-h1")),
            ("zerobubbleh1", Is("zb-h1")),
            ("zbh2", Not(BUBBLES)),
            ("zbv", Not(BUBBLES)),
            ("zbvzerobubble", Not(BUBBLES)),
            ("interleavedzerobubble", Not(BUBBLES)),
            ("dualpipe", Not(BUBBLES)),
            ("dualpipev", Not(BUBBLES)),
        ],
    ),
    ("optimizer", &[("momentum", Is("sgd")), ("momentumsgd", Is("sgd")), ("fusedadam", Is("adam"))]),
    ("device", &[("gpu", Is("cuda")), ("nvidia", Is("cuda")), ("none", Is("null"))]),
    (
        "transport",
        &[
            ("openmpi", Is("mpi")),
            ("mpich", Is("mpi")),
            ("thread", Is("threads")),
            ("nccl", Not(RUNTIME)),
            ("rccl", Not(RUNTIME)),
            ("gloo", Not(RUNTIME)),
            ("ucc", Not(RUNTIME)),
        ],
    ),
];

/// Other names of flags and keys, by our key.
const KEYS: &[(&str, &[&str])] = &[
    ("precision", &["dtype"]),
    ("ranks", &["gpus", "num-gpus", "world-size", "np"]),
    ("batch_per_rank", &["micro-batch-size", "per-device-batch-size", "batch-per-gpu"]),
    ("global_batch", &["global-batch-size"]),
    ("seq_length", &["seq-len", "sequence-length", "max-seq-len", "block-size"]),
    ("accumulate", &["gradient-accumulation-steps", "grad-accum", "accumulation-steps"]),
    ("learning_rate", &["lr"]),
    ("beta1", &["adam-beta1"]),
    ("beta2", &["adam-beta2"]),
    ("clip_norm", &["clip-grad", "max-grad-norm", "grad-clip", "gradient-clip-val"]),
    ("moments", &["exp-avg-dtype"]),
    ("epsilon", &["adam-eps", "adam-epsilon", "eps"]),
    ("ranks_per_node", &["nproc-per-node", "gpus-per-node", "ngpus-per-node", "ntasks-per-node"]),
    ("algorithm", &["algo"]),
    ("schedule", &["pipeline-schedule"]),
    ("cut", &["pipeline-model-parallel-layout"]),
    ("steps", &["max-steps", "train-iters"]),
];

/// Flags and keys that have no meaning here, or several, with the cure.
const NO_KEYS: &[(&[&str], &str)] = &[
    (
        &["batch-size", "bs", "batch"],
        "has several meanings: write {batch_per_rank} for the samples of each GPU and micro-batch, or \
                                {global_batch} for those of a step",
    ),
    (
        &["nodes", "nnodes", "num-nodes", "hosts"],
        "is part of the cluster's name: write the number of hosts behind a colon, e.g. {cluster} \
                                                  dgx-h100:8, and {ranks} for the GPUs",
    ),
    (
        &["backend"],
        "is two settings here: write {algorithm} library:nccl (or ring, …) for the collectives, and {transport} threads or mpi \
                    for how ranks of a measured run talk",
    ),
    (&["bf16", "fp16", "fp8", "amp", "half"], "is a value here: write {precision} bf16, fp16 or fp8"),
    (
        &["cp", "context-parallel-size", "ep", "expert-model-parallel-size"],
        "is not supported yet: ranks have the axes {dp} (data), {tp} (tensor) and {pp} (pipeline)",
    ),
    (&["sp", "sequence-parallel"], "is a strategy here: write {strategy} sequence-parallel"),
    (&["zero-stage", "zero"], "is a strategy here: write {strategy} zero-1, zero-2 or zero-3"),
    (
        &["b", "e", "f", "minbytes", "maxbytes", "stepfactor", "size", "sizes", "message-size", "msg-size"],
        "is {bytes} here, of a collective: write {bytes} 1MiB, or {bytes} 8..128MiB for each double of 8 bytes up to 128 MiB",
    ),
    (&["json", "csv"], "is a format here: write {format} json or csv"),
    (&["g"], "is {ranks} here: write the number of GPUs there"),
    (&["m"], "has no short form: write {model}"),
    (&["c"], "has no short form: write {cluster}"),
    (&["n"], "has several meanings: write {ranks} for the number of processes, {steps} for that of iterations"),
    (
        &["adam", "adamw", "lamb", "lars", "lion", "adafactor"],
        "is no flag here: write {optimizer} adamw, adam or sgd; others are not supported yet",
    ),
    (&["fsdp"], "is a strategy here: write {strategy} fsdp, which is zero-3"),
    (&["ddp"], "is a strategy here: write {strategy} ssgd"),
    (
        &["gpu"],
        "is part of the cluster: lockstep clusters list shows those that there are, lockstep clusters gpus their GPUs",
    ),
];

/// Of sizes without a unit that are megabytes elsewhere.
const BYTES: &str = "a bucket without a unit is in bytes: write 25MiB for what PyTorch calls bucket_cap_mb=25";
/// No bucket is as small on purpose.
const FEW_BYTES: u64 = 4096;

/// Commands of other programs, and ours.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["train", "fit", "launch", "torchrun"], "exec run"),
    (&["simulate", "estimate", "forecast"], "sim predict"),
    (&["bench", "benchmark", "nccl-tests"], "exec collective"),
];

/// The cure with flags for the keys that it has in braces.
fn with_flags(cure: &'static str) -> String {
    let part = |(index, part): (usize, &'static str)| match index % 2 {
        0 => part.to_owned(),
        _ => ErrorPlace::Flag(part).to_string(),
    };
    cure.split(['{', '}']).enumerate().map(part).collect()
}

/// Whether two names differ at most in letter case, hyphens and underscores.
pub fn is_alike(one: &str, other: &str) -> bool {
    squeezed(one) == squeezed(other)
}

fn meaning(what: &str, name: &str) -> Option<&'static Meaning> {
    let (_, names) = NAMES.iter().find(|(of, _)| *of == what)?;
    let name = squeezed(name);
    names.iter().find(|(other, _)| *other == name).map(|(_, meaning)| meaning)
}

/// The text with our name instead of another one; settings follow a name behind a colon. Texts that are no other name
/// stay as they are, for their own error.
///
/// # Errors
/// A name that means several things here, or none: the cure.
///
/// ```
/// use lockstep_topology::aliases::ours;
/// let strategy = |text| ours("strategy", text, ["ssgd", "zero-3", "sma"]).map(String::from);
/// assert_eq!(strategy("DDP"), Ok("ssgd".to_owned()));
/// assert_eq!(strategy("ZeRO_3"), Ok("zero-3".to_owned()));
/// assert_eq!(strategy("SMA:tau=2"), Ok("sma:tau=2".to_owned()));
/// assert!(strategy("deepspeed").unwrap_err().contains("zero-2"));
/// ```
pub fn ours<'a, 'b>(
    what: &str,
    text: &'a str,
    names: impl IntoIterator<Item = &'b str>,
) -> Result<Cow<'a, str>, String> {
    let (name, settings) = text.split_at(text.find(':').unwrap_or(text.len()));
    let names: Vec<&str> = names.into_iter().collect();
    if names.contains(&name) || names.contains(&text) || name.is_empty() {
        return Ok(Cow::Borrowed(text));
    }
    if let Some(own) = names.iter().find(|own| is_alike(own, name)) {
        return Ok(Cow::Owned(format!("{own}{settings}")));
    }
    match meaning(what, name) {
        Some(Is(own) | Nearly(own, _)) => Ok(Cow::Owned(format!("{own}{settings}"))),
        Some(Not(cure)) => Err(format!("{text:?} {}", with_flags(cure))),
        None => Ok(Cow::Borrowed(text)),
    }
}

/// How what a text names differs from what it is taken for, if it does.
pub fn difference(what: &str, text: &str) -> Option<&'static str> {
    if what == "bucket" {
        return text.trim().parse().is_ok_and(|bytes: u64| bytes < FEW_BYTES).then_some(BYTES);
    }
    match meaning(what, text.split(':').next()?)? {
        Nearly(_, how) => Some(how),
        _ => None,
    }
}

/// Other names of the flag of a key, with hyphens.
pub fn of_key(key: &str) -> &'static [&'static str] {
    KEYS.iter().find(|(own, _)| *own == key).map_or(&[], |(_, others)| others)
}

/// Our key for a flag (without its hyphens) or a key of another program.
pub fn key_of(name: &str) -> Option<&'static str> {
    let name = name.replace('_', "-").to_lowercase();
    KEYS.iter().find(|(_, others)| others.contains(&name.as_str())).map(|(own, _)| *own)
}

/// Our command for one of another program.
pub fn command_of(name: &str) -> Option<&'static str> {
    let name = name.replace('_', "-").to_lowercase();
    COMMANDS.iter().find(|(others, _)| others.contains(&name.as_str())).map(|(_, own)| *own)
}

/// What to write instead of a flag or key of another program that has no meaning here, or several.
pub fn instead_of(name: &str) -> Option<String> {
    let name = name.replace('_', "-").to_lowercase();
    NO_KEYS.iter().find(|(others, _)| others.contains(&name.as_str())).map(|(_, cure)| with_flags(cure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_given_once_and_squeezed() {
        for (what, names) in NAMES {
            for (index, (name, _)) in names.iter().enumerate() {
                assert_eq!(*name, squeezed(name), "{what}");
                assert!(names[..index].iter().all(|(other, _)| other != name), "{what} {name}");
            }
        }
        let keys = KEYS.iter().flat_map(|(_, others)| *others).chain(NO_KEYS.iter().flat_map(|(others, _)| *others));
        let mut keys: Vec<&str> = keys.copied().collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }

    #[test]
    fn settings_stay_behind_our_name() {
        assert_eq!(ours("algorithm", "NCCL:tree", ["ring"]).unwrap(), "library:nccl:tree");
        assert_eq!(ours("algorithm", "Ring", ["ring"]).unwrap(), "ring");
        assert_eq!(ours("precision", "BFloat16", ["fp32", "bf16"]).unwrap(), "bf16");
        assert_eq!(ours("precision", "fp4", ["fp32", "bf16"]).unwrap(), "fp4");
        assert!(ours("transport", "gloo", ["threads", "mpi"]).unwrap_err().contains("threads or mpi"));
        assert_eq!((difference("strategy", "FSDP"), difference("strategy", "ddp")), (Some(FSDP), None));
        let is_told = |text| difference("bucket", text).is_some();
        assert_eq!(["25", "25MiB", "26214400", "layer"].map(is_told), [true, false, false, false]);
        assert_eq!(key_of("micro_batch_size"), Some("batch_per_rank"));
        assert!(instead_of("batch-size").unwrap().contains("--global-batch"));
        assert_eq!((instead_of("ranks"), of_key("learning_rate")), (None, &["lr"][..]));
    }
}
