//! `Schedule`: combines a collective, an algorithm, a group and a buffer that fit together, and yields lanes.
//!
//! Validated once, cheap to clone, and never expanded: its size does not grow with members (except for node sizes and
//! the counts of an alltoallv), since a ring of 4,096 members is 33 million messages.

use std::sync::Arc;

use super::algorithm::{Algorithm, Call};
use super::algorithms::lanes;
use super::contract::Contract;
use super::group::Group;
use super::lane::{Lane, Sent};
use super::lanes::Lanes;
use super::meaning::Collective;
use super::phase::PipelinePhase;
use super::shard::Split;
use crate::symmetry::Permutations;
use crate::{Bytes, Dtype, InputError};

/// Bytes of a chunk of a pipelined algorithm, if the caller names none.
const PIPELINE_CHUNK_BYTES: u64 = 256 << 10;

/// A validated schedule: for each member and index, a [`Lane`].
///
/// ```
/// use lockstep_topology::{Algorithm, Collective, Group, Schedule, check};
/// let schedule = Schedule::new(&Collective::AllReduce, &Algorithm::ring(), &Group::flat(4), 1000, 0)?;
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
    contributors: u32,
    lanes: Arc<dyn Lanes>,
    split: Split,
    dtype: Dtype,
    buffered: bool,
}

/// The most lanes of a collective whose chunk is given: a million take seconds, and a chunk of one element of a large
/// model would give tens of millions.
const MOST_LANES: u64 = 1 << 20;

impl Schedule {
    /// As [`Schedule::of`], on fp32 elements.
    ///
    /// # Errors
    /// As there.
    pub fn new(
        collective: &Collective,
        algorithm: &Algorithm,
        group: &Group,
        elements: u64,
        chunk: u64,
    ) -> Result<Schedule, InputError> {
        Schedule::of(collective, algorithm, group, (elements, Dtype::F32), chunk)
    }

    /// Performs `collective` by `algorithm` in `group` on a buffer of elements of a format (an alltoallv: on buffers of
    /// at least the longest row and column of its counts), in lanes of about `chunk` elements. `chunk` 0 is the
    /// algorithm's default: chunks of the algorithm's own bytes where it is pipelined, else one lane per root.
    ///
    /// # Errors
    /// An algorithm that cannot serve the collective or the group, with the cure.
    pub fn of(
        collective: &Collective,
        algorithm: &Algorithm,
        group: &Group,
        (elements, dtype): (u64, Dtype),
        chunk: u64,
    ) -> Result<Schedule, InputError> {
        let members = group.members();
        if members == 0 || members > 1 << 30 {
            let message = "a collective needs 1 to 2^30 members";
            return Err(InputError::new("", format!("{members} members"), message));
        }
        let lanes = lanes(&Call { algorithm, collective, group, elements, dtype, nested: false })?;
        // The algorithm's own choice has fewer lanes than any machine has time for.
        let most = if chunk == 0 { u64::from(u32::MAX) } else { MOST_LANES };
        let chunk = match chunk {
            0 if lanes.is_pipelined() => dtype.elements_within(PIPELINE_CHUNK_BYTES),
            0 => u64::MAX,
            chunk => chunk,
        };
        let (roots, chunks) = (u64::from(lanes.roots()), lanes.chunks(elements, chunk));
        if chunks.saturating_mul(roots) > most {
            let least = elements.div_ceil(roots).div_ceil((most / roots).max(1));
            let message =
                format!("gives more than {most} lanes: use a chunk of at least {}", Bytes(dtype.bytes(least)));
            return Err(InputError::flag("chunk", Bytes(dtype.bytes(chunk)).to_string(), message));
        }
        Ok(Schedule {
            collective: collective.clone(),
            members,
            contributors: members - algorithm.servers(),
            lanes: lanes.into(),
            split: Split { elements, groups: roots, chunks },
            dtype,
            // An exchange reads a buffer that it does not write.
            buffered: algorithm.library().is_some() && !matches!(collective, Collective::AllToAllV { .. }),
        })
    }

    /// The same, on the same buffer, by rings along these orders of its members and with the flow of each: an allreduce, a
    /// reduce-scatter or an allgather.
    ///
    /// # Errors
    /// Another collective, orders that lack a member, a chunk that is too small.
    pub fn along(&self, orders: Vec<(Vec<u32>, u32)>, chunk: u64) -> Result<Schedule, InputError> {
        let (rings, group) = (Algorithm::rings_along(orders, None), Group::flat(self.members));
        let along = Schedule::of(&self.collective, &rings, &group, (self.split.elements, self.dtype), chunk)?;
        Ok(Schedule { buffered: self.buffered, ..along })
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
        self.contributors
    }

    /// Whether the buffer of `member` counts at the start of a sum: not for a dedicated server.
    pub fn contributes(&self, member: u32) -> bool {
        member < self.contributors
    }

    /// Whether `member` ends with the sum of an allreduce: not a dedicated server, and where only the leaders of nodes
    /// get it none but these.
    pub fn receives(&self, member: u32) -> bool {
        member < self.contributors && self.lanes.receives(member)
    }

