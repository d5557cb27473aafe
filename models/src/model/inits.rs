//! Rules of a recipe for initial values, which replace what a model's file says of them.

use std::fmt;
use std::str::FromStr;

use super::{Init, LayerId, Model};
use crate::Layer;

/// How parameters start, by their place in the model; `None` leaves what the model's file says.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct InitRules {
    /// Weights of convolutions.
    pub convolution: Option<Init>,
    /// Those of 1×1 convolutions, where they differ (Iandola et al. 2016, §7.1).
    pub convolution_1x1: Option<Init>,
    /// Weights of dense layers.
    pub dense: Option<Init>,
    /// Those of the dense layer nearest to the loss, where they differ (Goyal et al. 2017, §5.1).
    pub last_dense: Option<Init>,
    /// Biases of convolutions and dense layers.
    pub bias: Option<f32>,
    /// γ of each residual block's last batch norm: with 0 every block starts as its shortcut (Goyal et al. 2017, §5.1).
    pub residual_gamma: Option<f32>,
}

impl fmt::Display for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Init::He => f.write_str("he"),
            Init::Xavier => f.write_str("xavier"),
            Init::Gaussian(deviation) => write!(f, "gaussian:{deviation}"),
            Init::Constant(value) => write!(f, "constant:{value}"),
        }
    }
}

impl FromStr for Init {
    type Err = String;

    fn from_str(text: &str) -> Result<Init, String> {
        let number = |text: &str| text.trim().parse().ok().filter(|number: &f32| number.is_finite());
        let read = match text.split_once(':') {
            None if text == "he" => Some(Init::He),
            None if text == "xavier" => Some(Init::Xavier),
            Some(("gaussian", deviation)) => {
                number(deviation).filter(|deviation| *deviation >= 0.0).map(Init::Gaussian)
            }
            Some(("constant", value)) => number(value).map(Init::Constant),
            _ => None,
        };
        read.ok_or_else(|| {
            format!("{text:?} is no initial value: write he, xavier, gaussian:DEVIATION or constant:VALUE")
        })
    }
}

impl Model {
    /// The same model with other initial values; a rule for what the model does not have changes nothing.
    ///
    /// ```
    /// # use lockstep_models::{Init, InitRules, Model};
    /// let rules = InitRules { residual_gamma: Some(0.0), ..InitRules::default() };
    /// let model = Model::load("resnet-50")?.with_inits(&rules);
    /// let zero = |p: &&lockstep_models::Parameter| p.name.ends_with("gamma") && p.init == Init::Constant(0.0);
    /// assert_eq!(model.layers().iter().flat_map(|node| &node.parameters).filter(zero).count(), 16);
    /// # Ok::<(), lockstep_topology::InputError>(())
    /// ```
    #[must_use]
    pub fn with_inits(mut self, rules: &InitRules) -> Model {
        let blocks = self.block_ends();
        let last_dense = self.nodes.iter().rposition(|node| matches!(node.layer, Layer::Dense(_)));
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let weight = match &node.layer {
                Layer::Conv2d(conv) if conv.kernel == (1, 1) => rules.convolution_1x1.or(rules.convolution),
                Layer::Conv2d(_) => rules.convolution,
                Layer::Dense(_) if Some(index) == last_dense => rules.last_dense.or(rules.dense),
                Layer::Dense(_) => rules.dense,
                Layer::BatchNorm(_) if blocks.contains(&LayerId(index as u32)) => {
                    rules.residual_gamma.map(Init::Constant)
                }
                _ => None,
            };
            let bias = rules.bias.filter(|_| matches!(node.layer, Layer::Conv2d(_) | Layer::Dense(_)));
            for (position, parameter) in node.parameters.iter_mut().enumerate() {
                let rule = if position == 0 { weight } else { bias.map(Init::Constant) };
                parameter.init = rule.unwrap_or(parameter.init);
            }
        }
        self
    }

    /// The batch norms that end a residual block's branch: of each addition's inputs the one with the most layers before it,
    /// if it is a batch norm; a projection's is on the shorter way.
    fn block_ends(&self) -> Vec<LayerId> {
        let mut depths: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            depths.push(node.inputs.iter().map(|input| depths[input.index()] + 1).max().unwrap_or(0));
        }
        let additions = self.nodes.iter().filter(|node| node.layer == Layer::Add);
        let deepest = additions.filter_map(|node| node.inputs.iter().max_by_key(|input| depths[input.index()]));
        deepest.filter(|id| matches!(self.node(**id).layer, Layer::BatchNorm(_))).copied().collect()
    }

    /// How the model starts, in words: `weight he ×53, gaussian:0.01 ×1; bias 0 ×1; gamma 0 ×16, 1 ×37; beta 0 ×53`.
    pub fn inits(&self) -> String {
        let mut kinds: Vec<(String, Vec<(String, u32)>)> = Vec::new();
        for parameter in self.nodes.iter().flat_map(|node| &node.parameters) {
            let kind = parameter.name.rsplit('.').next().unwrap_or_default();
            let init = match parameter.init {
                Init::Constant(value) => value.to_string(),
                init => init.to_string(),
            };
            let place = kinds.iter().position(|(name, _)| name == kind).unwrap_or_else(|| {
                kinds.push((kind.to_owned(), Vec::new()));
                kinds.len() - 1
            });
            let found = &mut kinds[place].1;
            match found.iter_mut().find(|(name, _)| *name == init) {
                Some((_, count)) => *count += 1,
                None => found.push((init, 1)),
            }
        }
        let list = |found: &[(String, u32)]| {
            found.iter().map(|(init, count)| format!("{init} ×{count}")).collect::<Vec<_>>().join(", ")
        };
        kinds.iter().map(|(kind, found)| format!("{kind} {}", list(found))).collect::<Vec<_>>().join("; ")
    }
}
