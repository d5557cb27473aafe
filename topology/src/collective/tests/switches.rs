//! Tests sums in switches by their closed forms: what a member sends up and gets down, and what a node sends to others.

use super::super::{Action, Algorithm, Collective, Group, Schedule, check};

/// `algorithm` with `switches` among `contributors` members.
fn with_switches(
    collective: &Collective,
    algorithm: &str,
    contributors: u32,
    switches: u32,
    elements: u64,
) -> Schedule {
    let algorithm: Algorithm = algorithm.parse().expect("a known algorithm");
    assert_eq!(algorithm.switches(), switches);
    let group = Group::flat(contributors + switches);
    Schedule::new(collective, &algorithm, &group, elements, 100).expect("serves")
}

/// Elements that `member` gets from members for which `from` holds.
fn gets(schedule: &Schedule, member: u32, from: impl Fn(u32) -> bool) -> u64 {
    let steps = (0..schedule.lanes()).flat_map(|lane| schedule.lane(member, lane));
    steps.filter(|step| step.action != Action::Send && from(step.peer)).map(|step| step.elements()).sum()
}

/// n(1 + 1/p) up and n down for an allreduce, n and n/p for a reduce-scatter, n/p and n(p − 1)/p for an allgather.
#[test]
fn a_member_sends_its_buffer_once() {
    for p in [2u32, 3, 8] {
        let n = 240 * u64::from(p);
        let part = n / u64::from(p);
        for (collective, up, down, rounds) in [
            (Collective::AllReduce, n + part, n, 4),
            (Collective::ReduceScatter, n, part, 2),
            (Collective::AllGather, part, n - part, 2),
        ] {
            let schedule = with_switches(&collective, "nvls", p, 1, n);
            for member in 0..p {
                assert_eq!((schedule.elements_sent(member), gets(&schedule, member, |_| true)), (up, down));
            }
            assert_eq!(schedule.elements_sent(p), u64::from(p) * down, "each gets its own copy");
            assert_eq!(schedule.rounds(), rounds);
            check(&schedule).unwrap_or_else(|fault| panic!("{collective}: {fault}"));
        }
    }
}

/// Whatever their number, members are added in their order: ((0 + 1) + 2) + 3, as one process would.
#[test]
fn a_switch_adds_in_the_order_of_members() {
    let schedule = with_switches(&Collective::AllReduce, "nvls", 4, 1, 8);
    let sums = check(&schedule).expect("proven");
    let shown: Vec<String> = sums.ranges().map(|(_, id)| sums.describe(id).replace(['(', ')'], "")).collect();
    assert_eq!(shown, ["3+2+0+1"]);
}

/// A node sends and gets n between two nodes, and 2n at most among more; a member's own links carry n(1 + 1/s) up.
#[test]
fn nodes_exchange_their_sums_along_two_trees() {
    for nodes in 2u32..=9 {
        let (s, n) = (4u32, 3200);
        let schedule = with_switches(&Collective::AllReduce, &format!("nvls-tree:{nodes}"), s * nodes, nodes, n);
        let of_node = |node: u32| (node * s..(node + 1) * s).collect::<Vec<u32>>();
        let got: Vec<u64> = (0..nodes)
            .map(|node| {
                let outside = |from: u32| from < s * nodes && from / s != node;
                of_node(node).into_iter().map(|member| gets(&schedule, member, outside)).sum()
            })
            .collect();
        assert_eq!(got.iter().sum::<u64>(), 2 * n * u64::from(nodes - 1));
        assert!(got.iter().all(|got| *got <= if nodes == 2 { n } else { 2 * n }), "{nodes}: {got:?}");
        for member in 0..s * nodes {
            let switch = s * nodes + member / s;
            let steps = (0..schedule.lanes()).flat_map(|lane| schedule.lane(member, lane));
            let up = steps.filter(|step| step.action == Action::Send && step.peer == switch);
            assert_eq!(up.map(|step| step.elements()).sum::<u64>(), n + n / u64::from(s));
            assert_eq!(gets(&schedule, member, |from| from == switch), n);
        }
    }
}

/// A node of any size sends and receives n elements between nodes, in equal shares on all rails. Within a node, a member
/// inside the chain receives 2n. The switches add in the order of nodes.
#[test]
fn network_switches_receive_the_sum_of_each_node_once() {
    for (nodes, size, rails) in [(2u32, 4u32, 1u32), (3, 4, 2), (5, 8, 8), (4, 1, 1), (2, 3, 4)] {
        let n = 240 * u64::from(rails);
        let contributors = nodes * size;
        let schedule =
            with_switches(&Collective::AllReduce, &format!("collnet:{nodes}:{rails}"), contributors, rails, n);
        check(&schedule).unwrap_or_else(|fault| panic!("{nodes} x {size}, {rails}: {fault}"));
        for node in 0..nodes {
            let got: u64 = (node * size..(node + 1) * size)
                .map(|member| gets(&schedule, member, |from| from >= contributors))
                .sum();
            assert_eq!(got, n);
        }
        for rail in 0..rails {
            assert_eq!(gets(&schedule, contributors + rail, |_| true), u64::from(nodes) * n / u64::from(rails));
        }
        assert_eq!(schedule.rounds(), 2 * size);
    }
    for (nodes, size, rails) in [(2u32, 4u32, 1u32), (3, 4, 2), (5, 8, 8), (4, 1, 1), (3, 8, 4)] {
        let (contributors, n) = (nodes * size, 240 * u64::from(size));
        let name = format!("nvls-collnet:{nodes}:{rails}");
        let schedule = with_switches(&Collective::AllReduce, &name, contributors, nodes + rails, n);
        check(&schedule).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        for member in 0..contributors {
            let part = n / u64::from(size);
            assert_eq!(gets(&schedule, member, |from| from >= contributors + nodes), part);
            let inside = if size > 1 { n + part } else { 0 };
            assert_eq!(schedule.elements_sent(member), inside + part);
        }
        for rail in 0..rails {
            let taken = gets(&schedule, contributors + nodes + rail, |_| true);
            assert_eq!(taken, u64::from(nodes) * n / u64::from(rails));
        }
        assert_eq!(schedule.rounds(), if size > 1 { 6 } else { 2 });
    }
    let schedule = with_switches(&Collective::AllReduce, "collnet:3:1", 6, 1, 8);
    let sums = check(&schedule).expect("proven");
    let shown: Vec<String> = sums.ranges().map(|(_, id)| sums.describe(id)).collect();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].matches('+').count(), 5, "{}", shown[0]);
}
