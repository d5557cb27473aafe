//! Tests trees and steps from the papers' figures, worked by hand.

use std::collections::BTreeSet;

use super::super::{Action, Algorithm, Collective, Group, LaneStep, Schedule, shard};
use super::small_exchange;

/// A flat allreduce.
fn allreduce(algorithm: &str, members: u32, elements: u64, chunk: u64) -> Schedule {
    let algorithm: Algorithm = algorithm.parse().expect("a known algorithm");
    Schedule::new(&Collective::AllReduce, &algorithm, &Group::flat(members), elements, chunk).expect("serves")
}

/// Steps as `action peer range`, for comparison with the steps in a comment.
fn shown(schedule: &Schedule, member: u32, lane: u32) -> Vec<String> {
    let show = |step: LaneStep| format!("{:?} {} {:?}", step.action, step.peer, step.range());
    schedule.lane(member, lane).map(show).collect()
}

/// Members that receive sums in a colour: the inner members of its tree.
fn inner(schedule: &Schedule, color: u32) -> BTreeSet<u32> {
    let sums = |member: &u32| schedule.lane(*member, color).any(|step| step.action == Action::RecvSum);
    (0..schedule.members()).filter(sums).collect()
}

/// Kumar 2018, Fig. 2: four colours on eight nodes have the inner nodes (0,1), (2,3), (4,5), (6,7).
#[test]
fn four_colors_on_eight_members_match_the_paper() {
    let schedule = allreduce("multi-color:4", 8, 80, 20);
    let trees: Vec<Vec<u32>> = (0..4).map(|color| inner(&schedule, color).into_iter().collect()).collect();
    assert_eq!(trees, [vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]]);
    // colour 0: 0 has 1, 2, 3, 4 below it, and 1 has 5, 6, 7; sums are awaited from the shallowest subtree on
    let children = |member| {
        let sums = schedule.lane(member, 0).filter(|step| step.action == Action::RecvSum);
        sums.map(|step| step.peer).collect::<Vec<_>>()
    };
    assert_eq!((children(0), children(1)), (vec![4, 3, 2, 1], vec![7, 6, 5]));
}

/// Inner members are disjoint wherever k·⌈(N − 1)/k⌉ ≤ N; elsewhere neighbouring colours share one at most.
#[test]
fn inner_members_are_disjoint_wherever_possible() {
    for members in 2u32..=40 {
        for colors in 1..=members.min(8) {
            let schedule = allreduce(&format!("multi-color:{colors}"), members, 10 * u64::from(colors), 10);
            assert_eq!(schedule.lanes(), colors);
            let trees: Vec<_> = (0..colors).map(|color| inner(&schedule, color)).collect();
            let possible = colors * (members - 1).div_ceil(colors) <= members;
            for (a, first) in trees.iter().enumerate() {
                assert_eq!(first.len() as u32, (members - 1).div_ceil(colors), "{colors} on {members}");
                for second in &trees[a + 1..] {
                    let shared = first.intersection(second).count();
                    assert!(shared <= usize::from(!possible), "{colors} on {members}: {trees:?}");
                }
            }
        }
    }
}

/// Krizhevsky 2014 §4.1: each worker is designated a K-th of the gradients, accumulates it from every other worker, and
/// sends the sum to every other. Member 1 of three has 3..6 of nine elements.
#[test]
fn a_direct_exchange_gives_each_member_its_part() {
    let schedule = allreduce("direct", 3, 9, 0);
    assert_eq!(
        shown(&schedule, 1, 0),
        [
            "Send 2 6..9", // their parts to their owners
            "Send 0 0..3",
            "RecvSum 0 3..6", // its own from all
            "RecvSum 2 3..6",
            "Send 2 3..6", // the sum to all
            "Send 0 3..6",
            "RecvInto 0 0..3",
            "RecvInto 2 6..9",
        ]
    );
    assert_eq!(schedule.lanes(), 1);
}

