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
    for other in ["", "conv2d", "conv2d 1x2>3x4x5", "spell 1x1x1>1x1x1", "relu 1x1x1>2x1x1", "relu 0x0x0>0x0x0 "] {
        assert!(read_key(other).is_none(), "{other}");
    }
}
