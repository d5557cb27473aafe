//! Which algorithm serves which collective, and what each needs: its lanes, its rounds, its window, its scratch.
//!
//! The one place besides `kernel.rs` that lists the algorithms; everything else asks here.

use std::sync::Arc;

use super::algorithm::{Algorithm, Library};
use super::direct::{self, Direct, Parts};
use super::family::Family;
use super::halving_doubling::HalvingDoubling;
use super::kernel::Kernel;
use super::meaning::Collective;
use super::pairwise::{self, Pairwise};
use super::pipelined_chain;
use super::recursive_doubling::RecursiveDoubling;
use super::ring::{Blocks, Ring};
use super::rooted::Rooted;
use super::schedule::Phase;
use super::shard::{Split, shard};
use super::step::Action;
use super::tree::{Tree, Ways};
use crate::InputError;
use crate::symmetry::Permutations;

/// Elements in a chunk of a pipelined algorithm, if the caller names none: 256 KiB of 32-bit floats.
const PIPELINE_CHUNK: u64 = 64 * 1024;

/// Open MPI `tuned` takes recursive doubling below this many bytes.
const MPI_SMALL_BYTES: u64 = 10_000;

/// An algorithm that serves its collective, for members without node structure.
#[derive(Debug, Clone)]
pub(super) enum Method {
    Ring {
        reduce: bool,
        gather: bool,
    },
    HalvingDoubling,
    Tree {
        family: Family,
        ways: Ways,
    },
    RecursiveDoubling,
    Pairwise(Arc<pairwise::Blocks>),
    /// Among nodes' leaders (`nested`) a lane divides its own elements, those that its nodes sum; else its share of each part.
    Direct {
        parts: Parts,
        ways: direct::Ways,
        nested: bool,
    },
    Rooted {
        root: u32,
        scatter: bool,
    },
}

