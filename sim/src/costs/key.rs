//! The key of a chain's measured costs: its layers with their shapes and settings as text, and the layers again from that text.
//!
//! `conv2d 1x28x28>32x24x24 k5x5 s1x1 p0x0 d1x1 g1 bias + relu 32x24x24>32x24x24`

use std::fmt::Write;

use lockstep_models::{
    BatchNorm, Conv2d, Dense, Dropout, Layer, LocalResponseNorm, Node, Pool2d, PoolKind, Program, Scale, Shape,
};

/// The layers of a chain with their shapes and settings, whatever they are called: the key of measured costs.
pub fn chain_key(program: &Program, chain: usize) -> String {
    let nodes: Vec<&Node> = program.chains[chain].iter().map(|id| program.model.node(*id)).collect();
    key_of(&nodes)
}

/// The key of these layers.
pub(super) fn key_of(nodes: &[&Node]) -> String {
    let mut key = String::new();
    for node in nodes {
        if !key.is_empty() {
            key.push_str(" + ");
        }
        key.push_str(node.layer.kind());
        for (position, shape) in node.input_shapes.iter().enumerate() {
            let _ = write!(key, "{}{}", if position == 0 { ' ' } else { ',' }, size(shape));
        }
        let _ = write!(key, ">{}", size(&node.output));
        let _ = match &node.layer {
            Layer::Conv2d(c) => write!(
                key,
                " k{}x{} s{}x{} p{}x{} d{}x{} g{}{}",
                c.kernel.0,
                c.kernel.1,
                c.stride.0,
                c.stride.1,
                c.padding.0,
                c.padding.1,
                c.dilation.0,
                c.dilation.1,
                c.groups,
                if c.bias { " bias" } else { "" }
            ),
            Layer::Dense(dense) if dense.bias => write!(key, " bias"),
            Layer::Scale(scale) if scale.bias => write!(key, " bias"),
            // An exponent of 0.75 takes two roots, any other a power.
            Layer::LocalResponseNorm(norm) => write!(key, " size{} beta{}", norm.size, norm.beta),
            Layer::Pool2d(p) => write!(
                key,
                " {:?} k{}x{} s{}x{} p{}x{}{}",
                p.kind,
                p.kernel.0,
                p.kernel.1,
                p.stride.0,
                p.stride.1,
                p.padding.0,
                p.padding.1,
                if p.ceil { " ceil" } else { "" }
            ),
            _ => Ok(()),
        };
    }
    key
}

fn size(shape: &Shape) -> String {
    format!("{}x{}x{}", shape.channels, shape.height, shape.width)
}

/// The layers that a key tells of; `None` where it is of another form. What no key says (a rate of dropout) is as usual.
pub(super) fn read_key(key: &str) -> Option<Vec<Node>> {
    key.split(" + ").map(read_layer).collect()
}

fn read_layer(text: &str) -> Option<Node> {
    let mut words = text.split(' ');
    let (kind, shapes) = (words.next()?, words.next()?);
    let (inputs, output) = shapes.split_once('>')?;
    let inputs: Vec<Shape> = inputs.split(',').map(read_size).collect::<Option<_>>()?;
    let output = read_size(output)?;
    let words: Vec<&str> = words.collect();
    let flag = |name: &str| words.contains(&name);
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
    let pair = |name: &str| -> Option<(u32, u32)> {
        let (rows, columns) = words.iter().filter_map(|word| word.strip_prefix(name)?.split_once('x')).next()?;
        Some((rows.parse().ok()?, columns.parse().ok()?))
    };
    let pool = |kind: PoolKind| {
        let (kernel, stride, padding) = (pair("k")?, pair("s")?, pair("p")?);
        Some(Layer::Pool2d(Pool2d { kind, kernel, stride, padding, ceil: flag("ceil") }))
    };
    let layer = match kind {
        "conv2d" => Layer::Conv2d(Conv2d {
            out_channels: output.channels,
            kernel: pair("k")?,
            stride: pair("s")?,
            padding: pair("p")?,
            dilation: pair("d")?,
            groups: value("g")?.parse().ok()?,
            bias: flag("bias"),
        }),
        "dense" => Layer::Dense(Dense { out_features: output.channels, bias: flag("bias") }),
        "scale" => Layer::Scale(Scale { bias: flag("bias") }),
        "batch_norm" => Layer::BatchNorm(BatchNorm { epsilon: 1e-5, momentum: 0.9 }),
        "local_response_norm" => {
            let (size, beta) = (value("size")?.parse().ok()?, value("beta")?.parse().ok()?);
            Layer::LocalResponseNorm(LocalResponseNorm { size, alpha: 1e-4, beta, k: 1.0 })
        }
        "max_pool" => pool(PoolKind::Max)?,
        "average_pool" => pool(PoolKind::Average)?,
        "relu" => Layer::Relu,
        "sigmoid" => Layer::Sigmoid,
        "tanh" => Layer::Tanh,
        "dropout" => Layer::Dropout(Dropout { rate: 0.5 }),
        "global_pool" => Layer::GlobalPool,
        "add" => Layer::Add,
        "concat" => Layer::Concat,
        "flatten" => Layer::Flatten,
        "softmax_cross_entropy" => Layer::SoftmaxCrossEntropy,
        "logistic_cross_entropy" => Layer::LogisticCrossEntropy,
        _ => return None,
    };
    Node::alone(layer, inputs).ok().filter(|node| node.output == output)
}

fn read_size(text: &str) -> Option<Shape> {
    let mut sizes = text.split('x').map(|size| size.parse().ok());
    let mut next = || sizes.next().flatten();
    Some(Shape { channels: next()?, height: next()?, width: next()? })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_models::{Job, Model, Pass};

    use super::*;

    /// Every chain of every model of the zoo, whole and in parts, reads back with the same work.
    #[test]
    fn what_is_written_is_read() {
        let mut kinds = std::collections::BTreeSet::new();
        for name in Model::zoo() {
            let name = name.split([' ', ',']).next().expect("a name");
            let model = Arc::new(Model::load(name).expect("in the zoo"));
            for strategy in ["ssgd", "model-parallel"] {
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
}
