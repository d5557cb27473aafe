//! Compares what follows from layers' signatures with their shapes and with the rules by which graphs are proved.

use super::{COLUMNS, FEATURES, LAYOUTS, SAMPLES};
use crate::graph::rules::{Operands, Rule};
use crate::graph::{NodeWork, Tensor};
use crate::layer::{Features, IndexUse, Signature};
use crate::{
    Attention, Axis, AxisLayout, Dimension, Embedding, Layer, LayerId, Linear, Node, Pass, Shape, random_model,
};

const THIS: LayerId = LayerId(1);
const PASSES: [Pass; 3] = [Pass::Forward, Pass::BackwardData, Pass::BackwardWeight];

/// Layers of every kind.
fn nodes() -> impl Iterator<Item = Node> {
    (0..200).flat_map(|seed| random_model(seed, true).layers()[1..].to_vec())
}

#[test]
fn operands_have_the_elements_of_their_indices() {
    for node in nodes() {
        let signature = &node.signature;
        let elements = |operand: &Vec<(usize, Dimension)>| -> u64 {
            operand.iter().map(|(index, _)| signature.indices[*index].size).product()
        };
        let inputs: Vec<u64> = node.input_shapes.iter().map(|shape| shape.elements()).collect();
        assert_eq!(signature.inputs.iter().map(elements).collect::<Vec<_>>(), inputs, "{}", node.layer);
        let parameters: Vec<u64> = node.parameters.iter().map(|parameter| parameter.elements()).collect();
        assert_eq!(signature.parameters.iter().map(elements).collect::<Vec<_>>(), parameters, "{}", node.layer);
        assert_eq!(elements(&signature.output), node.output.elements(), "{}", node.layer);
        if let Some(product) = signature.product() {
            let weight = &node.parameters[0];
            assert_eq!(product.inputs * product.kernel, weight.fan_in() as f64, "{}", node.layer);
            assert_eq!(product.outputs * product.groups, f64::from(node.output.features()), "{}", node.layer);
        }
    }
}

/// Of a matrix product no other split is allowed forward than those along samples, rows and columns, and of a layer that works
/// feature by feature none but those along samples and features.
#[test]
fn rules_allow_the_layouts_that_follow_and_nothing_else() {
    let (mut products, mut followers) = (0, 0);
    for node in nodes() {
        let (rows, columns) = ([FEATURES, AxisLayout::Replicated, FEATURES], [COLUMNS, FEATURES, AxisLayout::Partial]);
        let own = match node.signature.features() {
            Features::Rows if node.parameters.len() == 1 => vec![rows, columns],
            Features::Rows => vec![rows],
            Features::Follow if !node.parameters.is_empty() && node.inputs.len() == 1 => vec![[FEATURES; 3]],
            _ => continue,
        };
        let samples = [AxisLayout::Replicated, SAMPLES, SAMPLES];
        let served: Vec<[AxisLayout; 3]> = own.into_iter().chain([samples, [AxisLayout::Replicated; 3]]).collect();
        let (work, operands) = (NodeWork::Layer(THIS, Pass::Forward), Operands::of(&node));
        let rule = Rule { work: &work, axis: Axis::Data, operands: Some(&operands) };
        for weight in LAYOUTS {
            for (input, output) in LAYOUTS.into_iter().flat_map(|input| LAYOUTS.map(|output| (input, output))) {
                let takes = [(Tensor::Weight, weight), (Tensor::Activation(node.inputs[0]), input)];
                let allowed = rule.allows(&takes, &[(Tensor::Activation(THIS), output)]);
                let follows = served.contains(&[weight, input, output]);
                assert_eq!(allowed, follows, "{}: {weight}, {input} gives {output}", node.layer);
            }
        }
        *(if node.is_product() { &mut products } else { &mut followers }) += 1;
    }
    assert!(products > 100 && followers > 100, "{products} {followers}");
}

/// Shapes, products, layouts and what ranks may split follow from the signature alone.
#[test]
fn what_follows_changes_with_the_signature() {
    for node in nodes() {
        let of = &node.signature;
        for index in 0..of.indices.len() {
            let has = |operand: &[(usize, Dimension)]| operand.iter().any(|(own, _)| *own == index);
            let times = |operand: &[(usize, Dimension)]| if has(operand) { 2 } else { 1 };
            let mut twice = of.clone();
            twice.indices[index].size *= 2;
            assert_eq!(twice.output_shape().elements(), node.output.elements() * times(&of.output[1..]));
            for ((shape, before), operand) in twice.parameter_shapes().zip(&node.parameters).zip(&of.parameters) {
                assert_eq!(shape.elements(), before.elements() * times(operand), "{} {index}", node.layer);
            }
            let multiplied = |signature: &Signature| {
                signature.product().map(|product| product.outputs * product.inputs * product.kernel * product.groups)
            };
            let wanted = multiplied(of).map(|before| before * times(&of.parameters[0]) as f64);
            assert_eq!(multiplied(&twice), wanted, "{} {index}", node.layer);

            let mut whole = of.clone();
            whole.indices[index].usage = IndexUse::Whole;
            assert!(PASSES.into_iter().all(|pass| whole.layouts(pass, index).is_none()));
            if of.output.get(1).is_some_and(|(first, _)| *first == index) {
                assert_eq!(whole.features(), Features::Whole, "{} {index}", node.layer);
            }
            if of.indices[index].usage == IndexUse::Contracted {
                assert_eq!(whole.product(), None, "{} {index}", node.layer);
            }
        }
    }
}

