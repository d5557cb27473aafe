//! Who draws samples together: all ranks from one shuffle, or each node from an order of its own.

use std::fmt;
use std::str::FromStr;

/// How the samples of a step are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sampling {
    /// One random order an epoch, divided among all ranks: each sample once (Goyal et al. 2017 §3, Remark 4).
    #[default]
    OneShuffle,
    /// Each node takes its samples at random with a seed of its own and divides them among its ranks (Kumar et al. 2018 §3):
    /// a sample may come on several nodes in one epoch, or on none.
    PerNode,
}

impl Sampling {
    /// How many of `workers` ranks draw from each pool, in rank order, where consecutive ranks lie on nodes of `node_sizes`
    /// (without which all lie on one). Ranks behind the workers are servers, which draw nothing.
    ///
    /// ```
    /// # use lockstep_models::Sampling;
    /// assert_eq!(Sampling::OneShuffle.pools(6, Some(&[4, 2])), [6]);
    /// assert_eq!(Sampling::PerNode.pools(6, Some(&[4, 2])), [4, 2]);
    /// assert_eq!(Sampling::PerNode.pools(5, Some(&[4, 2])), [4, 1]);
    /// ```
    pub fn pools(self, workers: u32, node_sizes: Option<&[u32]>) -> Vec<u32> {
        let (Sampling::PerNode, Some(sizes)) = (self, node_sizes) else { return vec![workers] };
        let mut left = workers;
        let mut pools = Vec::with_capacity(sizes.len());
        for size in sizes {
            let here = left.min(*size);
            left -= here;
            pools.extend((here > 0).then_some(here));
        }
        pools
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sampling::OneShuffle => "one-shuffle",
            Sampling::PerNode => "per-node",
        })
    }
}

impl FromStr for Sampling {
    type Err = String;

    fn from_str(text: &str) -> Result<Sampling, String> {
        match text {
            "one-shuffle" => Ok(Sampling::OneShuffle),
            "per-node" => Ok(Sampling::PerNode),
            _ => Err(format!("{text:?}: unknown sampling: write one-shuffle or per-node")),
        }
    }
}
