//! `Lanes`: defines the trait of algorithms: a collective's lanes among members, and their figures in closed form.

use std::fmt;

use super::lane::Lane;
use super::phase::PipelinePhase;
use super::shard::Split;
use crate::symmetry::Permutations;

/// An algorithm bound to a collective among members. Each figure is a closed form that tests compare with the steps.
pub(super) trait Lanes: fmt::Debug + Send + Sync {
    /// Lane `index` on `member`.
    fn lane(&self, member: u32, index: u32, split: &Split) -> Lane;

    /// The longest chain of dependent messages in a lane, if no message is empty; 0 for one member.
    fn rounds(&self) -> u32;

    /// Elements of the largest message. Not called without lanes.
    fn largest_message(&self, split: &Split) -> u64;

    /// Permutations of two or more members under which each lane keeps its actions and lengths, with peers renamed. They
    /// hold if the number of elements is a multiple of the second value. Without them every rank is simulated.
    fn symmetry(&self, _: &Split) -> (Permutations, u64) {
        (Permutations::Identity, 1)
    }

    /// For two or more members and one lane: the rounds, if in each of them every member sends one block to the next
    /// member; else `None`, and every message is simulated.
    fn pipeline(&self, _: &Split) -> Option<Vec<PipelinePhase>> {
        None
    }

    /// Lanes in flight that keep a member busy.
    fn window(&self) -> u32 {
        // a second lane's messages travel while the first one's are added
        2
    }

    /// Roots among which the buffer is divided.
    fn roots(&self) -> u32 {
        1
    }

    /// The number of the flow between nodes that the messages of a root's lanes take: of several NICs that are near a
    /// member each takes one ([`Cluster::route_of_flow`](crate::Cluster::route_of_flow)).
    fn flow(&self, _root: u32) -> u32 {
        0
    }

    /// Whether chunks are small unless the caller sets their size; else there is one lane for each root.
    fn is_pipelined(&self) -> bool {
        false
    }

    /// Lanes of each root for `elements` elements in chunks of `chunk`.
    fn chunks(&self, elements: u64, chunk: u64) -> u64 {
        elements.div_ceil(self.roots().into()).div_ceil(chunk)
    }

    /// Whether `member` ends with the result of a sum that not only its root gets, apart from dedicated servers.
    fn receives(&self, _member: u32) -> bool {
        true
    }
}
