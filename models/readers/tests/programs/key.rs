//! Tests that keys of chains read back as the layers that they name.

use std::sync::Arc;

use lockstep_models::{Job, Pass};

use super::*;

/// Every chain of every model of the zoo, whole and in parts, reads back with the same work.
#[test]
fn printed_values_parse_back() {
    let mut kinds = std::collections::BTreeSet::new();
    for name in zoo() {
        let name = name.split([' ', ',']).next().expect("a name");
        let model = Arc::new(load_model(name).expect("in the zoo"));
        for strategy in ["ssgd", "model-parallel", "megatron"] {
            let strategy = strategy.parse().expect("a strategy");
            let Ok(program) = (Job { strategy, ..Job::new(model.clone(), 2, 4) }).program() else { continue };
            for chain in 0..program.chains.len() {
                let key = chain_key(&program, chain);
                let nodes = read_key(&key).unwrap_or_else(|| panic!("{key}"));
                assert_eq!(key_of(&nodes.iter().collect::<Vec<_>>()), key);
                for (node, id) in nodes.iter().zip(&program.chains[chain]) {
                    let own = program.model.node(*id);
                    kinds.insert(own.layer.kind());
                    for pass in [Pass::Forward, Pass::BackwardData, Pass::BackwardWeight] {
                        assert_eq!(node.work(pass, 3), own.work(pass, 3), "{key}");
                    }
                }
            }
        }
    }
    assert!(kinds.len() >= 12, "{kinds:?}");
    for other in [
        "",
        "conv2d",
        "conv2d 1x2>3x4x5",
        "spell 1x1x1>1x1x1",
        "relu 1x1x1>2x1x1",
        "relu 0x0x0>0x0x0 ",
        // Dimensions with names, of which no profile has any.
        "relu position5*feature3>position5*feature3",
        "relu row1*row2*row3*row4*row5>row1*row2*row3*row4*row5",
        "concat position5,position5>position10",
        "concat 4294967295x1x1,4294967295x1x1>1x1x1",
        "flatten 65536x65536x1>1x1x1",
        "conv2d 4x8x8>4x8x8 k3x3 s1x1 p1x1 d1x1 g0",
        "conv2d 4x8x8>4x8x8 k0x0 s1x1 p1x1 d1x1 g1",
        "dense 4x1x1>0x1x1",
        "merged_cross_entropy 5x7>1x1x1 classes3 parts4294967295",
        "partial_softmax 5x0>5x7 classes3",
        "relu 5x0>5x0",
        "relu 0x2x2>0x2x2",
    ] {
        assert!(read_key(other).is_none(), "{other}");
    }
}
