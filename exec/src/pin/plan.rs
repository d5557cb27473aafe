//! Plans which processors the ranks of a host use: a pure function of its processors, its ranks and their threads.
//!
//! Ranks are divided among the memory nodes in proportion to their cores, neighbours in the same node, so that all
//! memory channels are used and a ring leaves a node once. Within a node each rank gets its own cores as long as there
//! are enough, then hardware threads; where there are too few, all share the processors of their node, and the system
//! balances them: bound to one each, pipeline stages and a third rank on two cores would wait for it.

use std::collections::BTreeMap;

/// A processor as the operating system counts them: a core, or one of its hardware threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processor {
    /// The operating system's number.
    pub(crate) number: usize,
    /// The nearest memory node.
    pub(crate) node: usize,
    /// Its socket.
    pub(crate) package: usize,
    /// Its core, unique in the socket.
    pub(crate) core: usize,
}

/// A process of a host: the processors that it may use, and its number of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// Numbers of processors, ascending.
    pub(crate) allowed: Vec<usize>,
    /// Number of ranks in it.
    pub(crate) ranks: usize,
}

/// The processors of each rank of process number `own` among the `processes` of a host.
///
/// Processes that a launcher has bound to disjoint processors use these alone. Processes that may use the same
/// processors divide them among themselves. Where the sets overlap only in part, the division is left to the launcher:
/// ranks stay unbound.
pub(crate) fn of_process(
    processors: &[Processor],
    processes: &[Process],
    own: usize,
    threads: usize,
) -> Option<Vec<Vec<usize>>> {
    let allowed = &processes[own].allowed;
    let meets = |other: &Process| other.allowed.iter().any(|number| allowed.contains(number));
    if processes.iter().any(|other| meets(other) && other.allowed != *allowed) {
        return None;
    }
    let together = || processes.iter().enumerate().filter(|(_, process)| process.allowed == *allowed);
    let ranks = together().map(|(_, process)| process.ranks).sum();
    let before: usize = together().filter(|(number, _)| *number < own).map(|(_, process)| process.ranks).sum();
    let ours: Vec<Processor> = processors.iter().filter(|of| allowed.contains(&of.number)).copied().collect();
    let places = plan(&ours, ranks, threads);
    places.get(before..before + processes[own].ranks).map(<[Vec<usize>]>::to_vec)
}

/// The processors of each of `ranks` ranks with `threads` threads each; empty where there are no processors.
pub(crate) fn plan(processors: &[Processor], ranks: usize, threads: usize) -> Vec<Vec<usize>> {
    let threads = threads.max(1);
    let mut nodes: BTreeMap<(usize, usize), Vec<Processor>> = BTreeMap::new();
    for processor in processors {
        nodes.entry((processor.node, processor.package)).or_default().push(*processor);
    }
    let nodes: Vec<Cores> = nodes.into_values().map(Cores::of).collect();
    if nodes.is_empty() {
        return Vec::new();
    }
    let counts = divide(&nodes, ranks);
    // Ranks that are too large for a node spread over several, if these have enough processors together.
    let across = |room: fn(&Cores) -> usize| {
        let all: usize = nodes.iter().map(room).sum();
        ranks * threads <= all && nodes.iter().zip(&counts).any(|(node, count)| count * threads > room(node))
    };
    if across(|node| node.0.len()) || across(Cores::processors) {
        let all = Cores(nodes.into_iter().flat_map(|node| node.0).collect());
        return all.places(ranks, threads);
    }
    nodes.iter().zip(counts).flat_map(|(node, count)| node.places(count, threads)).collect()
}

/// The number of ranks on each node: each rank in turn goes where the most loaded core is then least loaded.
fn divide(nodes: &[Cores], ranks: usize) -> Vec<usize> {
    let mut counts = vec![0usize; nodes.len()];
    for _ in 0..ranks {
        let load = |at: &usize| (counts[*at] as u64 + 1) as f64 / nodes[*at].0.len() as f64;
        let next = (0..nodes.len()).min_by(|a, b| load(a).total_cmp(&load(b)));
        counts[next.unwrap_or(0)] += 1;
    }
    counts
}

