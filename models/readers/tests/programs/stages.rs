//! Tests that stages cut by blocks have exactly these blocks of each decoder, split layers or not, and refuse other numbers.

use super::*;

/// The numbers of the blocks `layers.N.` whose layers are in a chunk, and its other layers.
fn contents(model: &Model, chunk: &StageChunk) -> (Vec<u32>, Vec<String>) {
    let (mut blocks, mut others) = (Vec::new(), Vec::new());
    for node in &model.layers()[chunk.layers.start as usize..chunk.layers.end as usize] {
        match node.name.strip_prefix("layers.").and_then(|rest| rest.split('.').next()) {
            Some(number) => blocks.push(number.parse().expect("a number")),
            None => others.push(node.name.clone()),
        }
    }
    blocks.dedup();
    (blocks, others)
}

/// Each block is in one chunk, in order, as many in each as the layout says; the embedding is in the first chunk, and the loss in the
/// last.
fn has_blocks(model: &Model, stages: &Stages, layout: &StageLayout) {
    let mut next = 0;
    let count = stages.chunks().len();
    assert_eq!(count, layout.blocks().len());
    for (index, (chunk, wanted)) in stages.chunks().iter().zip(layout.blocks()).enumerate() {
        let (blocks, others) = contents(model, chunk);
        assert_eq!(blocks, (next..next + wanted).collect::<Vec<_>>(), "{} chunk {index}", model.name());
        next += wanted;
        let has = |name: &str| others.iter().any(|other| other == name);
        assert_eq!(has("embedding"), index == 0, "{others:?}");
        assert_eq!(has("head"), index + 1 == count, "{others:?}");
        assert!([0, count - 1].contains(&index) || others.is_empty(), "{others:?}");
    }
}

#[test]
fn stages_have_the_blocks_of_their_layout() {
    let mut decoders = 0;
    for name in zoo() {
        let model = load_model(&name).expect("a model of the zoo");
        let blocks = model.blocks().iter().filter(|block| block.series.as_deref() == Some("layers")).count() as u32;
        if blocks == 0 {
            continue;
        }
        decoders += 1;
        for (stages, chunks) in [(1, 1), (2, 1), (3, 1), (4, 2), (blocks, 1), (blocks + 2, 1)] {
            let Some(layout) = StageLayout::balanced(blocks, stages * chunks) else { continue };
            let cut: StageCut = layout.to_string().parse().expect("what is printed");
            let of = Stages::new(&model, stages, chunks, &cut).expect("a layout that fits");
            assert_eq!(of, Stages::new(&model, stages, chunks, &StageCut::Blocks).expect("as many"));
            has_blocks(&model, &of, &layout);
        }
        let refused = |cut: &str, stages: u32| {
            Stages::new(&model, stages, 1, &cut.parse().expect("a cut")).expect_err("another number").to_string()
        };
        let text = refused(&format!("Et*{blocks}|tL"), 2);
        assert!(text.contains(&format!("has {} blocks t, and {name} has {blocks}", blocks + 1)), "{text}");
        let text = refused(&format!("Et*{blocks}|L"), 3);
        assert!(text.contains("has 2 parts between its |, and 3 are needed"), "{text}");
        let text = refused("blocks", blocks + 3);
        assert!(text.contains(&format!("use at most {} stages", blocks + 2)), "{text}");
    }
    assert!(decoders >= 16, "{decoders}");
    let other = load_model("resnet-50").expect("a model of the zoo");
    let refused = Stages::new(&other, 2, 1, &StageCut::Blocks).expect_err("blocks of several series").to_string();
    assert!(refused.contains("resnet-50 is not one row of numbered blocks"), "{refused}");
}

/// A rank's part of each layer is cut between the same blocks, and the pipeline's program is accepted.
#[test]
fn layouts_cut_split_layers_too() {
    let model = Arc::new(load_model("gpt2-char:layers=5").expect("a model"));
    for strategy in ["ssgd", "megatron", "sequence-parallel"] {
        let tensor = if strategy == "ssgd" { 1 } else { 2 };
        let mesh =
            Mesh::new(&[(Axis::Pipeline, 3), (Axis::Tensor, tensor)][..1 + usize::from(tensor > 1)]).expect("a mesh");
        let cut: StageCut = "E|t*4|tL".parse().expect("a layout");
        let job = Job {
            strategy: strategy.parse().expect("a strategy"),
            cut,
            accumulate: 3,
            workers: mesh.ranks(),
            mesh: Some(mesh),
            ..Job::new(model.clone(), 1, 2)
        };
        let program = job.program().unwrap_or_else(|error| panic!("{strategy}: {error}"));
        for (role, blocks) in program.roles.iter().zip([vec![], vec!["0", "1", "2", "3"], vec!["4"]]) {
            let names = role.tasks.iter().filter(|task| matches!(task.op, Op::Compute { .. })).map(|task| &task.name);
            let mut seen: Vec<&str> =
                names.filter_map(|name| Some(name.split_once("layers.")?.1.split_once('.')?.0)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, blocks, "{strategy}, {}", role.name);
        }
    }
}