/// Layers of sequences, each alone.
fn sequences() -> impl Iterator<Item = Node> {
    let shape = |features| Shape::new(&[(Dimension::Position, 6), (Dimension::Feature, features)]);
    let tokens = Shape::new(&[(Dimension::Position, 6)]);
    let attention = Attention { heads: 8, key_heads: 4, causal: true, window: None, soft_cap: None, scale: None };
    let layers = [
        (Layer::Embedding(Embedding { entries: 10, out_features: 4 }), vec![tokens]),
        (Layer::Linear(Linear { out_features: 12, bias: true, tie: None }), vec![shape(8)]),
        (Layer::Attention(attention), vec![shape(24), shape(12), shape(12)]),
        (Layer::Gelu, vec![shape(8)]),
    ];
    layers.into_iter().map(|(layer, inputs)| Node::alone(layer, inputs).unwrap())
}

/// A rank's part of a layer is that layer with half of the split index: its operands and its products follow.
#[test]
fn parts_follow_from_the_split_index() {
    let mut halved = [0; 3];
    for node in nodes().chain(sequences()) {
        let (of, rule) = (&node.signature, node.layer.rule());
        for (index, own) in of.indices.iter().enumerate() {
            let groups = node.is_product() && of.features() == Features::Groups;
            let is_first =
                of.output.iter().find(|(_, of)| *of == Dimension::Feature).is_some_and(|(own, _)| *own == index);
            let splits = matches!(own.usage, IndexUse::Contracted | IndexUse::LookedUp) || is_first;
            let Some(layouts) = of.layouts(Pass::Forward, index).filter(|_| splits && !groups && own.size % 2 == 0)
            else {
                continue;
            };
            let layer = match (own.usage, layouts.parameters.first()) {
                (IndexUse::Contracted, _) => rule.without_bias().map(|(layer, _)| layer),
                (_, Some(AxisLayout::Split(along))) => rule.share(*along, 2),
                _ => rule.share(Dimension::Feature, 2),
            };
            let half = |(shape, layout): (&Shape, &AxisLayout)| match layout {
                AxisLayout::Split(Dimension::Feature) => shape.with_features(shape.features() / 2),
                _ => *shape,
            };
            // A dense layer sums over all elements of its input, of which a rank has those of its features.
            let inputs: Vec<Shape> = node.input_shapes.iter().zip(&layouts.inputs).map(half).collect();
            if own.usage == IndexUse::Contracted
                && inputs.iter().any(|shape| 2 * shape.elements() != node.input_shapes[0].elements())
            {
                continue;
            }
            let part = Node::alone(layer.unwrap_or_else(|| node.layer.clone()), inputs).unwrap();
            let elements = |node: &Node, operand: &[(usize, Dimension)]| -> u64 {
                operand.iter().map(|(index, _)| node.signature.indices[*index].size).product()
            };
            let operands = |of: &Node| {
                let signature = of.signature.clone();
                signature.inputs.into_iter().chain([signature.output]).chain(signature.parameters).collect::<Vec<_>>()
            };
            for (own, whole) in operands(&part).iter().zip(&operands(&node)) {
                let has = whole.iter().any(|(of, _)| *of == index);
                assert_eq!(elements(&part, own) * if has { 2 } else { 1 }, elements(&node, whole), "{}", node.layer);
            }
            if node.is_product() {
                for pass in PASSES {
                    assert_eq!(2.0 * part.work(pass, 3).flops, node.work(pass, 3).flops, "{}", node.layer);
                }
                let read: u64 = part.input_shapes.iter().map(|shape| 3 * shape.elements()).sum();
                let learned: u64 = part.parameters.iter().map(|parameter| parameter.elements()).sum();
                assert_eq!(part.work(Pass::Forward, 3).elements_read, (read + learned) as f64, "{}", node.layer);
            }
            halved[match own.usage {
                IndexUse::Contracted => 0,
                IndexUse::LookedUp => 1,
                _ => 2,
            }] += 1;
        }
    }
    assert!(halved[0] > 50 && halved[1] == 1 && halved[2] > 100, "{halved:?}");
}
