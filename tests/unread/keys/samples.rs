//! Files of each kind, whose keys and headers have a line each, and the calls that read them.

/// A file.
pub(super) struct Sample {
    /// Its name in faults.
    pub(super) name: &'static str,
    /// What it describes; keys of equal tables of a kind are the same.
    pub(super) kind: &'static str,
    /// How its name ends.
    pub(super) file: &'static str,
    /// Its content.
    pub(super) text: &'static str,
    /// The calls; `@FILE` is the file.
    pub(super) calls: &'static [&'static str],
    /// The tables whose keys are tried, where others of the kind have the rest; empty: all.
    pub(super) only: &'static str,
    /// Whether each key must be read beside the others, or refused; else one of its kind's files must read it.
    pub(super) strict: bool,
}

/// A small model with a layer of each kind that initial values and weight decay distinguish.
pub(in super::super) const SMALL: &str = include_str!("../files/small.toml");

const EXPERIMENT: &[&str] = &["sim predict @FILE --format json", "exec run @FILE --format json"];
const SWEPT: &[&str] = &["sim sweep @FILE --format json --out rows.csv"];
const PREDICTED: &[&str] = &["sim predict @FILE --format json"];

const fn experiment(name: &'static str, calls: &'static [&'static str], text: &'static str) -> Sample {
    Sample { name, kind: "experiment", file: "experiment.toml", text, calls, only: "", strict: true }
}

/// Eight hosts of two GPUs, with what joins them.
macro_rules! hosts {
    ($fabric:literal) => {
        concat!(include_str!("../files/hosts.toml"), include_str!($fabric))
    };
}

const fn fabric(name: &'static str, only: &'static str, text: &'static str) -> Sample {
    const CALLS: &[&str] = &[
        "sim predict --model lenet --cluster @FILE --ranks 16 --batch-per-rank 64 --format json --explain",
        "sim predict --model lenet --cluster @FILE --ranks 16 --batch-per-rank 64 --format json --precision bf16",
        "sim predict --model lenet --cluster @FILE --ranks 2 --batch-per-rank 64 --format json --precision fp16",
        "sim predict --model lenet --cluster @FILE --ranks 2 --batch-per-rank 64 --format json --precision tf32",
        "sim predict --model lenet --cluster @FILE --ranks 2 --batch-per-rank 64 --format json --precision fp32",
    ];
    Sample { name, kind: "cluster", file: "cluster.toml", text, calls: CALLS, only, strict: false }
}

/// The files.
pub(super) const SAMPLES: &[Sample] = &[
    experiment("experiment", EXPERIMENT, include_str!("../files/experiment.toml")),
    experiment(
        "experiment of epochs, no momentum",
        EXPERIMENT,
        include_str!("../files/experiment-of-epochs-no-momentum.toml"),
    ),
    Sample {
        only: "optimizer",
        ..experiment("experiment with adamw", EXPERIMENT, include_str!("../files/experiment-with-adamw.toml"))
    },
    experiment("experiment of a pipeline", PREDICTED, include_str!("../files/experiment-of-a-pipeline.toml")),
    experiment("experiment that grows", EXPERIMENT, include_str!("../files/experiment-that-grows.toml")),
    experiment(
        "experiment with figures of others",
        PREDICTED,
        include_str!("../files/experiment-with-figures-of-others.toml"),
    ),
    experiment("experiment of learners", PREDICTED, include_str!("../files/experiment-of-learners.toml")),
    experiment("experiment with noise", PREDICTED, include_str!("../files/experiment-with-noise.toml")),
    experiment(
        "experiment with input from files",
        PREDICTED,
        include_str!("../files/experiment-with-input-from-files.toml"),
    ),
    experiment(
        "experiment with input from memory",
        PREDICTED,
        include_str!("../files/experiment-with-input-from-memory.toml"),
    ),
    Sample {
        name: "sweep",
        kind: "experiment",
        file: "experiment.toml",
        text: include_str!("../files/sweep.toml"),
        calls: SWEPT,
        only: "",
        strict: true,
    },
    Sample {
        name: "sweep of GPUs",
        kind: "experiment",
        file: "experiment.toml",
        text: include_str!("../files/sweep-of-gpus.toml"),
        calls: SWEPT,
        only: "sweep",
        strict: true,
    },
    Sample {
        name: "cluster",
        kind: "cluster",
        file: "cluster.toml",
        text: include_str!("../files/cluster.toml"),
        calls: &[
            "sim collective --cluster @FILE --ranks 64 --bytes 16MiB --format json",
            "sim predict --model lenet --cluster @FILE --ranks 4 --ranks-per-node 2 --format json --explain",
        ],
        only: "",
        strict: false,
    },
    fabric(
        "cluster on a fat tree of equal switches",
        "",
        hosts!("../files/cluster-on-a-fat-tree-of-equal-switches.toml"),
    ),
    fabric("cluster on a fat tree", "fabric", hosts!("../files/cluster-on-a-fat-tree.toml")),
    fabric("cluster on a torus", "fabric", hosts!("../files/cluster-on-a-torus.toml")),
    fabric("cluster on a cube", "fabric", hosts!("../files/cluster-on-a-cube.toml")),
    fabric("cluster on rails", "fabric", hosts!("../files/cluster-on-rails.toml")),
    Sample {
        name: "model",
        kind: "model",
        file: "model.toml",
        text: include_str!("../files/model.toml"),
        calls: &[
            "exec run --model @FILE --data synthetic:32 --steps 2 --batch-per-rank 4 --format json",
            "exec run --model @FILE:large --data synthetic:32 --steps 2 --batch-per-rank 4 --format json",
        ],
        only: "",
        strict: true,
    },
    Sample {
        name: "model with logistic units",
        kind: "model",
        file: "model.toml",
        text: include_str!("../files/model-with-logistic-units.toml"),
        calls: &["exec run --model @FILE --data synthetic:32 --steps 2 --batch-per-rank 4 --format json"],
        only: "",
        strict: true,
    },
    Sample {
        name: "model of tokens",
        kind: "model",
        file: "model.toml",
        text: include_str!("../files/model-of-tokens.toml"),
        calls: &["exec run --model @FILE --data synthetic:32 --steps 2 --batch-per-rank 4 --format json"],
        only: "",
        strict: true,
    },
    Sample {
        name: "recipe",
        kind: "recipe",
        file: "recipe.toml",
        text: include_str!("../files/recipe.toml"),
        calls: &[
            "exec run --model @/small.toml --data synthetic:16 --ranks 2 --batch-per-rank 4 --recipe @FILE --format json",
        ],
        only: "",
        strict: true,
    },
    Sample {
        name: "recipe with adamw",
        kind: "recipe",
        file: "recipe.toml",
        text: include_str!("../files/recipe-with-adamw.toml"),
        calls: &[
            "exec run --model @/small.toml --data synthetic:64 --batch-per-rank 4 --steps 3 --recipe @FILE --format json",
        ],
        only: "recipe.optimizer",
        strict: true,
    },
    Sample {
        name: "recipe with momentum",
        kind: "recipe",
        file: "recipe.toml",
        text: include_str!("../files/recipe-with-momentum.toml"),
        calls: &[
            "exec run --model @/small.toml --data synthetic:64 --batch-per-rank 4 --steps 3 --recipe @FILE --format json",
        ],
        only: "recipe.optimizer",
        strict: true,
    },
];
