//! Tests of the picture of layouts: parts tile a tensor, every rank and every collective is shown, and the bytes are well-formed.

use std::sync::Arc;

use lockstep_models::{Job, LayoutRow, Mesh, Model};

use super::layout_picture;

/// What a job of the command line draws from.
struct Drawn {
    model: Arc<Model>,
    mesh: Mesh,
    table: Vec<LayoutRow>,
}

fn drawn(model: &str, strategy: &str, learners: u32, nodes: &[u32]) -> Drawn {
    let job = Job {
        strategy: strategy.parse().unwrap(),
        learners,
        node_sizes: Some(nodes.to_vec()),
        ..Job::new(Arc::new(lockstep_readers::load_model(model).unwrap()), nodes.iter().sum(), 1)
    };
    let (graph, shard) = job.graph().unwrap();
    let model = shard.map_or(job.model.clone(), |(model, _)| model.into());
    Drawn { model, mesh: graph.mesh.clone(), table: graph.table() }
}

#[test]
fn temporary() {
    for (name, model, strategy, learners, nodes) in [
        ("ssgd", "lenet", "ssgd", 1, &[4][..]),
        ("hybrid", "alexnet", "hybrid:b", 1, &[4]),
        ("model-parallel", "lenet", "model-parallel", 1, &[4]),
        ("first-device-table", "lenet", "first-device-table", 1, &[3, 3]),
        ("sma", "lenet", "sma", 1, &[4]),
        ("reference-models", "lenet", "sma:reference-models", 2, &[8]),
        ("x-large", "lenet", "ssgd", 1, &[1048576]),
        ("x-large-table", "lenet", "first-device-table", 1, &[4, 4, 4, 4]),
        ("x-ragged", "lenet", "first-device-table", 1, &[2, 1, 3]),
        ("x-large-sma", "lenet", "sma:reference-models", 4, &[64]),
        ("x-unequal", "lenet", "ssgd", 1, &[1]),
        ("x-one", "lenet", "ssgd", 1, &[1]),
    ] {
        let of = drawn(model, strategy, learners, nodes);
        let picture = layout_picture(&format!("{model}: strategy {strategy}"), &of.model, &of.mesh, &of.table);
        std::fs::write(format!("/tmp/pics/{name}.svg"), picture).unwrap();
    }
    use lockstep_models::*;
    let all = [AxisLayout::Replicated, AxisLayout::Split(Dimension::Sample), AxisLayout::Split(Dimension::Feature), AxisLayout::Partial, AxisLayout::Own, AxisLayout::First];
    let mesh = Mesh::new(&[(Axis::Data, 2), (Axis::Tensor, 2), (Axis::Device, 2)]).unwrap();
    let mut table = Vec::new();
    for (a, one) in all.iter().enumerate() { for two in &all[a..] {
        let layout = Layout::default().with(Axis::Data, *one).with(Axis::Tensor, *two).with(Axis::Device, all[(a + 3) % 6]);
        let change = (a % 2 == 0).then(|| LayoutChange { by: Some("reduce-scatter"), axes: layout.axes(), to: Layout::default() });
        table.push(LayoutRow { tensor: "activation gradient", layout, change, layers: vec![], changes: 3 });
    } }
    let of = drawn("lenet", "ssgd", 1, &[4]);
    std::fs::write("/tmp/pics/x-three.svg", layout_picture("three", &of.model, &mesh, &table)).unwrap();
    for row in &mut table { if let Some(c) = &mut row.change { c.axes = AxisSet::of(&[Axis::Tensor]); } }
    std::fs::write("/tmp/pics/x-three-b.svg", layout_picture("three", &of.model, &mesh, &table)).unwrap();
}
