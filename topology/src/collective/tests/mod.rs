//! Tests of the collectives: all algorithms × all groups × all lengths, against the checker and against plain integers.

mod closed_forms;
mod mutants;
mod nestings;
mod proofs;
mod refusals;
mod shapes;
mod twin;

use std::sync::Arc;

use super::{Algorithm, Collective, Group, Library, Schedule};

/// Algorithms that serve an allreduce among any number of members.
fn allreduces() -> Vec<Algorithm> {
    let flat = [
        Algorithm::Ring,
        Algorithm::HalvingDoubling,
        Algorithm::BinomialTree,
        Algorithm::Tree { branching: 2 },
        Algorithm::Tree { branching: 5 },
        Algorithm::PipelinedChain,
        Algorithm::MultiColor { colors: 1 },
        Algorithm::MultiColor { colors: 3 },
        Algorithm::MultiColor { colors: 4 },
        Algorithm::ParameterServer { servers: 1, dedicated: false },
        Algorithm::Direct,
    ];
    let across = [Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::MultiColor { colors: 2 }];
    let levels = across.map(|across| Algorithm::Hierarchical(Box::new(across)));
    flat.into_iter().chain(levels).chain([Library::Mpi, Library::Nccl].map(Algorithm::Library)).collect()
}

/// Collectives and algorithms that serve `members`, with the roots, servers and counts that may make a difference.
fn cases(members: u32) -> Vec<(Collective, Algorithm)> {
    let mut cases: Vec<_> = allreduces().into_iter().map(|algorithm| (Collective::AllReduce, algorithm)).collect();
    for across in [Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::PipelinedChain] {
        cases.push((Collective::AllReduceOfNodes, Algorithm::Hierarchical(Box::new(across))));
    }
    for (servers, dedicated) in [(2, false), (members, false), (1, true), (3, true)] {
        if servers + u32::from(dedicated) <= members {
            cases.push((Collective::AllReduce, Algorithm::ParameterServer { servers, dedicated }));
        }
    }
    for algorithm in [Algorithm::Ring, Algorithm::Direct] {
        cases.push((Collective::ReduceScatter, algorithm.clone()));
        cases.push((Collective::AllGather, algorithm));
    }
    let mut roots = vec![0, members / 3, members - 1];
    roots.dedup();
    for root in roots {
        for algorithm in [Algorithm::BinomialTree, Algorithm::Tree { branching: 3 }, Algorithm::PipelinedChain] {
            cases.push((Collective::Broadcast { root }, algorithm.clone()));
            cases.push((Collective::Reduce { root }, algorithm));
        }
        cases.push((Collective::Scatter { root }, Algorithm::Direct));
        cases.push((Collective::Gather { root }, Algorithm::Direct));
    }
    cases
}

/// Uneven counts, some of them zero.
fn exchange(members: u32, scale: u64) -> Collective {
    let counts = (0..u64::from(members * members)).map(|pair| (pair * 7 + pair / 5) % 6 * scale);
    Collective::AllToAllV { counts: counts.collect::<Vec<u64>>().into() }
}

/// Parts of any size, some of them empty; or all elements with one member.
fn parts(members: u32, scale: u64) -> Vec<Arc<[u64]>> {
    let uneven = (0..u64::from(members)).map(|member| (member * 5 + 3) % 4 * scale).collect();
    let one = (0..members).map(|member| if member == members / 2 { 7 * scale } else { 0 }).collect();
    vec![uneven, one]
}

/// Elements that buffers need for an exchange.
fn longest(collective: &Collective, members: u32) -> u64 {
    let Collective::AllToAllV { counts } = collective else { return 0 };
    let p = members as usize;
    let row = |from: usize| (0..p).map(|to| counts[from * p + to]).sum::<u64>();
    let column = |to: usize| (0..p).map(|from| counts[from * p + to]).sum::<u64>();
    (0..p).map(|member| row(member).max(column(member))).max().unwrap_or(0)
}

/// The ways in which `members` are tested to share nodes.
fn groups(members: u32) -> Vec<Group> {
    let mut uneven = Vec::new();
    let mut left = members;
    while left > 0 {
        let size = (uneven.len() as u32 % 3 + 1).min(left);
        uneven.push(size);
        left -= size;
    }
    let mut even = vec![4; members as usize / 4];
    even.extend(Some(members % 4).filter(|rest| *rest > 0));
    vec![Group::nodes(&uneven), Group::nodes(&even), Group::nodes(&[members])]
}

/// Lengths that do not divide, shorter than the group, empty.
fn lengths(members: u32) -> [u64; 6] {
    [0, 1, 7, u64::from(members) - 1, 64, 1001]
}

/// Calls `test` with every schedule for groups of `members`.
fn every_schedule(members: u32, mut test: impl FnMut(&str, &Schedule)) {
    let mut each = |collective: &Collective, algorithm: &Algorithm, group: &Group, elements: u64, chunk: u64| {
        let name = format!("{collective} by {algorithm}, {elements} elements by {chunk}, {group:?}");
        match Schedule::new(collective, algorithm, group, elements, chunk) {
            Ok(schedule) => test(&name, &schedule),
            Err(refusal) => panic!("{name}: {refusal}"),
        }
    };
    for (collective, algorithm) in cases(members) {
        let groups = match algorithm {
            Algorithm::Hierarchical(_) => groups(members),
            _ => vec![Group::flat(members)],
        };
        for (group, elements) in groups.iter().flat_map(|group| lengths(members).map(|elements| (group, elements))) {
            for chunk in [0, elements.div_ceil(3), elements.div_ceil(4) + 1] {
                each(&collective, &algorithm, group, elements, chunk);
            }
        }
    }
    for (scale, chunk) in [(0, 0), (1, 0), (5, 4)] {
        for counts in parts(members, scale) {
            let elements = counts.iter().sum();
            let (gather, reduce) = (Arc::clone(&counts), counts);
            for collective in [Collective::AllGatherV { counts: gather }, Collective::ReduceScatterV { counts: reduce }]
            {
                each(&collective, &Algorithm::Direct, &Group::flat(members), elements, chunk);
            }
        }
    }
    for (scale, chunk) in [(0, 0), (1, 0), (3, 4)] {
        let collective = exchange(members, scale);
        let elements = longest(&collective, members);
        each(&collective, &Algorithm::Pairwise, &Group::flat(members), elements, chunk);
    }
}

/// Counts of an exchange among three: row 0 sends 1, 2, 0; row 1 sends 0, 1, 3; row 2 sends 2, 0, 1.
fn small_exchange() -> Collective {
    Collective::AllToAllV { counts: Arc::from([1, 2, 0, 0, 1, 3, 2, 0, 1]) }
}
