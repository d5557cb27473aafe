//! Compares what follows from layers' signatures with their shapes and with the rules by which graphs are proved.

use super::{COLUMNS, FEATURES, LAYOUTS};
use crate::graph::rules::{Rule, TensorLayout};
use crate::graph::{NodeWork, Tensor};
use crate::layer::{Features, IndexUse, InputUse, PassLayouts, Signature};
use crate::{Axis, AxisLayout, Dimension, LayerId, Node, Pass, random_model};

const THIS: LayerId = LayerId(1);
const PASSES: [Pass; 3] = [Pass::Forward, Pass::BackwardData, Pass::BackwardWeight];

/// Layers of every kind.
fn nodes() -> impl Iterator<Item = Node> {
    (0..200).flat_map(|seed| random_model(seed, true).layers()[1..].to_vec())
}

/// The rules call rows of a weight its features.
fn as_rules_name(layout: AxisLayout) -> AxisLayout {
    if layout == AxisLayout::Split(Dimension::Output) { FEATURES } else { layout }
}

/// The one layout of several tensors; `None` where they differ.
fn one(layouts: &[AxisLayout]) -> Option<AxisLayout> {
    let first = layouts.first().copied().map(as_rules_name)?;
    layouts.iter().all(|layout| as_rules_name(*layout) == first).then_some(first)
}

/// What a node of this pass takes and gives; `None` where its graph has one layout for tensors that differ.
fn tensors(node: &Node, pass: Pass, of: &PassLayouts) -> Option<(Vec<TensorLayout>, TensorLayout)> {
    let input = one(&of.inputs)?;
    let weights = if of.parameters.is_empty() { None } else { Some((Tensor::Weight, one(&of.parameters)?)) };
    let activation = (Tensor::Activation(LayerId(0)), input);
    let gradient = of.gradient.map(|layout| (Tensor::ActivationGradient(THIS), layout));
    let made = one(&of.made)?;
    Some(match pass {
        Pass::Forward => (weights.into_iter().chain([activation]).collect(), (Tensor::Activation(THIS), made)),
        Pass::BackwardData => {
            let reads_input = node.layer.rule().kind().input_use == InputUse::Always;
            let read = reads_input.then_some(activation);
            let takes = weights.into_iter().chain(gradient).chain(read).collect();
            (takes, (Tensor::ActivationGradient(LayerId(0)), made))
        }
        Pass::BackwardWeight => (gradient.into_iter().chain([activation]).collect(), (Tensor::WeightGradient, made)),
    })
}

/// The passes that a node has.
fn passes(node: &Node) -> impl Iterator<Item = Pass> {
    let weighs = !node.parameters.is_empty();
    let wanted = node.layer.is_loss();
    PASSES.into_iter().filter(move |pass| match pass {
        Pass::Forward => true,
        Pass::BackwardData => !wanted,
        Pass::BackwardWeight => weighs,
    })
}

/// Whether graphs split such an index: along samples and features, not yet along rows and columns of images or groups.
fn is_served(signature: &Signature, index: usize) -> bool {
    if signature.features() == Features::Groups {
        return index == 0;
    }
    let operands = signature.inputs.iter().chain(&signature.parameters).chain([&signature.output]).flatten();
    operands.filter(|(own, _)| *own == index).all(|(_, of)| !matches!(of, Dimension::Row | Dimension::Column))
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

/// Every split that a signature permits is one that the rules prove, in each pass.
#[test]
fn layouts_that_follow_from_signatures_are_allowed() {
    let mut proved = 0;
    for node in nodes() {
        for index in (0..node.signature.indices.len()).filter(|index| is_served(&node.signature, *index)) {
            for pass in passes(&node) {
                let Some(of) = node.signature.layouts(pass, index) else { continue };
                let Some((takes, gives)) = tensors(&node, pass, &of) else { continue };
                let work = NodeWork::Layer(THIS, pass);
                let by_channel = node.signature.features() == Features::Follow;
                let rule = Rule { work: &work, axis: Axis::Data, by_channel };
                assert!(
                    rule.allows(&takes, &[gives]),
                    "{} {pass:?} along {index} of {:?}: {takes:?} gives {gives:?}",
                    node.layer,
                    node.signature
                );
                proved += 1;
            }
        }
    }
    assert!(proved > 5_000, "{proved}");
}

/// Of a matrix product no other split is allowed forward than those along samples, rows and columns.
#[test]
fn rules_of_products_allow_nothing_else() {
    let mut products = 0;
    for node in nodes().filter(|node| node.signature.features() == Features::Rows) {
        let without_bias = node.parameters.len() == 1;
        let derived: Vec<[AxisLayout; 3]> = (0..node.signature.indices.len())
            .filter(|index| is_served(&node.signature, *index))
            .filter_map(|index| {
                let of = node.signature.layouts(Pass::Forward, index)?;
                Some([one(&of.parameters)?, one(&of.inputs)?, one(&of.made)?])
            })
            .chain([[AxisLayout::Replicated; 3]])
            .collect();
        let work = NodeWork::Layer(THIS, Pass::Forward);
        let rule = Rule { work: &work, axis: Axis::Data, by_channel: false };
        for weight in LAYOUTS {
            for (input, output) in LAYOUTS.into_iter().flat_map(|input| LAYOUTS.map(|output| (input, output))) {
                // Columns of a layer with biases are refused where the graph is made.
                if weight == COLUMNS && !without_bias {
                    continue;
                }
                let takes = [(Tensor::Weight, weight), (Tensor::Activation(LayerId(0)), input)];
                let allowed = rule.allows(&takes, &[(Tensor::Activation(THIS), output)]);
                let follows = derived.contains(&[weight, input, output]);
                assert_eq!(allowed, follows, "{}: {weight}, {input} gives {output}", node.layer);
            }
        }
        products += 1;
    }
    assert!(products > 100, "{products}");
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
