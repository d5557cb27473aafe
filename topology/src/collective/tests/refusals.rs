//! Tests that impossible schedules are refused with the cure.

use std::sync::Arc;

use super::super::{Algorithm, Collective, Group, Schedule};

#[test]
fn unsuitable_algorithms_are_refused_with_the_cure() {
    let nodes = Group::nodes(&[2, 0, 2]);
    let counts: Arc<[u64]> = Arc::from([1, 1, 1, 1]);
    let few: Arc<[u64]> = Arc::from([1, 1, 1]);
    let huge: Arc<[u64]> = Arc::from([u64::MAX, 1, 1, 1]);
    let (reduce, broadcast) = (Collective::Reduce { root: 4 }, Collective::Broadcast { root: 0 });
    let exchange = |counts: &Arc<[u64]>| Collective::AllToAllV { counts: Arc::clone(counts) };
    let sum = Collective::AllReduce;
    for (collective, algorithm, group, chunk, cure) in [
        (&sum, "ring", &Group::flat(0), 0, "1 to 2^30 members"),
        (&sum, "pairwise", &Group::flat(4), 0, "does not serve allreduce: use ring, halving-doubling"),
        (
            &broadcast,
            "ring",
            &Group::flat(4),
            0,
            "use binomial-tree, tree:4, pipelined-chain, library:nccl or library:rccl",
        ),
        (
            &Collective::AllGather,
            "halving-doubling",
            &Group::flat(4),
            0,
            "use ring, rings:4, nvls, direct, recursive-halving, pat, library:nccl or library:rccl",
        ),
        (
            &Collective::AllGatherV { counts: few.clone() },
            "direct",
            &Group::flat(2),
            0,
            "2 members need as many counts",
        ),
        (&Collective::AllGatherV { counts: few.clone() }, "direct", &Group::flat(3), 0, "must add up to"),
        (&Collective::ReduceScatterV { counts: few.clone() }, "ring", &Group::flat(3), 0, "use direct"),
        (&Collective::Scatter { root: 4 }, "direct", &Group::flat(4), 0, "scatter:4: there are 4 members: use a root"),
        (&Collective::Gather { root: 0 }, "ring", &Group::flat(4), 0, "use direct"),
        (&reduce, "binomial-tree", &Group::flat(4), 0, "reduce:4: there are 4 members: use a root from 0 to 3"),
        (&sum, "parameter-server:5", &Group::flat(4), 0, "use at most 4"),
        (&sum, "parameter-server:4:dedicated", &Group::flat(4), 0, "use at most 3"),
        (&sum, "parameter-server:1:dedicated", &Group::flat(1), 0, "no dedicated server"),
        (&sum, "nvls", &Group::flat(1), 0, "0 members with data and 1 switches: use at least one"),
        (&sum, "nvls-tree:3", &Group::flat(5), 0, "2 members with data and 3 switches: use at least a node each"),
        (&sum, "hierarchical:nvls", &Group::flat(4), 0, "hierarchical:nvls"),
        (&sum, "hierarchical:ring", &nodes, 0, "node 1 has no member"),
        (&sum, "hierarchical:parameter-server:1:dedicated", &Group::flat(4), 0, "hierarchical:parameter-server:1"),
        (&sum, "hierarchical:library:mpi", &Group::flat(4), 0, "use `library:mpi` alone"),
        (
            &broadcast,
            "hierarchical:binomial-tree",
            &Group::flat(4),
            0,
            "hierarchical:binomial-tree: does not serve broadcast: use binomial-tree, tree:4",
        ),
        (&exchange(&few), "pairwise", &Group::flat(2), 0, "2 members need 4 counts and there are 3"),
        (&exchange(&huge), "pairwise", &Group::flat(2), 0, "add up to more than 2^64"),
        (&exchange(&counts), "ring", &Group::flat(2), 0, "use pairwise"),
        (&sum, "ring", &Group::flat(4), 1, "use a chunk of at least 4MiB"),
        (&sum, "multi-color:4", &Group::flat(4), 1, "use a chunk of at least 4MiB"),
    ] {
        let algorithm: Algorithm = algorithm.parse().expect("a known algorithm");
        let refusal = Schedule::new(collective, &algorithm, group, 1 << 40, chunk);
        let message = refusal.map(|_| ()).expect_err(cure).to_string();
        assert!(message.contains(cure), "{algorithm}: {message}");
    }
}

#[test]
fn an_exchange_needs_buffers_as_long_as_its_rows_and_columns() {
    let collective = super::small_exchange();
    let refusal = Schedule::new(&collective, &Algorithm::pairwise(), &Group::flat(3), 3, 0).expect_err("row 1 has 4");
    assert!(refusal.message.contains("4 elements and the buffers have 3"), "{refusal}");
}

#[test]
fn collectives_are_read_by_name() {
    for name in ["allreduce", "reduce-scatter", "allgather", "broadcast:2", "reduce:0"] {
        assert_eq!(name.parse::<Collective>().map(|c| c.to_string()).as_deref(), Ok(name));
    }
    assert_eq!("broadcast".parse(), Ok(Collective::Broadcast { root: 0 }));
    for (name, cure) in [
        ("allreduse", "allreduce"),
        ("reduce:x", "reduce:0"),
        ("alltoallv", "count"),
        ("allgatherv", "count"),
        ("ring", "did you"),
    ] {
        let refusal = name.parse::<Collective>().expect_err(name).to_string();
        assert!(refusal.contains(cure), "{refusal}");
    }
}
