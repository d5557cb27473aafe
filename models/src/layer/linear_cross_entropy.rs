//! Defines the output layer of a decoder with its loss in one: a linear layer at each position, and softmax cross-entropy of its
//! scores against the labels. The scores of a batch are never in memory at once.

use super::conv2d::weight_and_bias;
use super::linear::{features_of_positions, out_features};
use super::softmax_cross_entropy::SoftmaxCrossEntropy;
use super::*;

/// Scores `x · wᵀ + b` of each class at each position, weight `[out_features, in_features]`, and their loss as of
/// [`Layer::SoftmaxCrossEntropy`].
#[derive(Debug, Clone, PartialEq)]
pub struct LinearCrossEntropy {
    /// Classes: the size of the vocabulary.
    pub out_features: u32,
    /// Whether each class has a bias.
    pub bias: bool,
    /// The embedding whose vectors are its weight too, by its name in the model.
    pub tie: Option<String>,
    /// The bound c that scores s approach, as c · tanh(s / c) (Gemma 2).
    pub soft_cap: Option<f32>,
}

pub(super) const KIND: LayerKind = LayerKind {
    is_loss: true,
    keeps_no_scores: true,
    loss_in_backward: true,
    input_use: InputUse::Always,
    family: "dense",
    keys: &["out_features", "bias", "tie", "soft_cap", "loss_weight", "weight_init", "bias_init"],
    ..LayerKind::new("linear_cross_entropy", |of| {
        let tie = of.word("tie")?.map(str::to_owned);
        Ok(Layer::LinearCrossEntropy(LinearCrossEntropy {
            out_features: out_features(of, "the size of the vocabulary, e.g. out_features = 50257")?,
            bias: of.boolean("bias")?.unwrap_or(false),
            tie,
            soft_cap: of.number("soft_cap")?,
        }))
    })
};

impl Layer {
    /// The output layer that it is, with its loss; `None` of other layers.
    pub fn output_layer(&self) -> Option<&LinearCrossEntropy> {
        if let Layer::LinearCrossEntropy(output) = self { Some(output) } else { None }
    }
}

impl LayerRule for LinearCrossEntropy {
    /// Each score needs all features of its position, and a loss all scores.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let features = features_of_positions(inputs[0], "put a dense layer and softmax_cross_entropy there")?;
        if self.out_features < 2 {
            return Err(format!("out_features is {}: a loss needs two classes or more", self.out_features));
        }
        if let (Some(tie), true) = (&self.tie, self.bias) {
            return Err(format!("has a bias beside the weight of {tie}: give it bias = false"));
        }
        if let Some(cap) = self.soft_cap.filter(|cap| !(*cap > 0.0 && cap.is_finite())) {
            return Err(format!("soft_cap is {cap}: it must be positive, or left out"));
        }
        let mut of = Signature::of_places(inputs[0], IndexUse::Whole);
        of.output.truncate(1);
        let [i, one] = [features, 1].map(|size| of.index(size.into(), IndexUse::Whole));
        let o = of.index(self.out_features.into(), IndexUse::Merged);
        of.inputs[0].push((i, Dimension::Feature));
        of.output.push((one, Dimension::Feature));
        of.parameters = vec![vec![(o, Dimension::Output), (i, Dimension::Input)]];
        if self.bias {
            of.parameters.push(vec![(o, Dimension::Output)]);
        }
        Ok(of)
    }

    fn settings(&self) -> String {
        let tie = self.tie.as_ref().map_or_else(String::new, |tie| format!(", tie = {tie:?}"));
        let cap = self.soft_cap.map_or_else(String::new, |cap| format!(", soft_cap = {cap:?}"));
        format!(", out_features = {}, bias = {}{tie}{cap}", self.out_features, self.bias)
    }

    fn cost_settings(&self) -> String {
        let cap = if self.soft_cap.is_some() { " cap" } else { "" };
        format!(" classes{} transposed{cap}", self.out_features)
    }

    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        weight_and_bias(self.bias, inits)
    }

    fn in_parts(&self, _: Shape, parts: u32) -> Option<(Layer, Layer)> {
        let classes = self.out_features;
        let own = LinearCrossEntropy { out_features: classes.div_ceil(parts), ..self.clone() };
        let part = Layer::LinearPartialSoftmax(LinearPartialSoftmax { own, classes });
        Some((part, Layer::MergedCrossEntropy(MergedCrossEntropy { classes, parts })))
    }

    fn tie(&self) -> Option<&str> {
        self.tie.as_deref()
    }

    fn classes(&self, _: Shape) -> u32 {
        self.out_features
    }

    fn labels(&self, input: Shape) -> Option<SampleTensor> {
        SoftmaxCrossEntropy.labels(input)
    }

    fn product(&self, of: &Node) -> Option<MatrixProduct> {
        let (input, outputs) = (of.input_shapes[0], f64::from(self.out_features));
        let (inputs, places) = (f64::from(input.features()), input.places() as f64);
        Some(MatrixProduct { outputs, inputs, kernel: 1.0, groups: 1.0, places })
    }

    /// A product in each pass.
    fn flops(&self, of: &Node) -> [f64; 3] {
        [2.0 * of.input_elements() * f64::from(self.out_features); 3]
    }
}
