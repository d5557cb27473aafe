//! Graphs whose layouts do not meet.

use std::sync::Arc;

use lockstep_models::graph::Work;

use super::*;

/// Every gather and return is needed: without it, or with another, layouts fit no rule.
#[test]
fn a_collective_that_is_missing_or_another_one_is_refused() {
    for strategy in ["hybrid:a", "hybrid:b", "hybrid:c:variable-batch", "model-parallel", "first-device-table"] {
        let strategy: Strategy = strategy.parse().unwrap();
        let job = Job { strategy, ..Job::new(Arc::new(load_model("lenet").unwrap()), 2, 4) };
        let (graph, _) = job.strategy.graph(&job).unwrap();
        assert_eq!(graph.check(), Ok(()), "{}", job.strategy);
        let mut changed = 0;
        for index in graph.dag.node_indices() {
            let others = [None, Some(Collective::AllGather), Some(Collective::ReduceScatter)];
            let Work::Relayout { layer, pass, collective, axes } = graph.dag[index].work.clone() else { continue };
            for other in others.into_iter().filter(|other| *other != collective) {
                let mut wrong = graph.clone();
                wrong.dag[index].work = Work::Relayout { layer, pass, collective: other.clone(), axes };
                assert!(wrong.check().is_err(), "{}: {other:?} for {collective:?}", job.strategy);
                changed += 1;
            }
        }
        assert!(changed >= if matches!(job.strategy, Strategy::FirstDeviceTable(_)) { 7 } else { 8 }, "{changed}");
        // Nor may a gradient that is a partial sum be taken for the whole one.
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

/// The graph does not grow with ranks.
#[test]
fn ranks_do_not_make_it_larger() {
    let nodes = |ranks| {
        let strategy = "hybrid:b".parse().unwrap();
        let job = Job { strategy, ..Job::new(Arc::new(load_model("lenet").unwrap()), ranks, 4) };
        job.strategy.graph(&job).unwrap().0.dag.node_count()
    };
    assert_eq!(nodes(2), nodes(9));
}
