//! A collective, an algorithm, a group and a buffer that fit together: where lanes come from.
//!
//! Validated once, cheap to clone, and never expanded: its size does not grow with members (node sizes and the counts of
//! an alltoallv apart), since a ring of 4,096 members is 33 million messages.

use std::sync::Arc;

use super::algorithm::Algorithm;
use super::checker::Contract;
use super::group::Group;
use super::hierarchical::{InNode, SMALL_BYTES};
use super::kernel::Kernel;
use super::lane::Lane;
use super::meaning::Collective;
use super::method::Method;
use super::shard::Split;
use super::step::Action;
use crate::InputError;
use crate::symmetry::Permutations;

/// Bytes of an element wherever bytes are counted: a 32-bit float.
const ELEMENT_BYTES: u64 = 4;

/// A validated schedule: for each member and index, a [`Lane`].
///
/// ```
/// use lockstep_topology::{Algorithm, Collective, Group, Schedule, check};
/// let schedule = Schedule::new(&Collective::AllReduce, &Algorithm::Ring, &Group::flat(4), 1000, 0)?;
/// assert_eq!(schedule.lane(0, 0).count(), 12); // 2(4 − 1) messages sent and as many received
/// assert_eq!(schedule.bytes_sent(0), 2 * 3 * 1000 / 4 * 4); // 2n(p − 1)/p elements of four bytes
/// let sums = check(&schedule).expect("a ring adds every contribution exactly once");
/// assert_eq!(sums.ranges().count(), 4);
/// # Ok::<(), lockstep_topology::InputError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Schedule {
    collective: Collective,
    members: u32,
    method: Method,
    split: Split,
    /// The nodes of a hierarchical schedule, whose method is among their leaders.
    nodes: Option<Nodes>,
    buffered: bool,
}

/// Rounds of a [`Schedule::pipeline`] that do the same with the blocks that go round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// How many.
    pub rounds: u32,
    /// What is done with the block that comes.
    pub action: Action,
    /// Elements of a block, but for the longer ones.
    pub elements: u64,
    /// So many blocks, the first ones, are an element longer.
    pub longer: u32,
    /// In round k member m takes in block m − `back` − k, counted round the ring.
    pub back: u32,
}

impl Phase {
    /// Elements that `member` of `members` takes in in `round < rounds`.
    pub fn taken_in(&self, member: u32, round: u32, members: u32) -> u64 {
        let ahead = u64::from(member) + 2 * u64::from(members) - u64::from(self.back) - u64::from(round);
        self.elements + u64::from(ahead % u64::from(members) < u64::from(self.longer))
    }

    /// How many of the blocks that `member` of `members` takes in are longer: one of all does not come by.
    pub fn longer_taken_in(&self, member: u32, members: u32) -> u32 {
        self.longer - (self.taken_in(member, self.rounds, members) - self.elements) as u32
    }
}

/// Members on nodes.
#[derive(Debug, Clone)]
struct Nodes {
    starts: Arc<[u32]>,
    largest: u32,
    /// Whether members meet their leader directly.
    star: bool,
    /// Whether each member contributes, or the leader for its node.
    sums: bool,
}

impl Nodes {
    /// Rounds before and after those among the leaders, together.
    fn rounds(&self) -> u32 {
        let one_way = if self.star { (self.largest - 1).min(1) } else { self.largest - 1 };
        if self.sums { 2 * one_way } else { one_way }
    }
}

impl Schedule {
    /// Performs `collective` by `algorithm` in `group` on a buffer of `elements` (an alltoallv: on buffers of at least
    /// the longest row and column of its counts), in lanes of about `chunk` elements. `chunk` 0 is the algorithm's
    /// default: chunks of 64 Ki elements for pipelined-chain, multi-color and hierarchical, else one lane per root.
    ///
    /// # Errors
    ///
    /// An algorithm that cannot serve the collective or the group, with the cure.
    pub fn new(
        collective: &Collective,
        algorithm: &Algorithm,
        group: &Group,
        elements: u64,
        chunk: u64,
    ) -> Result<Schedule, InputError> {
        let members = group.members();
        if members == 0 || members > 1 << 30 {
            let message = "a collective needs 1 to 2^30 members";
            return Err(InputError::new("", format!("{members} members"), message));
        }
        let (flat, nodes) = match algorithm {
            Algorithm::Hierarchical(across) => (&**across, nodes(collective, algorithm, across, group, elements)?),
            flat => (flat, None),
        };
        let across = if nodes.is_some() { group.node_count() } else { members };
        let hierarchical = matches!(algorithm, Algorithm::Hierarchical(_));
        // Across nodes, or where each member is one, both sums are the same.
        let of_leaders = if hierarchical { &Collective::AllReduce } else { collective };
        // A single leader exchanges nothing, whatever number of servers there would be among several.
        let flat = match flat {
            Algorithm::ParameterServer { .. } if nodes.is_some() && across == 1 => &Algorithm::BinomialTree,
            flat => flat,
        };
        let method = Method::new(of_leaders, flat, across, elements)?;
        let method = if nodes.is_some() { method.nested() } else { method };
        let split = method.split(across, elements, chunk, hierarchical)?;
        let buffered = matches!(flat, Algorithm::Library(_));
        Ok(Schedule { collective: collective.clone(), members, method, split, nodes, buffered })
    }

