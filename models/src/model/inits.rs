//! Applies a recipe's rules for initial values to a model, and describes how a model starts.

use std::collections::BTreeSet;

use super::{Init, InitRules, LayerId, Model};
use crate::Layer;

impl Model {
    /// The same model with other initial values; a rule for a layer that the model lacks has no effect.
    ///
    /// ```
    /// # use lockstep_models::{Init, InitRules, random_model};
    /// let rules = InitRules { bias: Some(0.5), ..InitRules::default() };
    /// let models: Vec<_> = (0..20).map(|seed| random_model(seed, false).with_inits(&rules)).collect();
    /// let mut parameters = models.iter().flat_map(|model| model.layers()).flat_map(|node| &node.parameters);
    /// assert!(parameters.any(|parameter| parameter.name.ends_with("bias") && parameter.init == Init::Constant(0.5)));
    /// ```
    #[must_use]
    pub fn with_inits(mut self, rules: &InitRules) -> Model {
        let blocks = self.block_ends();
        let mut followed = BTreeSet::new();
        let mut last: Vec<bool> = self.nodes.iter().rev().map(|node| followed.insert(node.layer.kind())).collect();
        last.reverse();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let ends_block = blocks.contains(&LayerId(index as u32));
            let weight = node.layer.rule().weight_rule(rules, last[index], ends_block);
            let bias = rules.bias.filter(|_| node.is_product());
            for (position, parameter) in node.parameters.iter_mut().enumerate() {
                let rule = if position == 0 { weight } else { bias.map(Init::Constant) };
                parameter.init = rule.unwrap_or(parameter.init);
            }
        }
        self
    }

    /// The batch norms that end a residual block's branch: of each addition's inputs the one with the most layers
    /// before it, if it is a batch norm; a projection's is on the shorter path.
    fn block_ends(&self) -> Vec<LayerId> {
        let mut depths: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            depths.push(node.inputs.iter().map(|input| depths[input.index()] + 1).max().unwrap_or(0));
        }
        let additions = self.nodes.iter().filter(|node| node.layer == Layer::Add);
        let deepest = additions.filter_map(|node| node.inputs.iter().max_by_key(|input| depths[input.index()]));
        deepest.filter(|id| self.node(**id).statistics.is_some()).copied().collect()
    }

    /// Describes how the model starts: `weight he ×53, gaussian:0.01 ×1; bias 0 ×1; gamma 0 ×16, 1 ×37; beta 0 ×53`.
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