impl Method {
    /// The method for `collective` by `algorithm` among `members` (at least one).
    pub(super) fn new(
        collective: &Collective,
        algorithm: &Algorithm,
        members: u32,
        elements: u64,
    ) -> Result<Method, InputError> {
        let (up, down, root) = match *collective {
            Collective::Broadcast { root } => (false, true, root),
            Collective::Reduce { root } => (true, false, root),
            _ => (true, true, 0),
        };
        let tree = |family| Ok(Method::Tree { family, ways: Ways { up, down } });
        let refuse = |cure: String| Err(InputError::new("", algorithm.to_string(), cure));
        match (collective, algorithm) {
            (Collective::AllReduce, Algorithm::Ring) => Ok(Method::Ring { reduce: true, gather: true }),
            (Collective::ReduceScatter, Algorithm::Ring) => Ok(Method::Ring { reduce: true, gather: false }),
            (Collective::AllGather, Algorithm::Ring) => Ok(Method::Ring { reduce: false, gather: true }),
            (Collective::AllReduce, Algorithm::HalvingDoubling) => Ok(Method::HalvingDoubling),
            (Collective::AllReduce, &Algorithm::MultiColor { colors }) => {
                if colors == 0 {
                    return refuse("needs at least one colour: write multi-color:4".to_owned());
                }
                tree(Family::MultiColor { colors })
            }
            (Collective::AllReduce, &Algorithm::ParameterServer { servers, dedicated }) => {
                let most = members - u32::from(dedicated);
                if servers == 0 || servers > most {
                    let workers = if dedicated { ", one of which must be a worker" } else { "" };
                    return refuse(format!(
                        "{servers} servers among {members} members{workers}: take {} and at least 1, or more members",
                        if most == 0 { "no dedicated server".to_owned() } else { format!("at most {most}") }
                    ));
                }
                tree(Family::Server { servers, dedicated })
            }
            (Collective::AllReduce, Algorithm::Library(Library::Mpi)) => {
                let small = elements.saturating_mul(4) < MPI_SMALL_BYTES || elements < u64::from(members);
                Ok(if small { Method::RecursiveDoubling } else { Method::Ring { reduce: true, gather: true } })
            }
            (Collective::AllReduce, Algorithm::Library(Library::Nccl)) => {
                Ok(Method::Ring { reduce: true, gather: true })
            }
            (
                Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. },
                Algorithm::BinomialTree | Algorithm::Tree { .. } | Algorithm::PipelinedChain,
            ) => {
                if root >= members {
                    return Err(no_root(collective, root, members));
                }
                tree(match *algorithm {
                    Algorithm::Tree { branching: arity } => Family::Kary { root, arity },
                    Algorithm::PipelinedChain => Family::Kary { root, arity: pipelined_chain::ARITY },
                    _ => Family::Binomial { root },
                })
            }
            (Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather, Algorithm::Direct) => {
                let ways = direct::Ways {
                    reduce: !matches!(collective, Collective::AllGather),
                    gather: !matches!(collective, Collective::ReduceScatter),
                };
                Ok(Method::Direct { parts: Parts::Even { start: 0, elements }, ways, nested: false })
            }
            (Collective::ReduceScatterV { counts } | Collective::AllGatherV { counts }, Algorithm::Direct) => {
                let gather = matches!(collective, Collective::AllGatherV { .. });
                if counts.len() as u64 != u64::from(members) {
                    return refuse(format!("{members} members need as many counts and there are {}", counts.len()));
                }
                match Parts::counted(counts) {
                    Some(parts) if parts.elements() == elements => {
                        Ok(Method::Direct { parts, ways: direct::Ways { reduce: !gather, gather }, nested: false })
                    }
                    _ => refuse(format!("the counts must add up to the {elements} elements of the buffer")),
                }
            }
            (&(Collective::Scatter { root } | Collective::Gather { root }), Algorithm::Direct) => {
                if root >= members {
                    return Err(no_root(collective, root, members));
                }
                Ok(Method::Rooted { root, scatter: matches!(collective, Collective::Scatter { .. }) })
            }
            (Collective::AllToAllV { counts }, Algorithm::Pairwise) => {
                let pairs = u64::from(members) * u64::from(members);
                if counts.len() as u64 != pairs {
                    return refuse(format!("{members} members need {pairs} counts and there are {}", counts.len()));
                }
                match pairwise::Blocks::new(members, counts) {
                    Some(blocks) if blocks.longest <= elements => Ok(Method::Pairwise(Arc::new(blocks))),
                    Some(blocks) => refuse(format!(
                        "a member sends or receives {} elements and the buffers have {elements}: make them as long",
                        blocks.longest
                    )),
                    None => refuse("the counts of a member add up to more than 2^64: make them smaller".to_owned()),
                }
            }
            _ => {
                let serving = match collective {
                    Collective::AllReduce => {
                        "ring, halving-doubling, binomial-tree, tree:4, pipelined-chain, multi-color:4, parameter-server:1, \
                         direct, hierarchical:ring, library:mpi or library:nccl"
                    }
                    Collective::AllReduceOfNodes => "hierarchical:ring",
                    Collective::ReduceScatter | Collective::AllGather => "ring or direct",
                    Collective::ReduceScatterV { .. }
                    | Collective::AllGatherV { .. }
                    | Collective::Scatter { .. }
                    | Collective::Gather { .. } => "direct",
                    Collective::Broadcast { .. } | Collective::Reduce { .. } => {
                        "binomial-tree, tree:4 or pipelined-chain"
                    }
                    Collective::AllToAllV { .. } => "pairwise",
                };
                refuse(format!("does not serve {}: take {serving}", collective.name()))
            }
        }
    }

    /// The same among the leaders of nodes.
    pub(super) fn nested(self) -> Method {
        match self {
            Method::Direct { parts, ways, .. } => Method::Direct { parts, ways, nested: true },
            method => method,
        }
    }

    /// Members that contribute, of `members`.
    pub(super) fn contributors(&self, members: u32) -> u32 {
        match self {
            Method::Tree { family: Family::Server { servers, dedicated: true }, .. } => members - servers,
            _ => members,
        }
    }

    /// Roots among which the buffer is shared out.
    fn groups(&self) -> u32 {
        match self {
            Method::Tree { family: Family::MultiColor { colors }, .. } => *colors,
            Method::Tree { family: Family::Server { servers, .. }, .. } => *servers,
            _ => 1,
        }
    }

    /// Whether `chunk = 0` means chunks of [`PIPELINE_CHUNK`] and not one lane.
    fn pipelined(&self) -> bool {
        matches!(
            self,
            Method::Tree { family: Family::Kary { arity: pipelined_chain::ARITY, .. } | Family::MultiColor { .. }, .. }
        )
    }

    /// Cuts the buffer into lanes of about `chunk` elements (0: the algorithm's default).
    pub(super) fn split(&self, members: u32, elements: u64, chunk: u64, pipelined: bool) -> Result<Split, InputError> {
        let groups = u64::from(self.groups());
        let chunk = match chunk {
            0 if pipelined || self.pipelined() => PIPELINE_CHUNK,
            0 => u64::MAX,
            chunk => chunk,
        };
        let chunks = match self {
            Method::Pairwise(blocks) => blocks.largest.div_ceil(chunk),
            Method::Direct { parts, nested: false, .. } => parts.largest(members).div_ceil(chunk),
            Method::Rooted { .. } => elements.div_ceil(members.into()).div_ceil(chunk),
            // a lane takes its part of each shard, so that more lanes than elements in a shard would be idle
            Method::Ring { reduce, gather } if reduce != gather => {
                elements.div_ceil(chunk).min(elements.div_ceil(u64::from(members)))
            }
            _ => elements.div_ceil(groups).div_ceil(chunk),
        };
        if chunks.saturating_mul(groups) > u64::from(u32::MAX) {
            let least = elements.div_ceil(groups).div_ceil(u64::from(u32::MAX) / groups);
            let message = format!("gives more than 2^32 lanes: take a chunk of at least {least} elements");
            return Err(InputError::new("", format!("chunk = {chunk}"), message));
        }
        Ok(Split { elements, groups, chunks })
    }

    /// The lane of `member`, one of `members`.
    pub(super) fn kernel(&self, member: u32, members: u32, lane: u32, split: &Split) -> Kernel {
        match self {
            &Method::Ring { reduce, gather } => {
                let blocks = if reduce && gather {
                    Blocks::new(split.extent(lane), members, 0, 1)
                } else {
                    Blocks::new(0..split.elements, members, lane, split.chunks)
                };
                Kernel::Ring(Ring { member, members, reduce, gather, blocks })
            }
            Method::HalvingDoubling => {
                Kernel::HalvingDoubling(HalvingDoubling::new(member, members, split.extent(lane)))
            }
            Method::Tree { family, ways } => match family.shape(member, members, split.group(lane)) {
                Some(shape) => Kernel::Tree(Tree::new(shape, *ways, split.extent(lane))),
                None => Kernel::Idle,
            },
            Method::RecursiveDoubling => {
                Kernel::RecursiveDoubling(RecursiveDoubling::new(member, members, split.extent(lane)))
            }
            Method::Pairwise(blocks) => {
                Kernel::Pairwise(Pairwise { blocks: Arc::clone(blocks), member, lane, lanes: split.chunks })
            }
            &Method::Direct { ways, nested: true, .. } => {
                let extent = split.extent(lane);
                let parts = Parts::Even { start: extent.start, elements: extent.end - extent.start };
                Kernel::Direct(Direct { parts, ways, member, members, lane: 0, lanes: 1 })
            }
            Method::Direct { parts, ways, .. } => {
                // The buffer may have been rounded up to even parts.
                let elements = split.elements;
                let parts = if let Parts::Even { start, .. } = *parts {
                    Parts::Even { start, elements }
                } else {
                    parts.clone()
                };
                Kernel::Direct(Direct { parts, ways: *ways, member, members, lane, lanes: split.chunks })
            }
            &Method::Rooted { root, scatter } => {
                let (elements, lanes) = (split.elements, split.chunks);
                Kernel::Rooted(Rooted { root, scatter, member, members, elements, lane, lanes })
            }
        }
    }

    /// The permutations of `members` that leave every lane as it is, peers renamed: what each kind of step does must
    /// depend on members' differences alone, and all of its parts must be equally long.
    pub(super) fn symmetry(&self, members: u32, split: &Split) -> Permutations {
        let p = u64::from(members);
        let even = split.elements.is_multiple_of(split.groups * split.chunks.max(1) * p);
        match self {
            _ if members == 1 => Permutations::Identity,
            Method::Ring { reduce: true, gather: true } if even => Permutations::Rotations { unit: 1 },
            // Here each lane takes its part of every block.
            Method::Ring { reduce, gather } if reduce != gather && split.elements.is_multiple_of(p) => {
                Permutations::Rotations { unit: 1 }
            }
            Method::HalvingDoubling if even && members.is_power_of_two() => Permutations::Masks { unit: 1 },
            Method::RecursiveDoubling if members.is_power_of_two() => Permutations::Masks { unit: 1 },
            Method::Pairwise(blocks) if blocks.even() => Permutations::Rotations { unit: 1 },
            Method::Direct { nested: true, .. } if even => Permutations::Rotations { unit: 1 },
            Method::Direct { nested: true, .. } => Permutations::Identity,
            Method::Direct { parts: Parts::Even { .. }, .. } if split.elements.is_multiple_of(p) => {
                Permutations::Rotations { unit: 1 }
            }
            Method::Direct { parts, .. } if parts.even(members) => Permutations::Rotations { unit: 1 },
            // A tree has a root, and its members are served one after the other.
            _ => Permutations::Identity,
        }
    }

    /// The rounds of a ring in one lane, unless it has empty blocks.
    pub(super) fn pipeline(&self, members: u32, split: &Split) -> Option<Vec<Phase>> {
        let Method::Ring { reduce, gather } = self else { return None };
        let p = u64::from(members);
        let (elements, longer) = (split.elements / p, (split.elements % p) as u32);
        let phase = |action, back| Phase { rounds: members - 1, action, elements, longer, back };
        // Block b starts at member b + 1 and ends summed at member b, from where it is spread.
        let phases = [reduce.then(|| phase(Action::RecvSum, 2)), gather.then(|| phase(Action::RecvInto, 1))];
        (elements > 0).then(|| phases.into_iter().flatten().collect())
    }

    /// The elements to which the buffer must be rounded up for [`Method::symmetry`] to find even parts.
    pub(super) fn even_elements(&self, members: u32, split: &Split) -> u64 {
        let p = u64::from(members);
        let parts = match self {
            Method::Ring { reduce, gather } if reduce != gather => p,
            Method::Direct { parts: Parts::Even { .. }, nested: false, .. } => p,
            Method::Direct { nested: true, .. } => split.chunks.max(1).saturating_mul(p),
            Method::Ring { .. } => split.chunks.max(1).saturating_mul(p),
            Method::HalvingDoubling if members.is_power_of_two() => split.chunks.max(1).saturating_mul(p),
            _ => 1,
        };
        split.elements.checked_next_multiple_of(parts).unwrap_or(split.elements)
    }

    /// The longest chain of dependent messages in a lane with no empty part.
    pub(super) fn rounds(&self, members: u32) -> u32 {
        if members == 1 {
            return 0;
        }
        match self {
            Method::Ring { reduce, gather } => (members - 1) * (u32::from(*reduce) + u32::from(*gather)),
            Method::HalvingDoubling => 2 * members.ilog2(),
            Method::Tree { family, ways } => family.depth(members) * (u32::from(ways.up) + u32::from(ways.down)),
            Method::RecursiveDoubling => RecursiveDoubling::rounds(members),
            Method::Pairwise(_) => members - 1,
            Method::Direct { ways, .. } => u32::from(ways.reduce) + u32::from(ways.gather),
            Method::Rooted { .. } => 1,
        }
    }

    /// Lanes in flight that keep the algorithm busy.
    pub(super) fn window(&self, members: u32) -> u32 {
        match self {
            Method::Tree { .. } => self.rounds(members).saturating_mul(self.groups()),
            // a second lane's messages travel while the first one's are added
            _ => 2,
        }
    }

    /// Elements of the largest message among `members`.
    pub(super) fn largest_message(&self, members: u32, split: &Split) -> u64 {
        let extent = split.extent(0);
        let lane = extent.end - extent.start;
        match self {
            _ if split.chunks == 0 => 0,
            Method::Pairwise(blocks) => blocks.largest.div_ceil(split.chunks),
            _ if members == 1 => 0,
            Method::Direct { nested: true, .. } => lane.div_ceil(u64::from(members)),
            Method::Direct { parts, .. } => parts.largest(members).div_ceil(split.chunks),
            Method::Rooted { root, .. } => {
                // Longer parts are the first members'; the root keeps its own.
                let part = shard(split.elements, members.into(), u64::from(*root == 0));
                (part.end - part.start).div_ceil(split.chunks)
            }
            Method::Ring { reduce: true, gather: true } => lane.div_ceil(u64::from(members)),
            Method::Ring { .. } => split.elements.div_ceil(u64::from(members)).div_ceil(split.chunks),
            Method::HalvingDoubling => lane.div_ceil(2),
            Method::Tree { .. } | Method::RecursiveDoubling => lane,
        }
    }
}

/// The error of a root that is no member.
fn no_root(collective: &Collective, root: u32, members: u32) -> InputError {
    let cure = format!("there are {members} members: take a root from 0 to {}", members - 1);
    InputError::new("", format!("{}:{root}", collective.name()), cure)
}
