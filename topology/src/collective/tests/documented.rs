//! Compares the table of algorithms in `docs/collectives.md` with the registry and with the closed forms.

use super::super::{Algorithm, Collective, Group, Schedule};

/// Rounds, messages and elements of an algorithm for `p` members and `n` elements, as documented.
struct Row {
    collective: &'static str,
    algorithm: &'static str,
    /// Rounds.
    rounds: fn(u64) -> u64,
    /// Most elements sent by a member.
    most: fn(u64, u64) -> u64,
    /// Elements sent by all members together.
    total: fn(u64, u64) -> u64,
}

/// log2 p, for powers of two.
fn log(p: u64) -> u64 {
    u64::from(p.ilog2())
}

/// The table of `docs/collectives.md`, for p = 2, 4, 8, 16, 32 and n a multiple of p (and of the number of servers).
const TABLE: &[Row] = &[
    Row {
        collective: "allreduce",
        algorithm: "ring",
        rounds: |p| 2 * (p - 1),
        most: |p, n| 2 * n * (p - 1) / p,
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "halving-doubling",
        rounds: |p| 2 * log(p),
        most: |p, n| 2 * n * (p - 1) / p,
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "swing",
        rounds: |p| 2 * log(p),
        most: |p, n| 2 * n * (p - 1) / p,
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "binomial-tree",
        rounds: |p| 2 * log(p),
        most: |p, n| n * log(p),
        total: |p, n| 2 * n * (p - 1),
    },
    // Inner members have two below them and one above, from eight members on.
    Row {
        collective: "allreduce",
        algorithm: "tree:2",
        rounds: |p| 2 * log(p),
        most: |p, n| n * log(p).min(3),
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "pipelined-chain",
        rounds: |p| 2 * (p - 1),
        most: |p, n| if p == 2 { n } else { 2 * n },
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "parameter-server:1",
        rounds: |_| 2,
        most: |p, n| n * (p - 1),
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "parameter-server:2",
        rounds: |_| 2,
        most: |p, n| n / 2 * p,
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "parameter-server:1:dedicated",
        rounds: |_| 2,
        most: |p, n| n * (p - 1),
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "rings:4",
        rounds: |p| 2 * (p - 1),
        most: |p, n| 2 * n * (p - 1) / p,
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "double-tree:2",
        rounds: |p| 2 * log(p),
        most: |p, n| if p == 2 { n } else { 2 * n },
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "library:nccl",
        rounds: |p| 2 * (p - 1),
        most: |p, n| 2 * n * (p - 1) / p,
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "reduce-scatter",
        algorithm: "ring",
        rounds: |p| p - 1,
        most: |p, n| n * (p - 1) / p,
        total: |p, n| n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "recursive-halving",
        rounds: |p| 2 * log(p),
        most: |p, n| 2 * n * (p - 1) / p,
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "reduce-scatter",
        algorithm: "pat",
        rounds: log,
        most: |p, n| n * (p - 1) / p,
        total: |p, n| n * (p - 1),
    },
    Row {
        collective: "allgather",
        algorithm: "pat",
        rounds: log,
        most: |p, n| n * (p - 1) / p,
        total: |p, n| n * (p - 1),
    },
    Row {
        collective: "reduce-scatter",
        algorithm: "recursive-halving",
        rounds: log,
        most: |p, n| n * (p - 1) / p,
        total: |p, n| n * (p - 1),
    },
    Row {
        collective: "allgather",
        algorithm: "recursive-halving",
        rounds: log,
        most: |p, n| n * (p - 1) / p,
        total: |p, n| n * (p - 1),
    },
    Row {
        collective: "allgather",
        algorithm: "ring",
        rounds: |p| p - 1,
        most: |p, n| n * (p - 1) / p,
        total: |p, n| n * (p - 1),
    },
    Row {
        collective: "allreduce",
        algorithm: "direct",
        rounds: |_| 2,
        most: |p, n| 2 * n * (p - 1) / p,
        total: |p, n| 2 * n * (p - 1),
    },
    Row {
        collective: "reduce-scatter",
        algorithm: "direct",
        rounds: |_| 1,
        most: |p, n| n * (p - 1) / p,
        total: |p, n| n * (p - 1),
    },
    Row {
        collective: "allgather",
        algorithm: "direct",
        rounds: |_| 1,
        most: |p, n| n * (p - 1) / p,
        total: |p, n| n * (p - 1),
    },
    Row {
        collective: "scatter",
        algorithm: "direct",
        rounds: |_| 1,
        most: |p, n| n * (p - 1) / p,
        total: |p, n| n * (p - 1) / p,
    },
    Row { collective: "gather", algorithm: "direct", rounds: |_| 1, most: |p, n| n / p, total: |p, n| n * (p - 1) / p },
    Row {
        collective: "broadcast",
        algorithm: "binomial-tree",
        rounds: log,
        most: |p, n| n * log(p),
        total: |p, n| n * (p - 1),
    },
    Row {
        collective: "broadcast",
        algorithm: "pipelined-chain",
        rounds: |p| p - 1,
        most: |_, n| n,
        total: |p, n| n * (p - 1),
    },
    Row { collective: "reduce", algorithm: "binomial-tree", rounds: log, most: |_, n| n, total: |p, n| n * (p - 1) },
    Row {
        collective: "reduce",
        algorithm: "pipelined-chain",
        rounds: |p| p - 1,
        most: |_, n| n,
        total: |p, n| n * (p - 1),
    },
];

#[test]
fn the_documented_formulas_hold() {
    for row in TABLE {
        for p in [2u64, 4, 8, 16, 32] {
            let n = 3200;
            let algorithm: Algorithm = row.algorithm.parse().expect("a known algorithm");
            let group = Group::flat(p as u32);
            let collective: Collective = row.collective.parse().expect("a known collective");
            let schedule = Schedule::new(&collective, &algorithm, &group, n, n).expect("serves");
            let sent: Vec<u64> = (0..p as u32).map(|member| schedule.elements_sent(member)).collect();
            let name = format!("{collective} by {algorithm}, p = {p}");
            assert_eq!(u64::from(schedule.rounds()), (row.rounds)(p), "{name}");
            assert_eq!(sent.iter().copied().max(), Some((row.most)(p, n)), "{name}");
            assert_eq!(sent.iter().sum::<u64>(), (row.total)(p, n), "{name}");
        }
    }
}

#[test]
fn every_algorithm_has_a_documented_row() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/collectives.md");
    let text = std::fs::read_to_string(page).expect("the page of collectives");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    for (form, _) in Algorithm::forms() {
        let name = form.split(':').next().expect("a name");
        let starts = [format!("`{name}`"), format!("`{name}:")];
        assert!(rows.iter().any(|row| starts.iter().any(|start| row.contains(start))), "no row of {form} in {page}");
    }
}