/// Cores with their hardware threads.
struct Cores(Vec<Vec<usize>>);

impl Cores {
    fn of(processors: Vec<Processor>) -> Cores {
        let mut cores: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for processor in processors {
            cores.entry((processor.package, processor.core)).or_default().push(processor.number);
        }
        let mut cores: Vec<Vec<usize>> = cores.into_values().collect();
        cores.iter_mut().for_each(|core| core.sort_unstable());
        cores.sort_unstable();
        Cores(cores)
    }

    fn processors(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// The processors of each of `ranks` ranks.
    fn places(&self, ranks: usize, threads: usize) -> Vec<Vec<usize>> {
        let (cores, processors) = (self.0.len(), self.processors());
        // Spread evenly over the list, so that few ranks do not share what neighbouring cores share.
        let apart = |list: Vec<usize>| -> Vec<Vec<usize>> {
            let first = |rank: usize| rank * list.len() / ranks;
            (0..ranks).map(|rank| list[first(rank)..first(rank) + threads].to_vec()).collect()
        };
        if ranks * threads <= cores {
            return apart(self.0.iter().map(|core| core[0]).collect());
        }
        if ranks * threads <= processors {
            return apart(self.0.concat());
        }
        vec![self.0.concat(); ranks]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two sockets with these numbers of nodes, cores and threads, numbered as by Linux: all first threads, then all
    /// second ones.
    fn machine(nodes: usize, cores: usize, threads: usize) -> Vec<Processor> {
        let all = nodes * cores;
        let of = |number: usize| {
            let (core, node) = (number % all % cores, number % all / cores);
            Processor { number, node, package: node, core }
        };
        (0..all * threads).map(of).collect()
    }

    #[test]
    fn by_hand() {
        // Two sockets of four cores with two threads each: 0..4 and 8..12 on the first one, 4..8 and 12..16 on the second.
        let two = machine(2, 4, 2);
        assert_eq!(plan(&two, 1, 1), [[0]]);
        assert_eq!(plan(&two, 2, 1), [[0], [4]]);
        assert_eq!(plan(&two, 4, 1), [[0], [2], [4], [6]]);
        assert_eq!(plan(&two, 3, 1), [[0], [2], [4]]);
        assert_eq!(plan(&two, 2, 4), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        assert_eq!(plan(&two, 2, 8), [[0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]]);
        assert_eq!(plan(&two, 1, 8), [[0, 1, 2, 3, 4, 5, 6, 7]]);
        // Both threads of a core each, where ranks need two threads per core.
        assert_eq!(plan(&two, 8, 2)[..2], [[0, 8], [1, 9]]);
        // Eighteen ranks on sixteen threads: nine share each socket.
        let crowded = plan(&two, 18, 1);
        assert_eq!(crowded[..9], vec![vec![0, 8, 1, 9, 2, 10, 3, 11]; 9]);
        assert_eq!(crowded[9..], vec![vec![4, 12, 5, 13, 6, 14, 7, 15]; 9]);
        // Three ranks of eight threads on sixteen: each gets a socket.
        let shared = plan(&two, 3, 8);
        assert!(shared.iter().all(|place| place.len() == 8), "{shared:?}");
        // Two cores, four ranks.
        assert_eq!(plan(&machine(1, 2, 1), 4, 1), vec![vec![0, 1]; 4]);
        assert_eq!(plan(&[], 4, 1), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn processes_get_separate_processors() {
        let two = machine(2, 2, 1);
        let of = |allowed: &[usize], ranks| Process { allowed: allowed.to_vec(), ranks };
        let all = |processes: &[Process], threads| -> Vec<Option<Vec<Vec<usize>>>> {
            (0..processes.len()).map(|own| of_process(&two, processes, own, threads)).collect()
        };
        let one = |number: usize| Some(vec![vec![number]]);
        // Processes that are not bound: four processes of one rank each get one processor each.
        let free = of(&[0, 1, 2, 3], 1);
        assert_eq!(all(&vec![free.clone(); 4], 1), [one(0), one(1), one(2), one(3)]);
        assert_eq!(all(&[free.clone(), free], 1), [one(0), one(2)]);
        // Two processes of two ranks each.
        assert_eq!(
            all(&vec![of(&[0, 1, 2, 3], 2); 2], 1),
            [Some(vec![vec![0], vec![1]]), Some(vec![vec![2], vec![3]])]
        );
        // The launcher has bound them to cores, or to sockets.
        assert_eq!(all(&[of(&[3], 1), of(&[1], 1)], 1), [one(3), one(1)]);
        let sockets = [of(&[0, 1], 1), of(&[2, 3], 1), of(&[0, 1], 1), of(&[2, 3], 1)];
        assert_eq!(all(&sockets, 1), [one(0), one(2), one(1), one(3)]);
        // A process bound to part of another's processors, and that other, are left alone; a third one is planned.
        assert_eq!(all(&[of(&[0, 1], 1), of(&[1], 1), of(&[2], 1)], 1), [None, None, one(2)]);
    }

    fn machines() -> impl Strategy<Value = Vec<Processor>> {
        let sizes = (1usize..=4, 1usize..=6, 1usize..=2);
        // The processors left by a mask.
        (sizes, any::<u64>(), any::<bool>()).prop_map(|((nodes, cores, threads), mask, whole)| {
            let all = machine(nodes, cores, threads);
            let left: Vec<Processor> =
                all.iter().filter(|of| whole || mask >> (of.number % 64) & 1 == 1).copied().collect();
            if left.is_empty() { all } else { left }
        })
    }

    proptest! {
        #[test]
        fn every_rank_has_processors_and_sharing_is_minimal(
            machine in machines(),
            ranks in 1usize..40,
            threads in 1usize..6,
        ) {
            let places = plan(&machine, ranks, threads);
            prop_assert_eq!(places.len(), ranks);
            let mut loads: BTreeMap<usize, usize> = machine.iter().map(|of| (of.number, 0)).collect();
            for place in &places {
                prop_assert!(!place.is_empty());
                for number in place {
                    *loads.get_mut(number).expect("a processor of the machine") += 1;
                }
            }
            let core_of = |number: &usize| machine.iter().find(|of| of.number == *number).map(|of| (of.package, of.core));
            let cores: std::collections::BTreeSet<_> = machine.iter().map(|of| (of.package, of.core)).collect();
            if ranks * threads <= machine.len() {
                prop_assert!(places.iter().all(|place| place.len() == threads));
                prop_assert!(loads.values().all(|load| *load <= 1), "{:?}", places);
            }
            if ranks * threads <= cores.len() {
                let used: std::collections::BTreeSet<_> = places.iter().flatten().map(core_of).collect();
                prop_assert_eq!(used.len(), ranks * threads, "cores are shared though some are free: {:?}", places);
            }
        }

        /// Equal nodes have equally many ranks, neighbouring ranks share a node, and a processor has at most one rank
        /// or all of its node's.
        #[test]
        fn equal_nodes_have_equal_loads(
            nodes in 1usize..5, cores in 1usize..7, hyper in 1usize..3, ranks in 1usize..60,
        ) {
            let machine = machine(nodes, cores, hyper);
            let places = plan(&machine, ranks, 1);
            let node_of = |place: &Vec<usize>| machine.iter().find(|of| of.number == place[0]).map(|of| of.node);
            let of_ranks: Vec<_> = places.iter().map(node_of).collect();
            prop_assert!(of_ranks.is_sorted());
            let count = |node: usize| of_ranks.iter().filter(|of| **of == Some(node)).count();
            let counts: Vec<usize> = (0..nodes).map(count).collect();
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
            for of in &machine {
                let load = places.iter().filter(|place| place.contains(&of.number)).count();
                prop_assert!(load <= 1 || load == count(of.node), "{load} of {}: {places:?}", of.number);
            }
        }

        #[test]
        fn the_order_of_processors_does_not_matter(
            machine in machines(), ranks in 1usize..20, threads in 1usize..4, seed: u64,
        ) {
            let mut turned = machine.clone();
            let by = seed as usize % turned.len();
            turned.rotate_left(by);
            prop_assert_eq!(plan(&machine, ranks, threads), plan(&turned, ranks, threads));
        }
    }
}
