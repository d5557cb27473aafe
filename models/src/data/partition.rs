//! `Partition`: assigns the samples of a set to the memories of ranks, and sets how often they are shuffled.
//!
//! Nodes are divided into groups, and each group owns the whole set (Kumar et al. 2018 §4.1): with one group every
//! node holds 1/N of it, with as many groups as nodes each node holds all. The ranks of a node hold equal parts of
//! what the node holds.

use lockstep_topology::InputError;

use crate::RankRange;

/// The distribution of samples over memories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The ranks of each group, in order; together all workers.
    pub groups: Vec<RankRange>,
    /// The ranks of each node, where a node's first rank takes the batches of all of them and so holds their samples;
    /// empty where each rank holds its own.
    pub nodes: Vec<RankRange>,
    /// Steps from one shuffle to the next; `None`: samples stay where they are.
    pub shuffle_every: Option<u32>,
    /// Bytes that a rank sends at a time in a shuffle, on average.
    pub chunk: u64,
    /// Bytes of a sample, on average, below which a shuffle packs what goes to a rank into one message. Longer
    /// samples are sent one by one from their old position to their new one.
    pub packed_below: u64,
}

impl Partition {
    /// Large enough for whole messages to many ranks, and little memory compared with a part.
    pub const CHUNK: u64 = 16 << 20;

    /// From this size on a message costs less than a copy on either side.
    pub const PACKED_BELOW: u64 = 32 << 10;

    /// Divides the nodes, whose numbers of ranks are `nodes`, into `groups` groups of neighbours.
    ///
    /// ```
    /// # use lockstep_models::Partition;
    /// // Four nodes of two ranks: two groups of two nodes each hold the set.
    /// let partition = Partition::new(&[2, 2, 2, 2], 2, Some(100)).unwrap();
    /// assert_eq!(partition.groups.iter().map(|group| group.first).collect::<Vec<_>>(), [0, 4]);
    /// assert!(Partition::new(&[2, 2, 2, 2], 3, None).is_err());
    /// ```
    ///
    /// # Errors
    /// Groups that do not divide the nodes.
    pub fn new(nodes: &[u32], groups: u32, shuffle_every: Option<u32>) -> Result<Partition, InputError> {
        let count = nodes.len() as u32;
        if groups == 0 || !count.is_multiple_of(groups) {
            let message = format!("groups do not divide {count} nodes: use a divisor of {count}, or other nodes");
            return Err(InputError::flag("sampling", format!("groups={groups}"), message));
        }
        let mut first = 0;
        let ranges = nodes.chunks((count / groups) as usize).map(|nodes| {
            let count = nodes.iter().sum();
            first += count;
            RankRange { first: first - count, count }
        });
        let (chunk, packed_below) = (Partition::CHUNK, Partition::PACKED_BELOW);
        Ok(Partition { groups: ranges.collect(), nodes: Vec::new(), shuffle_every, chunk, packed_below })
    }

    /// The group that `rank` is in, by number.
    ///
    /// # Panics
    /// When it is in none.
    pub fn group_of(&self, rank: u32) -> usize {
        self.groups.iter().position(|group| group.contains(rank)).expect("every worker is in a group")
    }

    /// The workers whose samples `rank` holds: itself, all of its node, or none.
    ///
    /// ```
    /// # use lockstep_models::{Partition, RankRange};
    /// let partition = Partition::new(&[2, 2], 1, None).unwrap();
    /// let nodes = vec![RankRange { first: 0, count: 2 }, RankRange { first: 2, count: 2 }];
    /// let by_first = Partition { nodes, ..partition.clone() };
    /// let held = |by: &Partition| (0..4).map(|rank| by.held_by(rank).count).collect::<Vec<_>>();
    /// assert_eq!((held(&partition), held(&by_first)), (vec![1, 1, 1, 1], vec![2, 0, 2, 0]));
    /// ```
    pub fn held_by(&self, rank: u32) -> RankRange {
        let own = RankRange { first: rank, count: 1 };
        match self.nodes.iter().find(|node| node.contains(rank)) {
            None => own,
            Some(node) if node.first == rank => *node,
            Some(node) => RankRange { first: node.first + node.count, count: 0 },
        }
    }

    /// How many shuffles come before step `step`.
    pub fn shuffles_before(&self, step: u64) -> u64 {
        self.shuffle_every.map_or(0, |every| step / u64::from(every))
    }
}
