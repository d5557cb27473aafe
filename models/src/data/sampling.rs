//! Chooses how samples are drawn: by all ranks from one shuffle, by each node in its own order, or by each rank from
//! what it holds.

use std::fmt;
use std::str::FromStr;

use lockstep_topology::InputError;

use crate::Partition;

/// How the samples of a step are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sampling {
    /// One random order an epoch, divided among all ranks: each sample once (Goyal et al. 2017 §3, Remark 4).
    #[default]
    OneShuffle,
    /// Each node draws its samples at random with its own seed and divides them among its ranks (Kumar et al. 2018 §3):
    /// a sample may occur on several nodes in one epoch, or on none.
    PerNode,
    /// Each group of nodes holds the samples in its memory together, every rank draws at random from its own part, and
    /// at regular intervals of steps a group shuffles what it holds (Kumar et al. 2018 §4.1).
    Partitioned {
        /// Groups that each own the whole set.
        groups: u32,
        /// Steps from one shuffle to the next; `None`: samples stay where they are.
        shuffle_every: Option<u32>,
    },
}

impl Sampling {
    /// Whether ranks shuffle the samples in their memory.
    pub fn shuffles(self) -> bool {
        matches!(self, Sampling::Partitioned { shuffle_every: Some(_), .. })
    }

    /// Which rank holds which samples, where nodes have `node_sizes` of the `workers`.
    ///
    /// # Errors
    /// Groups that do not divide the nodes.
    pub fn partition(self, workers: u32, node_sizes: Option<&[u32]>) -> Result<Option<Partition>, InputError> {
        let Sampling::Partitioned { groups, shuffle_every } = self else { return Ok(None) };
        Partition::new(&self.pools(workers, node_sizes), groups, shuffle_every).map(Some)
    }

    /// How many of `workers` ranks draw from each pool, in rank order, where consecutive ranks are on nodes of
    /// `node_sizes` (without which all are on one). Ranks after the workers are servers, which draw nothing.
    ///
    /// ```
    /// # use lockstep_models::Sampling;
    /// assert_eq!(Sampling::OneShuffle.pools(6, Some(&[4, 2])), [6]);
    /// assert_eq!(Sampling::PerNode.pools(6, Some(&[4, 2])), [4, 2]);
    /// assert_eq!(Sampling::PerNode.pools(5, Some(&[4, 2])), [4, 1]);
    /// ```
    pub fn pools(self, workers: u32, node_sizes: Option<&[u32]>) -> Vec<u32> {
        let (false, Some(sizes)) = (self == Sampling::OneShuffle, node_sizes) else { return vec![workers] };
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
        match self {
            Sampling::OneShuffle => f.write_str("one-shuffle"),
            Sampling::PerNode => f.write_str("per-node"),
            Sampling::Partitioned { groups, shuffle_every } => {
                write!(f, "partitioned:groups={groups}")?;
                shuffle_every.map_or(Ok(()), |every| write!(f, ":shuffle-every={every}"))
            }
        }
    }
}

impl FromStr for Sampling {
    type Err = String;

    /// Reads `one-shuffle`, `per-node`, `partitioned`, `partitioned:groups=2:shuffle-every=100`.
    fn from_str(text: &str) -> Result<Sampling, String> {
        let mut parts = text.split(':');
        match parts.next() {
            Some("one-shuffle") if text == "one-shuffle" => Ok(Sampling::OneShuffle),
            Some("per-node") if text == "per-node" => Ok(Sampling::PerNode),
            Some("partitioned") => {
                let (mut groups, mut shuffle_every) = (1, None);
                for setting in parts {
                    let count = |text: &str| text.parse().ok().filter(|count: &u32| *count > 0);
                    match setting.split_once('=').map(|(key, value)| (key, count(value))) {
                        Some(("groups", Some(count))) => groups = count,
                        Some(("shuffle-every", Some(steps))) => shuffle_every = Some(steps),
                        _ => {
                            let cure = "write groups=2 or shuffle-every=100, each at least 1";
                            return Err(format!("{setting:?} is not a setting of partitioned: {cure}"));
                        }
                    }
                }
                Ok(Sampling::Partitioned { groups, shuffle_every })
            }
            _ => {
                let known = "one-shuffle, per-node or partitioned:groups=1:shuffle-every=100";
                Err(format!("{text:?}: unknown sampling: write {known}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_values_parse_back() {
        for text in ["one-shuffle", "per-node", "partitioned:groups=1", "partitioned:groups=4:shuffle-every=100"] {
            assert_eq!(text.parse::<Sampling>().map(|sampling| sampling.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("partitioned".parse(), Ok(Sampling::Partitioned { groups: 1, shuffle_every: None }));
        for (text, cure) in [
            ("per-rank", "partitioned:groups=1"),
            ("per-node:groups=2", "unknown sampling"),
            ("partitioned:groups=0", "at least 1"),
            ("partitioned:every=2", "shuffle-every=100"),
        ] {
            let error = text.parse::<Sampling>().unwrap_err();
            assert!(error.contains(cure), "{text}: {error}");
        }
    }
}