    /// The collective it performs.
    pub fn collective(&self) -> &Collective {
        &self.collective
    }

    /// Members of the group.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// Elements of the buffer.
    pub fn elements(&self) -> u64 {
        self.split.elements
    }

    /// Members `0..contributors` contribute and get the result; a dedicated server, one of the last members, does not.
    pub fn contributors(&self) -> u32 {
        self.method.contributors(self.members)
    }

    /// Whether the buffer of `member` counts at the start of a sum: not that of a dedicated server, nor where nodes have one
    /// contribution in common that of a member which does not lead its node.
    pub fn contributes(&self, member: u32) -> bool {
        member < self.contributors() && self.leaders_alone().is_none_or(|starts| starts.binary_search(&member).is_ok())
    }

    /// The leaders, and the number of members, where leaders contribute for their nodes.
    fn leaders_alone(&self) -> Option<&Arc<[u32]>> {
        self.nodes.as_ref().filter(|nodes| !nodes.sums).map(|nodes| &nodes.starts)
    }

    /// Whether a send copies its range when it is posted, as a library does with small messages. Where it does not, the
    /// schedule itself leaves a sent range alone until it has been consumed.
    pub fn buffered_sends(&self) -> bool {
        self.buffered
    }

    /// Lanes of each member; there may be idle ones.
    pub fn lanes(&self) -> u32 {
        (self.split.groups * self.split.chunks) as u32
    }

    /// Lane `index < lanes()` of `member < members()`.
    pub fn lane(&self, member: u32, index: u32) -> Lane {
        let Some(nodes) = &self.nodes else {
            return Lane::new(self.method.kernel(member, self.members, index, &self.split), None);
        };
        let extent = self.split.extent(index);
        let (place, node) = InNode::new(&nodes.starts, (nodes.star, nodes.sums), member, (extent.start, extent.end));
        let kernel =
            if place.leads() { self.method.kernel(node, self.leaders(), index, &self.split) } else { Kernel::Idle };
        Lane::new(kernel, Some(place))
    }

    /// Lanes in flight on a member that keep the pipeline full, at least 1 and at most [`Schedule::lanes`]: those that
    /// start while the first one is on its way through a chain or tree, and two wherever one keeps the links busy.
    pub fn window(&self) -> u32 {
        let around = self.nodes.as_ref().map_or(0, Nodes::rounds);
        self.method.window(self.leaders()).saturating_add(around).min(self.lanes()).max(1)
    }

    /// Elements of the largest message of any lane: the scratch that a lane in flight needs.
    pub fn chunk_elements(&self) -> u64 {
        let across = self.method.largest_message(self.leaders(), &self.split);
        match &self.nodes {
            Some(nodes) if nodes.largest > 1 && self.split.chunks > 0 => {
                let extent = self.split.extent(0);
                across.max(extent.end - extent.start)
            }
            _ => across,
        }
    }

    /// Closed form: messages that `member` sends in all lanes. The table of formulas is `docs/collectives.md`.
    pub fn messages(&self, member: u32) -> u64 {
        (0..self.lanes()).map(|index| self.lane(member, index).messages()).sum()
    }

    /// Closed form: elements that `member` sends in all lanes (an alltoallv's own block included).
    pub fn elements_sent(&self, member: u32) -> u64 {
        (0..self.lanes()).map(|index| self.lane(member, index).elements_sent()).sum()
    }

