//! Tests properties of every valid model on random ones.

use std::collections::BTreeSet;

use petgraph::visit::EdgeRef;

use super::*;
use lockstep_models::ImageShape;
use lockstep_models::layer::KINDS;

/// Kinds of layers of sequences, which random models, of images, do not have.
const OF_SEQUENCES: [&str; 8] = [
    "attention",
    "documents",
    "embedding",
    "linear",
    "linear_cross_entropy",
    "position_embedding",
    "rms_norm",
    "rotary",
];

#[test]
fn all_kinds_occur_and_batch_norm_only_when_wanted() {
    let kinds = |with_batch_norm| -> BTreeSet<&str> {
        let models = (0..200).map(|seed| random_model(seed, with_batch_norm));
        models.flat_map(|model| model.layers().iter().map(|node| node.layer.kind()).collect::<Vec<_>>()).collect()
    };
    let of_images = KINDS.iter().map(|kind| kind.name).filter(|name| !OF_SEQUENCES.contains(name));
    let mut all: BTreeSet<&str> = of_images.collect();
    all.insert("input");
    assert_eq!(kinds(true), all);
    all.remove("batch_norm");
    assert_eq!(kinds(false), all);
}

/// A layer is spelt completely: a model file of the spelt layers describes the same layers.
#[test]
fn spelt_layers_read_back_as_themselves() {
    let zoo = zoo().into_iter().map(|name| load_model(&name).expect("in the zoo"));
    // Decoders have layers that are tied to others by their names.
    let zoo = zoo.filter(|model| model.tokens().is_none());
    for model in (0..300).map(|seed| random_model(seed, true)).chain(zoo) {
        let ImageShape { channels, height, width } = model.input().image();
        // Names in files have no dots, those of a block's layers do.
        let called = |id: &LayerId| if id.0 == 0 { "\"input\"".to_owned() } else { format!("\"layer{}\"", id.0) };
        let layers = model.iter().skip(1).map(|(id, node)| {
            let inputs: Vec<String> = node.inputs.iter().map(called).collect();
            let weight =
                if node.layer.is_loss() { format!(", loss_weight = {}", node.loss_weight) } else { String::new() };
            format!("{{ name = {}, {}, inputs = [{}]{weight} }},\n", called(&id), node.layer, inputs.join(", "))
        });
        let layers: String = layers.collect();
        let text = format!("name = \"again\"\ninput = [{channels}, {height}, {width}]\nlayer = [\n{layers}]\n");
        let again = parsed(&text);
        let of = |model: &Model| -> Vec<_> {
            let fields = |node: &Node| (node.layer.clone(), node.inputs.clone(), node.output, node.loss_weight);
            model.layers().iter().map(fields).collect()
        };
        assert_eq!(of(&again), of(&model), "{text}");
    }
}

#[test]
fn models_differ_and_stay_small() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let model = random_model(seed, seed % 2 == 0);
        assert!(model.parameter_elements() < 20_000, "{seed}: {}", model.parameter_elements());
        assert!(model.layers().iter().all(|node| node.output.elements() < 2_000));
        assert!((2..=5).contains(&model.classes()));
        seen.insert(format!("{:?}", model.layers()));
    }
    assert!(seen.len() > 290, "{}", seen.len());
}

#[test]
fn inputs_consumers_and_shapes_agree() {
    for seed in 0..200 {
        let model = random_model(seed, true);
        for (id, node) in model.iter() {
            assert_eq!(Ok(node.output), node.layer.output_shape(&node.input_shapes));
            assert!(node.inputs.iter().all(|input| *input < id));
            // The slow way round: a consumer is any layer that names this one as input.
            let slow: Vec<LayerId> =
                model.iter().filter(|(_, other)| other.inputs.contains(&id)).map(|(id, _)| id).collect();
            assert_eq!(model.consumers(id), slow);
            let before = ancestors(&model, id);
            let learns = before.iter().any(|other| !model.node(*other).parameters.is_empty());
            assert_eq!(model.needs_input_gradient(id), learns);
            assert_eq!(slow.is_empty(), node.layer.is_loss());
        }
        for edge in model.graph().edge_references() {
            let (from, to) = (model.graph()[edge.source()], model.graph()[edge.target()]);
            assert!(model.node(to).inputs.contains(&from));
        }
        let edges: usize = model.layers().iter().map(|node| node.inputs.len()).sum();
        assert_eq!(model.graph().edge_count(), edges);
    }
}

/// All layers on whose output `id` depends.
fn ancestors(model: &Model, id: LayerId) -> BTreeSet<LayerId> {
    let mut found = BTreeSet::new();
    let mut open = model.node(id).inputs.clone();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(&model.node(next).inputs);
        }
    }
    found
}
