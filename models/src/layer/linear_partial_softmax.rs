//! Defines what a rank computes of an output layer with its loss whose classes ranks share: the scores of its classes, and what a
//! partial softmax makes of them. The scores of a batch are never in memory at once. It occurs only in the part of a model that a
//! rank holds.

use super::linear::features_of_positions;
use super::partial_softmax::PARTIAL_NUMBERS;
use super::*;

/// Of some of the `classes` classes.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearPartialSoftmax {
    /// The layer of these classes alone.
    pub own: LinearCrossEntropy,
    /// Of the whole loss: classes beyond them are padding, and do not count.
    pub classes: u32,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    reads_output: true,
    reads_labels: true,
    keeps_no_scores: true,
    family: "dense",
    ..LayerKind::new("linear_partial_softmax", |of| {
        // Costs are those of the rank's own classes.
        let Layer::LinearCrossEntropy(own) = (linear_cross_entropy::KIND.read)(of)? else {
            return Err(of.missing("classes", "the classes of a rank"));
        };
        let classes = own.out_features;
        Ok(Layer::LinearPartialSoftmax(LinearPartialSoftmax { own, classes }))
    })
};

impl OfKind for LinearPartialSoftmax {
    fn kind(&self) -> &'static LayerKind {
        &KIND
    }
}

impl LayerRule for LinearPartialSoftmax {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let features = features_of_positions(inputs[0], "put a linear layer there")?;
        let mut of = Signature::of_places(inputs[0], IndexUse::Free);
        let part = of.index(1, IndexUse::Free);
        let sizes = [features, self.own.out_features, PARTIAL_NUMBERS];
        let [i, o, numbers] = sizes.map(|size| of.index(size.into(), IndexUse::Whole));
        of.inputs[0].push((i, Dimension::Feature));
        of.output.extend([(part, Dimension::Feature), (numbers, Dimension::Feature)]);
        of.parameters = vec![vec![(part, Dimension::Output), (o, Dimension::Output), (i, Dimension::Input)]];
        if self.own.bias {
            of.parameters.push(vec![(part, Dimension::Output), (o, Dimension::Output)]);
        }
        Ok(of)
    }

    fn settings(&self) -> String {
        format!("{}, classes = {}", self.own.settings(), self.classes)
    }

    fn cost_settings(&self) -> String {
        self.own.cost_settings()
    }

    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        self.own.parameters(inits)
    }

    fn classes(&self, _: Shape) -> u32 {
        self.own.out_features
    }

    fn tie(&self) -> Option<&str> {
        self.own.tie()
    }

    fn product(&self, of: &Node) -> Option<MatrixProduct> {
        self.own.product(of)
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        self.own.flops(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phase;

    /// Each task of a backward pass computes the scores; in training the forward pass of a part does so too, the whole layer's not.
    #[test]
    fn scores_are_counted_as_often_as_they_are_computed() {
        let input = Shape::new(&[(Dimension::Position, 16), (Dimension::Feature, 8)]);
        let own = LinearCrossEntropy { out_features: 20, bias: false, tie: None, soft_cap: None };
        let part = LinearPartialSoftmax { own: own.clone(), classes: 40 };
        let products = |layer: Layer| {
            let node = Node::alone(layer, vec![input]).expect("a layer");
            let phases = [Phase::Forward, Phase::Evaluate, Phase::Backward, Phase::BackwardData, Phase::BackwardWeight];
            phases.map(|phase| node.flops(phase, 3) / (2.0 * 3.0 * 16.0 * 8.0 * 20.0))
        };
        assert_eq!(products(Layer::LinearCrossEntropy(own)), [0.0, 1.0, 3.0, 2.0, 2.0]);
        assert_eq!(products(Layer::LinearPartialSoftmax(part)), [1.0, 1.0, 3.0, 2.0, 2.0]);
    }
}