    /// Closed form: bytes that `member` sends in all lanes, with elements of four bytes.
    pub fn bytes_sent(&self, member: u32) -> u64 {
        ELEMENT_BYTES * self.elements_sent(member)
    }

    /// Closed form: messages on the longest chain of dependent ones in a lane, the α of its latency. Nodes of unequal
    /// sizes, or fewer elements than members, may need fewer.
    pub fn rounds(&self) -> u32 {
        let around = self.nodes.as_ref().map_or(0, Nodes::rounds);
        self.method.rounds(self.leaders()) + around
    }

    /// The permutations of members that leave every lane as it is once its peers are renamed: same steps in the same
    /// order, and messages of the same lengths. They say nothing about which elements a message carries.
    ///
    /// ```
    /// # use lockstep_topology::{Algorithm, Collective, Group, Permutations, Schedule};
    /// let ring = |n| Schedule::new(&Collective::AllReduce, &Algorithm::Ring, &Group::flat(4), n, 0).unwrap();
    /// assert_eq!(ring(1000).symmetry(), Permutations::Rotations { unit: 1 });
    /// assert_eq!(ring(1001).symmetry(), Permutations::Identity); // one block is an element longer
    /// ```
    pub fn symmetry(&self) -> Permutations {
        let across = self.method.symmetry(self.leaders(), &self.split);
        let Some(nodes) = &self.nodes else { return across };
        let size = nodes.largest;
        let even = u64::from(size) * u64::from(self.leaders()) == u64::from(self.members);
        if even { across.of_blocks(size) } else { Permutations::Identity }
    }

    /// The rounds of a schedule in which every member, in one lane, sends a block to the next member and then takes one in
    /// from the member before, round after round. `None` for any other schedule, and where blocks are empty.
    pub fn pipeline(&self) -> Option<Vec<Phase>> {
        let one = self.leaders() == self.members && self.members > 1 && self.lanes() == 1;
        one.then(|| self.method.pipeline(self.members, &self.split)).flatten()
    }

    /// The same schedule on a buffer that is longer by as little as gives it the symmetry of its algorithm: all parts are
    /// then as long as the longest ones are here.
    pub fn padded(&self) -> Schedule {
        let elements = self.method.even_elements(self.leaders(), &self.split);
        Schedule { split: Split { elements, ..self.split }, ..self.clone() }
    }

    /// What the checker holds the lanes to.
    pub(super) fn contract(&self) -> Contract {
        Contract {
            collective: self.collective.clone(),
            members: self.members,
            contributors: self.contributors(),
            leaders: self.leaders_alone().cloned(),
            elements: self.split.elements,
            lanes: self.lanes(),
            buffered_sends: self.buffered,
        }
    }

    /// Members among which the method runs.
    fn leaders(&self) -> u32 {
        self.nodes.as_ref().map_or(self.members, |nodes| nodes.starts.len() as u32 - 1)
    }
}

/// The nodes of `group`, on which `algorithm` runs `across` the leaders; `None` where every member is a leader.
fn nodes(
    collective: &Collective,
    algorithm: &Algorithm,
    across: &Algorithm,
    group: &Group,
    elements: u64,
) -> Result<Option<Nodes>, InputError> {
    let refuse = |message: String| Err(InputError::new("", algorithm.to_string(), message));
    if !matches!(collective, Collective::AllReduce | Collective::AllReduceOfNodes) {
        return refuse(format!("serves allreduce, not {}: take `{across}` alone", collective.name()));
    }
    match across {
        Algorithm::Library(_) => return refuse(format!("a library sees to nodes itself: take `{across}` alone")),
        Algorithm::Hierarchical(_) => return refuse(format!("there are two levels: take `{across}`")),
        Algorithm::ParameterServer { servers, dedicated: true } => {
            return refuse(format!("leaders contribute for their nodes: take hierarchical:parameter-server:{servers}"));
        }
        _ => {}
    }
    let Some(starts) = group.starts() else { return Ok(None) };
    let sizes = starts.windows(2).map(|pair| pair[1] - pair[0]);
    if let Some(node) = sizes.clone().position(|size| size == 0) {
        return refuse(format!("node {node} has no member: leave it out of the group"));
    }
    let star = elements < SMALL_BYTES / ELEMENT_BYTES;
    let sums = matches!(collective, Collective::AllReduce);
    Ok(Some(Nodes { largest: sizes.max().unwrap_or(1), starts: Arc::clone(starts), star, sums }))
}
