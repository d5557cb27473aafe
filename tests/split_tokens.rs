//! Tests that models of tokens whose layers are split over ranks train like one rank: heads of attention, entries of tables,
//! features at each position.

use std::sync::Arc;

use lockstep_models::{Axis, Bucket, Job, Mesh, Model, Node, Op, PARTIAL_NUMBERS};
use lockstep_topology::Collective;
use proptest::prelude::*;

use crate::split_samples::trains_like;

/// A decoder of one block; sizes of the second list are set by name.
const DECODER: &str = r#"
name = "decoder"
input = { positions = "$positions", tokens = "$tokens" }
layer = [
    { name = "embedding", kind = "embedding", entries = "$tokens", out_features = "$hidden" },
    { name = "documents", kind = "documents", separator = 1, inputs = "input" },
    { name = "positions", kind = "position_embedding", inputs = "embedding" },
    { name = "dropped", kind = "dropout", rate = 0.2 },
    { name = "norm1", kind = "layer_norm", epsilon = 0.01 },
    { name = "queries", kind = "linear", out_features = "$hidden" },
    { name = "keys", kind = "linear", out_features = "$keys", inputs = "norm1" },
    { name = "values", kind = "linear", out_features = "$keys", inputs = "norm1" },
    { name = "query_norm", kind = "rms_norm", heads = "$heads", epsilon = 0.01, inputs = "queries" },
    { name = "key_norm", kind = "rms_norm", heads = "$key_heads", epsilon = 0.01, inputs = "keys" },
    { name = "rotated_queries", kind = "rotary", heads = "$heads", inputs = "query_norm" },
    { name = "rotated_keys", kind = "rotary", heads = "$key_heads", inputs = "key_norm" },
    { name = "attention", kind = "attention", heads = "$heads", key_heads = "$key_heads", inputs = ["rotated_queries", "rotated_keys", "values", "documents"] },
    { name = "output", kind = "linear", out_features = "$hidden" },
    { name = "sum1", kind = "add", inputs = ["dropped", "output"] },
    { name = "norm2", kind = "layer_norm", epsilon = 0.01 },
    { name = "up", kind = "linear", out_features = "$feed" },
    { name = "gelu", kind = "gelu" },
    { name = "dropped2", kind = "dropout", rate = 0.2 },
    { name = "down", kind = "linear", out_features = "$hidden" },
    { name = "sum2", kind = "add", inputs = ["sum1", "down"] },
    { name = "norm3", kind = "layer_norm", epsilon = 0.01 },
    $output
]
[size]
"#;

/// The last layers: scores and their loss, apart and in one, with a weight of their own or the embedding's.
const OUTPUTS: [&str; 4] = [
    r#"{ name = "scores", kind = "linear", out_features = "$tokens", bias = false }, { name = "loss", kind = "softmax_cross_entropy" },"#,
    r#"{ name = "scores", kind = "linear", out_features = "$tokens", tie = "embedding" }, { kind = "softmax_cross_entropy" },"#,
    r#"{ name = "loss", kind = "linear_cross_entropy", out_features = "$tokens", bias = true, soft_cap = 3.0 },"#,
    r#"{ name = "loss", kind = "linear_cross_entropy", out_features = "$tokens", tie = "embedding" },"#,
];

/// Key heads, query heads of each, pairs of features of a head, the feed-forward width, positions and tokens.
type Sizes = (u32, u32, u32, u32, u32, u32);