/// Goyal 2017 §4.1: 0 with 1, 2 with 3 first; then the distance doubles and the data halves; the way back in reverse.
#[test]
fn halving_doubling_among_four() {
    assert_eq!(
        shown(&allreduce("halving-doubling", 4, 8, 0), 1, 0),
        [
            "Send 0 0..4", // distance 1: the lower half goes to 0
            "RecvSum 0 4..8",
            "Send 3 6..8", // distance 2: half of the half
            "RecvSum 3 4..6",
            "Send 3 4..6",
            "RecvInto 3 6..8",
            "Send 0 4..8",
            "RecvInto 0 0..4",
        ]
    );
}

/// De Sensi et al. 2024: 1 with 0 and 2 with 3 first; then even members with −1, so 1 with 2. Of 5 members 0 hands its
/// buffer to 1, which is then number 0.
#[test]
fn swing_among_four_and_five() {
    // 0 has the quarter 0, 3 the second, 2 the third and 1 the last
    assert_eq!(
        shown(&allreduce("swing", 4, 8, 0), 1, 0),
        [
            "Send 0 0..4",
            "RecvSum 0 4..8",
            "Send 2 4..6", // 1 − ρ(1) = 2: half of the half
            "RecvSum 2 6..8",
            "Send 2 6..8",
            "RecvInto 2 4..6",
            "Send 0 4..8",
            "RecvInto 0 0..4",
        ]
    );
    let five = allreduce("swing", 5, 8, 0);
    assert_eq!(shown(&five, 0, 0), ["Send 1 0..8", "RecvInto 1 0..8"]);
    let peers: Vec<u32> = five.lane(1, 0).map(|step| step.peer).collect();
    assert_eq!(peers, [0, 2, 2, 4, 4, 4, 4, 2, 2, 0]);
    // 128 members: 1, −1, 3, −5, 11, −21, 43, from 0 on
    let sums = allreduce("swing", 128, 128, 0).lane(0, 0).filter(|step| step.action == Action::RecvSum);
    assert_eq!(sums.map(|step| step.peer).collect::<Vec<_>>(), [1, 127, 3, 123, 11, 107, 43]);
}

/// Three members are blocks of two and one: the single member's halves go to the two and come back summed.
#[test]
fn halving_doubling_among_three() {
    let schedule = allreduce("halving-doubling", 3, 8, 0);
    assert_eq!(shown(&schedule, 2, 0), ["Send 0 0..4", "Send 1 4..8", "RecvInto 0 0..4", "RecvInto 1 4..8"]);
    assert_eq!(
        shown(&schedule, 0, 0),
        ["Send 1 4..8", "RecvSum 1 0..4", "RecvSum 2 0..4", "Send 2 0..4", "Send 1 0..4", "RecvInto 1 4..8"]
    );
}

/// Kumar 2018 §5.1: sums run 3 → 2 → 1 → 0, the result 0 → 1 → 2 → 3, chunk by chunk.
#[test]
fn the_chain_returns_in_the_opposite_direction() {
    let schedule = allreduce("pipelined-chain", 4, 8, 4);
    assert_eq!((schedule.lanes(), schedule.window()), (2, 2));
    assert_eq!(shown(&schedule, 1, 1), ["RecvSum 2 4..8", "Send 0 4..8", "RecvInto 0 4..8", "Send 2 4..8"]);
    assert_eq!(shown(&schedule, 3, 0), ["Send 2 0..4", "RecvInto 2 0..4"]);
    // enough chunks: one starts in each of the 2(p − 1) rounds that the first one is in flight
    assert_eq!(allreduce("pipelined-chain", 4, 1000, 4).window(), 6);
}

