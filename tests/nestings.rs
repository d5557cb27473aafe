//! Predicts and trains with every algorithm nested in `hierarchical`: what works for a single collective works for a
//! training too.

use crate::commands::{folder, rows};

const NESTED: [&str; 8] = [
    "ring",
    "halving-doubling",
    "binomial-tree",
    "tree:3",
    "pipelined-chain",
    "multi-color:2",
    "direct",
    "parameter-server:2",
];

#[test]
fn every_nesting_is_predicted_on_one_node_and_on_several() {
    let folder = folder("nestings-predicted");
    let algorithms = NESTED.map(|across| format!("hierarchical:{across}")).join(",");
    let question = ["sim", "predict", "--model", "lenet", "--cluster", "p2.8xlarge:8", "--batch-per-rank", "8"];
    for bucket in ["layer", "25MiB"] {
        let more = ["--ranks", "8,16", "--bucket", bucket, "--algorithm", &algorithms];
        let rows = rows(&folder, "sim-predict", &[&question[..], &more].concat());
        assert_eq!(rows.len(), 2 * NESTED.len(), "{bucket}");
    }
}

/// The sum of two ranks is the same in either order, so two nodes of one rank end with the same hash whatever the
/// algorithm between them.
#[test]
fn every_nesting_trains() {
    let folder = folder("nestings-trained");
    let algorithms = NESTED.map(|across| format!("hierarchical:{across}")).join(",");
    let run = ["exec", "run", "--model", "mlp", "--data", "synthetic:64", "--batch-per-rank", "4", "--steps", "2"];
    let trained = |ranks: &str, per_node: &str| {
        let more = ["--ranks", ranks, "--ranks-per-node", per_node, "--algorithm", &algorithms];
        let rows = rows(&folder, "exec-run", &[&run[..], &more].concat());
        assert_eq!(rows.len(), NESTED.len(), "{ranks} ranks");
        rows.into_iter().map(|row| row["weights_sha256"].to_string()).collect::<Vec<_>>()
    };
    let two = trained("2", "1");
    assert!(two.iter().all(|weights| *weights == two[0]), "{two:?}");
    trained("4", "2");
    trained("3", "3");
}