fn decoder((key_heads, shared, pairs, feed, positions, tokens): Sizes, output: &str) -> Arc<Model> {
    let (heads, width) = (key_heads * shared, 2 * pairs);
    let (hidden, keys) = (heads * width, key_heads * width);
    let sizes = [
        ("positions", positions),
        ("tokens", tokens),
        ("hidden", hidden),
        ("keys", keys),
        ("heads", heads),
        ("key_heads", key_heads),
        ("feed", feed),
    ];
    let sizes: String = sizes.into_iter().map(|(name, size)| format!("{name} = {size}\n")).collect();
    let text = DECODER.replace("$output", output);
    Arc::new(lockstep_readers::parse_model("m.toml", &format!("{text}{sizes}")).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// On meshes of data and tensor, with shared optimizer state or without; dropout draws as on one rank. Sizes need not divide.
    #[test]
    fn decoders_split_over_ranks_train_like_ssgd(
        // Norms of two features are either sign of one: rounding is not all that they tell apart.
        sizes in (1u32..=4, 1u32..=2, 2u32..=3, 2u32..=9, 1u32..=6, 4u32..=15),
        (data, tensor) in (1u32..=2, 1u32..=4),
        strategy in prop::sample::select(vec!["model-parallel", "megatron", "sequence-parallel", "all-to-all"]),
        output in prop::sample::select(&OUTPUTS),
        (shares_state, fuse) in (any::<bool>(), any::<bool>()),
        (accumulate, each, parts) in (1u32..=2, 1u32..=2, 1u32..=4),
        bucket in prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), Just(Bucket::Tensor)],
        seed: u64,
    ) {
        // Ranks that have samples of their own outside of pairs have parts of one where there are fewer samples than ranks.
        let parts = if strategy == "sequence-parallel" && tensor % parts == 0 { parts } else { 1 };
        let (batch, sizes) = match parts {
            1 => (each * tensor, sizes),
            _ => (tensor / parts, (sizes.0, sizes.1, sizes.2, sizes.3, parts * sizes.4.min(2), sizes.5)),
        };
        let model = decoder(sizes, output);
        let ssgd = Job { bucket, fuse, accumulate, ..Job::new(Arc::clone(&model), data, batch) };
        let mesh = Mesh::new(&[(Axis::Data, data), (Axis::Tensor, tensor)]).unwrap();
        let strategy = format!("{strategy}{}", if shares_state { ":zero-1" } else { "" }).parse().unwrap();
        let split = Job { strategy, workers: mesh.ranks(), mesh: Some(mesh), ..ssgd.clone() };
        // Layers with fewer features than ranks are refused, and a weight that only one of two layers splits.
        let refused = |error: String| error.contains("too few") || error.contains("the weight of");
        prop_assume!(!split.program().is_err_and(|error| refused(error.to_string())));
        trains_like(&ssgd, &split, seed)?;
    }
}

/// Shoeybi et al. 2019, §3: a block has two allreduces of [positions × hidden] forward and two backward; the table of the
/// vocabulary adds one forward. Each rank has a part of every head, of the entries, and of the scores.
#[test]
fn megatron_splits_heads_entries_and_features() {
    let (positions, hidden, batch) = (6, 4 * 2 * 2, 5);
    let model = decoder((4, 2, 1, 32, positions, 16), OUTPUTS[0]);
    let mesh = Some(Mesh::new(&[(Axis::Data, 1), (Axis::Tensor, 4)]).unwrap());
    let job = Job { strategy: "megatron".parse().unwrap(), mesh, ..Job::new(model, 4, batch) };
    let program = job.program().unwrap();
    let sums = program.roles[0].tasks.iter().filter_map(|task| match &task.op {
        Op::Exchange(of) if of.collective == Collective::AllReduce => Some((of.range.end - of.range.start, &task.name)),
        _ => None,
    });
    let activations: Vec<&String> =
        sums.filter(|(elements, _)| *elements == u64::from(batch * positions * hidden)).map(|(_, name)| name).collect();
    // Backward those of the two pairs, and of the scores' layer, whose gathered input has no pair.
    assert_eq!(activations.len(), 3 + 3, "{activations:?}");
    let size = |name: &str| {
        let node = program.model.layers().iter().find(|node| node.name == name).unwrap();
        node.parameters[0].shape.sizes().collect::<Vec<_>>()
    };
    assert_eq!(size("embedding"), [16 / 4, hidden]);
    assert_eq!(size("queries"), [hidden / 4, hidden]);
    assert_eq!(size("keys"), [hidden / 2 / 4, hidden]);
    assert_eq!(size("output"), [hidden, hidden / 4]);
    assert_eq!(size("scores"), [16 / 4, hidden]);
    let attention = program.model.layers().iter().find(|node| node.name == "attention").unwrap();
    assert_eq!(attention.output.features(), hidden / 4, "documents are whole beside parts of heads");
}

/// Korthikanti et al. 2022, §4.2.2: a single sample is split by positions outside of pairs, and a rank receives as much as with
/// samples of its own. Numbers of samples and positions that do not divide are refused.
#[test]
fn few_samples_are_split_by_positions() {
    let ranks = 4;
    let of = |positions: u32, batch: u32| {
        let mesh = Some(Mesh::new(&[(Axis::Data, 1), (Axis::Tensor, ranks)]).unwrap());
        let model = decoder((4, 2, 1, 32, positions, 16), OUTPUTS[3]);
        let strategy = "sequence-parallel".parse().unwrap();
        Job { strategy, mesh, ..Job::new(model, ranks, batch) }.program()
    };
    let exchanges = |positions: u32, batch: u32| -> Vec<(Collective, u64)> {
        let program = of(positions, batch).unwrap();
        let tasks = program.roles[0].tasks.iter().filter_map(|task| match &task.op {
            Op::Exchange(of) => Some((of.collective.clone(), of.range.end - of.range.start)),
            _ => None,
        });
        tasks.collect()
    };
    // The same rows in all: of four samples, of two, and of one.
    let rows = |batch: u32| {
        let mut all = exchanges(24 / batch, batch);
        all.sort_by_key(|(collective, elements)| (format!("{collective:?}"), *elements));
        all
    };
    let features = |all: Vec<(Collective, u64)>| {
        let activations = all.into_iter().filter(|(_, elements)| *elements == 24 * 16);
        activations.map(|(collective, _)| collective).collect::<Vec<_>>()
    };
    let of_one = features(rows(1));
    let count = |wanted: Collective| of_one.iter().filter(|own| **own == wanted).count();
    // Each pair has a reduce-scatter forward and backward, and gathers its input; so has the loss, without a second of a pair.
    assert_eq!(count(Collective::ReduceScatter), 2 + 3, "{of_one:?}");
    assert_eq!(of_one, features(rows(2)));
    let node = |name: &str| of(24, 1).unwrap().model.layers().iter().find(|node| node.name == name).unwrap().output;
    assert_eq!([node("norm2"), node("positions")].map(|shape| shape.places()), [24 / 4, 24]);
    for (positions, batch, wanted) in [(24, 3, "a number that divides 4"), (6, 1, "a sequence length that 4 divides")] {
        let error = of(positions, batch).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains("does not divide among 4 ranks along tensor"), "{error}");
    }
}