/// A binomial tree on six: 0 has 1, 2, 4 below it; 2 has 3; 4 has 5.
#[test]
fn a_binomial_tree_on_six() {
    let schedule = allreduce("binomial-tree", 6, 5, 0);
    assert_eq!(
        shown(&schedule, 0, 0),
        ["RecvSum 1 0..5", "RecvSum 2 0..5", "RecvSum 4 0..5", "Send 4 0..5", "Send 2 0..5", "Send 1 0..5"]
    );
    assert_eq!(shown(&schedule, 4, 0), ["RecvSum 5 0..5", "Send 0 0..5", "RecvInto 0 0..5", "Send 5 0..5"]);
}

/// A tree on six with two children each: 0 has 1 and 2 below it, 1 has 3 and 4, 2 has 5. With five below one it
/// is a server.
#[test]
fn a_tree_of_two_children_on_six() {
    let schedule = allreduce("tree:2", 6, 5, 0);
    assert_eq!(shown(&schedule, 0, 0), ["RecvSum 2 0..5", "RecvSum 1 0..5", "Send 1 0..5", "Send 2 0..5"]);
    assert_eq!(
        shown(&schedule, 1, 0),
        ["RecvSum 4 0..5", "RecvSum 3 0..5", "Send 0 0..5", "RecvInto 0 0..5", "Send 3 0..5", "Send 4 0..5"]
    );
    assert_eq!(shown(&schedule, 2, 0), ["RecvSum 5 0..5", "Send 0 0..5", "RecvInto 0 0..5", "Send 5 0..5"]);
    // Iandola 2016 §6.2: the number of rounds is the logarithm to the base of the branching factor.
    let rounds = |branching: &str| allreduce(branching, 31, 5, 0).rounds();
    assert_eq!(["tree:1", "tree:2", "tree:5", "tree:30"].map(rounds), [60, 8, 4, 2]);
    assert_eq!(rounds("tree:30"), rounds("parameter-server:1"));
}

/// Thakur et al. 2005 §4.1: across the middle first. Of five members 0 hands its buffer to 1 and gets its part back.
#[test]
fn recursive_halving_among_five() {
    let algorithm = "recursive-halving".parse().expect("a known algorithm");
    let schedule = Schedule::new(&Collective::ReduceScatter, &algorithm, &Group::flat(5), 10, 0).expect("serves");
    assert_eq!(shown(&schedule, 0, 0), ["Send 1 0..10", "RecvInto 1 0..2"]);
    assert_eq!(
        shown(&schedule, 1, 0),
        ["RecvSum 0 0..10", "Send 3 6..10", "RecvSum 3 0..6", "Send 2 4..6", "RecvSum 2 0..4", "Send 0 0..2"]
    );
    assert_eq!(schedule.rounds(), 3);
}

/// Five members, far first: 4 apart only parts whose tree is as deep are sent on, 1 apart every second one; backwards
/// it is a reduce-scatter.
#[test]
fn parallel_trees_among_five() {
    let of = |collective| {
        let algorithm = "pat".parse().expect("a known algorithm");
        Schedule::new(&collective, &algorithm, &Group::flat(5), 10, 0).expect("serves")
    };
    assert_eq!(
        shown(&of(Collective::AllGather), 0, 0),
        [
            "Send 4 0..2", // 4 apart: its own
            "RecvInto 1 2..4",
            "Send 2 0..2", // 2 apart: its own
            "RecvInto 3 6..8",
            "Send 1 0..2", // 1 apart: its own and that from 3
            "Send 1 6..8",
            "RecvInto 4 8..10",
            "RecvInto 4 4..6",
        ]
    );
    assert_eq!(
        shown(&of(Collective::ReduceScatter), 0, 0),
        [
            "Send 4 8..10",
            "Send 4 4..6",
            "RecvSum 1 0..2",
            "RecvSum 1 6..8",
            "Send 3 6..8",
            "RecvSum 2 0..2",
            "Send 1 2..4",
            "RecvSum 4 0..2",
        ]
    );
    assert_eq!(of(Collective::AllGather).rounds(), 3);
}

