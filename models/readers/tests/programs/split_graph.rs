//! Tests graphs whose layouts do not match.

use std::sync::Arc;

use lockstep_models::graph::{NodeWork, Tensor};

use super::*;

/// Every gather and return is needed: without it, or with another collective, the layouts match no rule.
#[test]
fn missing_and_wrong_collectives_are_refused() {
    for strategy in
        ["hybrid:a", "hybrid:b", "hybrid:c:variable-batch", "model-parallel", "megatron", "first-device-table"]
    {
        let strategy: Strategy = strategy.parse().unwrap();
        let job = Job { strategy, ..Job::new(Arc::new(load_model("lenet").unwrap()), 2, 4) };
        let (graph, _) = job.strategy.graph(&job).unwrap();
        assert_eq!(graph.check(), Ok(()), "{}", job.strategy);
        let mut changed = 0;
        for index in graph.dag.node_indices() {
            let collectives = [Collective::AllGather, Collective::ReduceScatter, Collective::AllReduce].map(Some);
            let others = [None].into_iter().chain(collectives);
            let NodeWork::Relayout { layer, pass, collective, axes, again } = graph.dag[index].work.clone() else {
                continue;
            };
            for other in others.filter(|other| *other != collective) {
                let mut wrong = graph.clone();
                wrong.dag[index].work = NodeWork::Relayout { layer, pass, collective: other.clone(), axes, again };
                assert!(wrong.check().is_err(), "{}: {other:?} for {collective:?}", job.strategy);
                changed += 1;
            }
        }
        assert!(changed >= if matches!(job.strategy, Strategy::FirstDeviceTable(_)) { 7 } else { 8 }, "{changed}");
        // Nor may a gradient that is a partial sum be used as the whole one.
        for edge in graph.dag.edge_indices() {
            let layout = graph.dag[edge].layout;
            for axis in layout.axes().iter().filter(|axis| layout.on(*axis) == AxisLayout::Partial) {
                let mut wrong = graph.clone();
                wrong.dag[edge].layout = layout.with(axis, AxisLayout::Replicated);
                assert!(wrong.check().is_err(), "{}: {:?}", job.strategy, graph.dag[edge]);
            }
        }
    }
}

/// Each pair of layers sums once forward, its output, and once backward, the gradient of its input; the first
/// pair has none.
#[test]
fn a_pair_of_layers_has_one_sum_each_way() {
    for (layers, ranks) in [(2, 2), (4, 4), (6, 8), (5, 4)] {
        let dense = "{ kind = \"dense\", out_features = 32 },\n{ kind = \"gelu\" },\n".repeat(layers - 1);
        let last = "{ kind = \"dense\", out_features = 16 },\n{ kind = \"softmax_cross_entropy\" },\n";
        let text = format!("name = \"m\"\ninput = [1, 4, 4]\nlayer = [\n{dense}{last}]\n");
        let model = Arc::new(parse_model("m.toml", &text).unwrap());
        let (strategy, batch) = ("megatron".parse().unwrap(), 3);
        let program = Job { strategy, ..Job::new(Arc::clone(&model), ranks, batch) }.program().unwrap();
        let sums = program.roles[0].exchanges().filter(|(_, exchange)| exchange.collective == Collective::AllReduce);
        let pairs = layers / 2;
        let returns = pairs - 1 + layers % 2;
        assert_eq!(sums.count(), pairs + returns, "{layers} layers");
        // A layer without a partner leaves its scores on all ranks.
        let gathers = program.roles[0].exchanges().filter(|(_, exchange)| exchange.collective == Collective::AllGather);
        assert_eq!(gathers.count(), layers % 2);
        // Of layers of one width about as many bytes are sent as where features are gathered, in half as
        // many exchanges.
        let strategy = "model-parallel".parse().unwrap();
        let gathering = Job { strategy, ..Job::new(Arc::clone(&model), ranks, batch) }.program().unwrap();
        let sent = |program: &Program| -> (usize, u64) {
            let of = |(_, exchange)| program.schedule(exchange, 0).unwrap().bytes_sent(0);
            (program.roles[0].exchanges().count(), program.roles[0].exchanges().map(of).sum())
        };
        let ((sums, summed), (gathers, gathered)) = (sent(&program), sent(&gathering));
        assert_eq!((sums, gathers), (layers - 1 + layers % 2, 2 * layers - 1));
        assert!(summed <= gathered, "{summed} bytes beside {gathered}");
        // Weights are sharded, the biases of second layers are on every rank.
        let sharding = program.sharding.as_ref().unwrap();
        let all = sharding.whole.parameter_elements();
        let biases: u64 = (0..pairs).map(|pair| if 2 * pair + 2 == layers { 16 } else { 32 }).sum();
        assert_eq!(program.model.parameter_elements(), (all - biases) / u64::from(ranks) + biases);
    }
}

/// Weights and their gradient have the same layout, also where a bucket holds layers with other layouts.
#[test]
fn weights_with_another_layout_than_their_gradient_are_refused() {
    let job = Job { strategy: "megatron".parse().unwrap(), ..Job::new(Arc::new(load_model("lenet").unwrap()), 2, 4) };
    let (graph, _) = job.strategy.graph(&job).unwrap();
    let [rows, columns] = [Dimension::Feature, Dimension::Input].map(AxisLayout::Split);
    let mut changed = 0;
    for edge in graph.dag.edge_indices().filter(|edge| graph.dag[*edge].tensor == Tensor::WeightGradient) {
        let other = match graph.dag[edge].layout.on(Axis::Tensor) {
            layout if layout == rows => columns,
            layout if layout == columns => rows,
            _ => continue,
        };
        let mut wrong = graph.clone();
        wrong.dag[edge].layout = wrong.dag[edge].layout.with(Axis::Tensor, other);
        assert!(wrong.check().is_err(), "{:?}", graph.dag[edge]);
        changed += 1;
    }
    assert_eq!(changed, 4);
}

#[test]
fn the_graph_does_not_grow_with_ranks() {
    let nodes = |ranks| {
        let strategy = "hybrid:b".parse().unwrap();
        let job = Job { strategy, ..Job::new(Arc::new(load_model("lenet").unwrap()), ranks, 4) };
        job.strategy.graph(&job).unwrap().0.dag.node_count()
    };
    assert_eq!(nodes(2), nodes(9));
}
