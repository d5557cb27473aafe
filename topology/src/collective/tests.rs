//! Tests the collectives: all algorithms × all groups × all lengths, against the checker and against plain integers.

mod channels;
mod closed_forms;
mod documented;
mod mutants;
mod nestings;
mod proofs;
mod reference;
mod refusals;
mod shapes;
mod switches;

use std::sync::Arc;

use super::algorithms::tests::with;
use super::{Algorithm, Collective, Group, Schedule};

/// Every algorithm that serves an allreduce among two members, and of which all members contribute.
fn allreduces() -> Vec<Algorithm> {
    let serves = |one: &Algorithm| one.serves(&Collective::AllReduce) && one.servers() == 0;
    with(&[1, 2], &[2]).into_iter().filter(serves).collect()
}

/// The collectives without counts, with the roots that may make a difference.
fn collectives(members: u32) -> Vec<Collective> {
    let mut all = vec![Collective::AllReduce, Collective::AllReduceToLeaders];
    all.extend([Collective::ReduceScatter, Collective::AllGather, Collective::AllToAll]);
    let mut roots = vec![0, members / 3, members - 1];
    roots.dedup();
    for root in roots {
        all.extend([Collective::Broadcast { root }, Collective::Reduce { root }]);
        all.extend([Collective::Scatter { root }, Collective::Gather { root }]);
    }
    all
}

/// The collectives with counts, their elements and chunks.
fn counted(members: u32) -> Vec<(Collective, u64, u64)> {
    let mut all = Vec::new();
    for (scale, chunk) in [(0, 0), (1, 0), (5, 4)] {
        for counts in parts(members, scale) {
            let elements = counts.iter().sum();
            all.push((Collective::AllGatherV { counts: Arc::clone(&counts) }, elements, chunk));
            all.push((Collective::GatherV { root: members / 2, counts: Arc::clone(&counts) }, elements, chunk));
            all.push((Collective::ReduceScatterV { counts }, elements, chunk));
        }
    }
    for (scale, chunk) in [(0, 0), (1, 0), (3, 4)] {
        let collective = exchange(members, scale);
        let elements = longest(&collective, members);
        all.push((collective, elements, chunk));
    }
    all
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

/// Numbers of members up to 33: all of them in a thorough run, else the small ones and those beside powers of two.
fn sizes() -> Vec<u32> {
    let thorough = std::env::var_os("LOCKSTEP_THOROUGH").is_some();
    (1..=33).filter(|members| thorough || *members <= 9 || [12, 15, 16, 17, 24, 31, 32, 33].contains(members)).collect()
}

/// Calls `test` with every schedule of the registry for groups of `members`.
fn every_schedule(members: u32, mut test: impl FnMut(&str, &Schedule)) {
    let mut each = |collective: &Collective, algorithm: &Algorithm, group: &Group, elements: u64, chunk: u64| {
        let name = format!("{collective} by {algorithm}, {elements} elements by {chunk}, {group:?}");
        match Schedule::new(collective, algorithm, group, elements, chunk) {
            Ok(schedule) => test(&name, &schedule),
            // only numbers may ask for more members
            Err(_) if algorithm.servers() >= members => {}
            Err(_) if algorithm.to_string().contains(|letter: char| letter.is_ascii_digit()) => {}
            Err(refusal) => panic!("{name}: {refusal}"),
        }
    };
    for algorithm in with(&[1, 2, 3, 4, 5], &[2]) {
        let groups = if algorithm.by_nodes() { groups(members) } else { vec![Group::flat(members)] };
        for collective in collectives(members).iter().filter(|collective| algorithm.serves(collective)) {
            for (group, elements) in groups.iter().flat_map(|group| lengths(members).map(|elements| (group, elements)))
            {
                for chunk in [0, elements.div_ceil(3), elements.div_ceil(4) + 1] {
                    each(collective, &algorithm, group, elements, chunk);
                }
            }
        }
        for (collective, elements, chunk) in counted(members).iter().filter(|(one, ..)| algorithm.serves(one)) {
            groups.iter().for_each(|group| each(collective, &algorithm, group, *elements, *chunk));
        }
    }
}

/// Counts of an exchange among three: row 0 sends 1, 2, 0; row 1 sends 0, 1, 3; row 2 sends 2, 0, 1.
fn small_exchange() -> Collective {
    Collective::AllToAllV { counts: Arc::from([1, 2, 0, 0, 1, 3, 2, 0, 1]) }
}
