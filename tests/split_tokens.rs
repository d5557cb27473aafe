//! Tests that models of tokens whose layers are split over ranks train like one rank: heads of attention, entries of tables,
//! features at each position.

use std::sync::Arc;

use lockstep_models::{Axis, Bucket, Job, Mesh, Model, Op};
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
    { name = "scores", kind = "linear", out_features = "$tokens", bias = false },
    { name = "loss", kind = "softmax_cross_entropy" },
]
[size]
"#;

/// Key heads, query heads of each, pairs of features of a head, the feed-forward width, positions and tokens.
type Sizes = (u32, u32, u32, u32, u32, u32);

fn decoder((key_heads, shared, pairs, feed, positions, tokens): Sizes) -> Arc<Model> {
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
    Arc::new(lockstep_readers::parse_model("m.toml", &format!("{DECODER}{sizes}")).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// On meshes of data and tensor, with shared optimizer state or without; dropout draws as on one rank. Sizes need not divide.
    #[test]
    fn decoders_split_over_ranks_train_like_ssgd(
        sizes in (1u32..=4, 1u32..=2, 1u32..=2, 2u32..=9, 1u32..=6, 4u32..=15),
        (data, tensor) in (1u32..=2, 1u32..=4),
        strategy in prop::sample::select(vec!["model-parallel", "megatron", "sequence-parallel", "all-to-all"]),
        (shares_state, fuse) in (any::<bool>(), any::<bool>()),
        (accumulate, each) in (1u32..=2, 1u32..=2),
        bucket in prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), Just(Bucket::Tensor)],
        seed: u64,
    ) {
        let model = decoder(sizes);
        let ssgd = Job { bucket, fuse, accumulate, ..Job::new(Arc::clone(&model), data, each * tensor) };
        let mesh = Mesh::new(&[(Axis::Data, data), (Axis::Tensor, tensor)]).unwrap();
        let strategy = format!("{strategy}{}", if shares_state { ":zero-1" } else { "" }).parse().unwrap();
        let split = Job { strategy, workers: mesh.ranks(), mesh: Some(mesh), ..ssgd.clone() };
        // Layers with fewer features than ranks are refused.
        prop_assume!(split.program().map_err(|error| error.to_string()).map_or_else(|error| !error.contains("too few"), |_| true));
        trains_like(&ssgd, &split, seed)?;
    }
}

/// Shoeybi et al. 2019, §3: a block has two allreduces of [positions × hidden] forward and two backward; the table of the
/// vocabulary adds one forward. Each rank has a part of every head, of the entries, and of the scores.
#[test]
fn megatron_splits_heads_entries_and_features() {
    let (positions, hidden, batch) = (6, 4 * 2 * 2, 5);
    let model = decoder((4, 2, 1, 32, positions, 16));
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