    /// Whether a send copies its range when it is posted, as a library does with small messages. If not, the schedule
    /// itself leaves a sent range unchanged until it has been consumed.
    pub fn buffered_sends(&self) -> bool {
        self.buffered
    }

    /// Lanes of each member; there may be idle ones.
    pub fn lanes(&self) -> u32 {
        (self.split.groups * self.split.chunks) as u32
    }

    /// Lane `index < lanes()` of `member < members()`.
    pub fn lane(&self, member: u32, index: u32) -> Lane {
        self.lanes.lane(member, index, &self.split)
    }

    /// Shares of the buffer, each with a root; lane i belongs to share i modulo their number. For `rings:c` they are
    /// its c channels; `double-tree:c` has two for each channel.
    pub fn shares(&self) -> u32 {
        self.split.groups as u32
    }

    /// The number of the flow of a share's messages between nodes, by which they take one of several near NICs.
    pub fn flow(&self, share: u32) -> u32 {
        self.lanes.flow(share)
    }

    /// Lanes in flight on a member that keep the pipeline full, at least 1 and at most [`Schedule::lanes`]: those that
    /// start while the first one is in flight in a chain or tree, and two where one keeps the links busy.
    pub fn window(&self) -> u32 {
        self.lanes.window().min(self.lanes()).max(1)
    }

    /// Elements of the largest message of any lane: the scratch that a lane in flight needs.
    pub fn chunk_elements(&self) -> u64 {
        if self.split.chunks == 0 { 0 } else { self.lanes.largest_message(&self.split) }
    }

    /// Elements of scratch memory that sums need with `window` lanes in flight; none where nothing is summed.
    pub fn scratch_elements(&self, window: u32) -> u64 {
        if !self.collective.sums() {
            return 0;
        }
        u64::from(window.clamp(1, self.lanes().max(1))) * self.chunk_elements()
    }

    /// Closed form: messages that `member` sends in all lanes. The table of formulas is `docs/collectives.md`.
    pub fn messages(&self, member: u32) -> u64 {
        self.sent(member).messages
    }

    /// Closed form: elements that `member` sends in all lanes (an alltoallv's own block included).
    pub fn elements_sent(&self, member: u32) -> u64 {
        self.sent(member).elements
    }

    /// What `member` sends in all lanes.
    fn sent(&self, member: u32) -> Sent {
        (0..self.lanes()).map(|index| self.lane(member, index).sent()).sum()
    }

    /// The format of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Closed form: bytes that `member` sends in all lanes.
    pub fn bytes_sent(&self, member: u32) -> u64 {
        self.dtype.bytes(self.elements_sent(member))
    }

    /// Closed form: messages on the longest chain of dependent ones in a lane, the α of its latency. Nodes of unequal
    /// sizes, or fewer elements than members, may need fewer.
    pub fn rounds(&self) -> u32 {
        self.lanes.rounds()
    }

    /// The permutations of members that leave every lane as it is once its peers are renamed: same steps in the same
    /// order, and messages of the same lengths. They say nothing about which elements a message carries.
    ///
    /// ```
    /// # use lockstep_topology::{Algorithm, Collective, Group, Permutations, Schedule};
    /// let ring = |n| Schedule::new(&Collective::AllReduce, &Algorithm::ring(), &Group::flat(4), n, 0).unwrap();
    /// assert_eq!(ring(1000).symmetry(), Permutations::Rotations { unit: 1 });
    /// assert_eq!(ring(1001).symmetry(), Permutations::Identity); // one block is an element longer
    /// ```
    pub fn symmetry(&self) -> Permutations {
        let (permutations, multiple) = self.lanes.symmetry(&self.split);
        let known = self.members > 1 && self.split.elements.is_multiple_of(multiple);
        if known { permutations } else { Permutations::Identity }
    }

    /// The rounds of a schedule in which every member, in one lane, sends a block to the next member and then receives
    /// one from the member before, round after round. `None` for any other schedule, and where blocks are empty.
    pub fn pipeline(&self) -> Option<Vec<PipelinePhase>> {
        if self.members > 1 && self.lanes() == 1 { self.lanes.pipeline(&self.split) } else { None }
    }

    /// The same schedule on a buffer that is just long enough for the symmetry of its algorithm: all parts are then as
    /// long as the longest ones are here. Parts that members scatter or gather are equal by any algorithm.
    pub fn padded(&self) -> Schedule {
        let (_, multiple) = self.lanes.symmetry(&self.split);
        let in_parts = matches!(self.collective, Collective::ReduceScatter | Collective::AllGather);
        let multiple = if in_parts { self.contributors.into() } else { multiple };
        let elements = self.split.elements.checked_next_multiple_of(multiple).unwrap_or(self.split.elements);
        Schedule { split: Split { elements, ..self.split }, ..self.clone() }
    }

    /// The requirements of the checker on the lanes.
    pub(super) fn contract(&self) -> Contract {
        Contract {
            collective: self.collective.clone(),
            members: self.members,
            contributors: self.contributors,
            receives: (0..self.contributors).map(|member| self.receives(member)).collect(),
            elements: self.split.elements,
            lanes: self.lanes(),
            buffered_sends: self.buffered,
        }
    }
}
