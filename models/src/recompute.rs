//! `Recompute`: which activations are dropped after the forward pass and computed again for the backward pass (Chen et al.
//! 2016; Korthikanti et al. 2022 §5).

use std::fmt;
use std::str::FromStr;

use crate::Node;

/// Which activations are computed again: `none`, `full`, `full:every=2`, `selective`, `selective:layernorm+mlp`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Recompute {
    /// None: all that backward passes read is kept.
    #[default]
    None,
    /// Of each group of blocks all but its last output, as Megatron-LM's `--recompute-granularity full
    /// --recompute-method uniform`.
    Full {
        /// The number of neighbouring blocks in a group, at least one.
        every: u32,
    },
    /// The outputs of these modules, in the order of [`Module::ALL`].
    Selective(Vec<Module>),
}

/// A part of a transformer's block, as Megatron-LM's `--recompute-modules` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Module {
    /// The product of queries and keys, its softmax, and the product with the values.
    CoreAttention,
    /// The normalisations before the attention and before the multi-layer perceptron.
    LayerNorm,
    /// The multi-layer perceptron.
    Mlp,
}

impl Recompute {
    /// Itself, if anything is computed again.
    pub fn any(&self) -> Option<&Recompute> {
        Some(self).filter(|of| **of != Recompute::None)
    }
}

impl Module {
    /// All of them.
    pub const ALL: [Module; 3] = [Module::CoreAttention, Module::LayerNorm, Module::Mlp];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Module::CoreAttention => "core_attn",
            Module::LayerNorm => "layernorm",
            Module::Mlp => "mlp",
        }
    }

    /// Whether a layer of a block belongs to it.
    pub(crate) fn holds(self, node: &Node) -> bool {
        let part = node.name.rsplit('.').next().unwrap_or_default();
        match self {
            Module::CoreAttention => node.layer.kind() == "attention",
            Module::LayerNorm => ["attention_norm", "feed_forward_norm"].contains(&part),
            Module::Mlp => ["up", "gate", "activation", "gated", "down"].contains(&part),
        }
    }
}

/// Modules of Megatron-LM that dense decoders do not have.
const NOT_DENSE: [&str; 4] = ["moe_act", "moe", "shared_experts", "mla_up_proj"];

impl FromStr for Recompute {
    type Err = String;

    fn from_str(text: &str) -> Result<Recompute, String> {
        let (kind, settings) = text.split_once(':').map_or((text, None), |(kind, settings)| (kind, Some(settings)));
        match (kind, settings) {
            ("none", None) => Ok(Recompute::None),
            ("full", None) => Ok(Recompute::Full { every: 1 }),
            ("full", Some(settings)) => {
                let every = settings.strip_prefix("every=").and_then(|count| count.parse().ok());
                let every = every.filter(|count| *count > 0);
                every.map(|every| Recompute::Full { every }).ok_or_else(|| {
                    format!("full has no setting {settings:?}; there is: every=N, the blocks between kept activations")
                })
            }
            ("selective", None) => Ok(Recompute::Selective(vec![Module::CoreAttention])),
            ("selective", Some(names)) => {
                let mut modules = names.split('+').map(module).collect::<Result<Vec<_>, _>>()?;
                modules.sort_unstable();
                match modules.windows(2).find(|pair| pair[0] == pair[1]) {
                    Some(pair) => Err(format!("{} is given twice: leave one out", pair[0].name())),
                    None => Ok(Recompute::Selective(modules)),
                }
            }
            _ => {
                Err("must be none, full, full:every=N, or selective with modules such as selective:layernorm+mlp"
                    .into())
            }
        }
    }
}

fn module(name: &str) -> Result<Module, String> {
    let known = Module::ALL.map(Module::name).join(", ");
    let found = Module::ALL.into_iter().find(|module| module.name() == name);
    found.ok_or_else(|| match NOT_DENSE.contains(&name) {
        true => format!(
            "{name} is a module of mixtures of experts or latent attention, which no model here has; there are: {known}"
        ),
        false => format!("{name:?} is no module; there are: {known}, with + between them"),
    })
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Recompute::None => f.write_str("none"),
            Recompute::Full { every: 1 } => f.write_str("full"),
            Recompute::Full { every } => write!(f, "full:every={every}"),
            Recompute::Selective(modules) => {
                write!(f, "selective:{}", modules.iter().map(|module| module.name()).collect::<Vec<_>>().join("+"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_back() {
        let subsets = (1..8u32).map(|bits| Module::ALL.into_iter().filter(|of| bits >> *of as u32 & 1 == 1).collect());
        let full = [1, 2, 7].map(|every| Recompute::Full { every });
        for recompute in subsets.map(Recompute::Selective).chain(full).chain([Recompute::None]) {
            assert_eq!(recompute.to_string().parse(), Ok(recompute));
        }
        assert_eq!("selective".parse(), Ok(Recompute::Selective(vec![Module::CoreAttention])));
    }

    #[test]
    fn other_texts_are_refused_with_what_there_is() {
        for (text, says) in [
            ("all", "must be none, full"),
            ("full:every=0", "every=N"),
            ("full:3", "every=N"),
            ("none:x", "must be none"),
            ("selective:", "core_attn, layernorm, mlp"),
            ("selective:mlp+mlp", "mlp is given twice"),
            ("selective:moe_act", "mixtures of experts"),
            ("selective:norm", "core_attn, layernorm, mlp"),
        ] {
            let refused = text.parse::<Recompute>().unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }
}