/// A library's calls for gradients and activations along the same axis take turns, within a step and from step to step.
#[test]
fn library_calls_for_gradients_and_activations_take_turns() {
    let model = decoder((4, 2, 1, 32, 8, 16), OUTPUTS[2]);
    for strategy in ["megatron", "sequence-parallel", "sequence-parallel:zero-1", "all-to-all", "model-parallel:zero-1"]
    {
        for mesh in ["tensor=4", "data=2,tensor=2", "pipeline=2,tensor=2"] {
            for (accumulate, recompute) in [(1, "none"), (3, "full")] {
                let mesh: Mesh = mesh.parse().unwrap();
                let job = Job {
                    strategy: strategy.parse().unwrap(),
                    recompute: recompute.parse().unwrap(),
                    algorithm: "library:nccl".parse().unwrap(),
                    mesh: Some(mesh.clone()),
                    accumulate,
                    ..Job::new(Arc::clone(&model), mesh.ranks(), 4)
                };
                let checked = job.program().map(|_| ());
                assert!(checked.is_ok(), "{strategy}, {mesh:?}, {accumulate}, {recompute}: {checked:?}");
            }
        }
    }
}

/// Shoeybi et al. 2019, §3: of the scores no rank has those of all entries. What each finds goes to all, whatever the vocabulary; a
/// tied table is there once, and its two layers have the same entries on a rank. Entries that ranks do not divide are padded.
#[test]
fn losses_of_split_vocabularies_send_what_ranks_find() {
    let (positions, batch, ranks, tokens) = (6, 5, 4, 30u32);
    for output in OUTPUTS {
        let model = decoder((4, 2, 1, 32, positions, tokens), output);
        let mesh = Some(Mesh::new(&[(Axis::Data, 1), (Axis::Tensor, ranks)]).unwrap());
        let strategy = "megatron".parse().unwrap();
        let program = Job { strategy, mesh, ..Job::new(Arc::clone(&model), ranks, batch) }.program().unwrap();
        let gathers = program.roles[0].tasks.iter().filter_map(|task| match &task.op {
            Op::Exchange(of) if of.collective == Collective::AllGather => Some(of.range.end - of.range.start),
            _ => None,
        });
        let found = u64::from(batch * positions * ranks * PARTIAL_NUMBERS);
        assert_eq!(gathers.collect::<Vec<_>>(), [found], "{output}");
        let own = tokens.div_ceil(ranks);
        let features = |node: &Node| node.output.features();
        let scores = program.model.layers().iter().find(|node| node.name == "scores");
        assert!(scores.is_none_or(|node| features(node) == own));
        assert!(program.model.layers().iter().all(|node| node.layer.is_loss() || features(node) < tokens + 2));
        assert_eq!(program.model.tie().is_some(), model.tie().is_some());
        assert_eq!(program.model.classes(), tokens);
        // All entries of all ranks, each once.
        let mut held = vec![0; model.parameter_elements() as usize];
        let split =
            program.model.layers().iter().filter(|node| node.name == "embedding").map(|node| &node.parameters[0]);
        let of_rank: u64 = split.map(|parameter| parameter.elements()).sum();
        assert_eq!(of_rank, u64::from(own) * 16);
        for (range, _) in (0..ranks).flat_map(|rank| program.own_parameters(rank)) {
            held[range.start as usize..range.end as usize].iter_mut().for_each(|count| *count += 1);
        }
        let entries = model.layers().iter().find(|node| node.name == "embedding").unwrap().parameters[0].range.clone();
        assert!(held[entries.start as usize..entries.end as usize].iter().all(|count| *count == 1));
        assert!(held.iter().all(|count| *count == 1 || *count == ranks));
    }
}