/// Two nodes of two: a lane carries its chunk up the node, across the leaders 0 and 2, and down again.
#[test]
fn a_hierarchical_lane_carries_all_three_phases() {
    let group = Group::nodes(&[2, 2]);
    let algorithm = Algorithm::hierarchical(Algorithm::ring());
    let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &group, 8, 4).expect("serves");
    assert_eq!(shown(&schedule, 3, 1), ["Send 2 4..8", "RecvInto 2 4..8"]);
    assert_eq!(
        shown(&schedule, 2, 1),
        ["RecvSum 3 4..8", "Send 0 4..6", "RecvSum 0 6..8", "Send 0 6..8", "RecvInto 0 4..6", "Send 3 4..8"]
    );
}

/// Two nodes of three of which leaders 0 and 3 alone get the sum: the others send to them, and nothing is sent down.
#[test]
fn sums_may_end_at_the_leaders() {
    let group = Group::nodes(&[3, 3]);
    let algorithm = Algorithm::hierarchical(Algorithm::ring());
    let of = |elements, chunk| {
        Schedule::new(&Collective::AllReduceToLeaders, &algorithm, &group, elements, chunk).expect("serves")
    };
    let star = of(8, 0);
    assert_eq!(
        shown(&star, 3, 0),
        ["RecvSum 4 0..8", "RecvSum 5 0..8", "Send 0 0..4", "RecvSum 0 4..8", "Send 0 4..8", "RecvInto 0 0..4"]
    );
    assert_eq!(shown(&star, 4, 0), ["Send 3 0..8"]);
    // 256 KiB and more come up a chain.
    let chain = of(1 << 16, 1 << 16);
    assert_eq!(shown(&chain, 4, 0), ["RecvSum 5 0..65536", "Send 3 0..65536"]);
    assert_eq!((star.rounds(), chain.rounds()), (2 + 1, 2 + 2));
    assert_eq!(
        (0..6).map(|member| star.receives(member)).collect::<Vec<_>>(),
        [true, false, false, true, false, false]
    );
    // Where each member is a node all are leaders.
    let flat = |collective| Schedule::new(&collective, &algorithm, &Group::flat(4), 8, 0).expect("serves");
    let (nodes, members) = (flat(Collective::AllReduceToLeaders), flat(Collective::AllReduce));
    assert!((0..4).all(|member| shown(&nodes, member, 0) == shown(&members, member, 0)));
}

/// The smallest uneven exchange: send ranges index rows, receive ranges columns.
#[test]
fn an_exchange_among_three() {
    let schedule = Schedule::new(&small_exchange(), &Algorithm::pairwise(), &Group::flat(3), 4, 0).expect("serves");
    // row 1 is 0, 1, 3 elements for 0, 1, 2; column 1 is 2, 1, 0 elements from 0, 1, 2
    assert_eq!(shown(&schedule, 1, 0), ["Send 1 0..1", "RecvInto 1 2..3", "Send 2 1..4", "RecvInto 0 0..2"]);
}

#[test]
fn shards_are_even_and_cover_everything() {
    for elements in 0..50 {
        for parts in 1..12 {
            let shards: Vec<_> = (0..parts).map(|index| shard(elements, parts, index)).collect();
            assert!(shards.iter().all(|shard| (shard.end - shard.start).abs_diff(elements / parts) <= 1));
            assert!(shards.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((shards[0].start, shards[parts as usize - 1].end), (0, elements));
        }
    }
    assert_eq!((shard(5, 0, 0), shard(5, 2, 2)), (5..5, 5..5));
}

/// A ring of 4,096 members is pulled lane by lane and never kept in memory.
#[test]
fn a_large_ring_is_pulled_lazily() {
    let schedule = allreduce("ring", 4096, 26_214_400, 0);
    assert!(size_of_val(&schedule) < 200 && size_of_val(&schedule.lane(0, 0)) < 200);
    let sent: u64 = schedule.lane(4095, 0).filter(|step| step.action == Action::Send).map(|step| step.elements()).sum();
    assert_eq!(sent, 2 * 26_214_400 * 4095 / 4096);
}
