//! Finds out of which collective a table is, and among how many ranks.

use std::collections::BTreeSet;

use lockstep_topology::InputError;

use super::figures::{Figures, SLACK};
use super::runs::{Family, Run};
use super::{NcclLog, wrong};

/// A program of nccl-tests.
struct Program {
    name: &'static str,
    /// As commands name it.
    collective: &'static str,
    adds: bool,
    has_root: bool,
    /// Whether each rank has a part of the buffer on one side.
    divides: bool,
}

impl Program {
    /// Whether it has what the columns of a table say.
    fn is_like(&self, adds: Option<bool>, has_root: Option<bool>) -> bool {
        adds.is_none_or(|adds| adds == self.adds) && has_root.is_none_or(|has_root| has_root == self.has_root)
    }
}

const fn program(name: &'static str, collective: &'static str, [adds, has_root, divides]: [bool; 3]) -> Program {
    Program { name, collective, adds, has_root, divides }
}

const PROGRAMS: [Program; 8] = [
    program("all_reduce", "allreduce", [true, false, false]),
    program("reduce_scatter", "reduce-scatter", [true, false, true]),
    program("all_gather", "allgather", [false, false, true]),
    program("alltoall", "alltoallv", [false, false, true]),
    program("broadcast", "broadcast", [false, true, false]),
    program("reduce", "reduce", [true, true, false]),
    program("gather", "gather", [false, true, true]),
    program("scatter", "scatter", [false, true, true]),
];

/// Busbw / algbw of a collective among `ranks`, as nccl-tests define it.
fn factor(name: &str, ranks: u32) -> f64 {
    let n = f64::from(ranks);
    match name {
        "allreduce" => 2.0 * (n - 1.0) / n,
        "broadcast" | "reduce" => 1.0,
        _ => (n - 1.0) / n,
    }
}

/// Whether no collective among the listed ranks has this share, and one among more has.
pub(super) fn is_cut(run: &Run, listed: u32, share: (f64, f64)) -> bool {
    let (adds, has_root, _) = columns(run);
    let possible = || PROGRAMS.iter().filter(|program| program.is_like(adds, has_root));
    !possible().any(|program| has_share(program.collective, listed, share))
        && possible().any(|p| share.0 > factor(p.collective, listed) && share.0 < factor(p.collective, u32::MAX))
}

/// Whether the table's operation adds, whether it has a root, and which, as far as its columns say so. Versions before
/// 2.12 have a column only where it says something.
fn columns(run: &Run) -> (Option<bool>, Option<bool>, Option<i64>) {
    if run.columns.kind.is_none() || run.columns.has_units {
        return (None, None, None);
    }
    let cell = |at: Option<usize>| at.and_then(|at| run.rows.first()?.cells.get(at)).map(String::as_str);
    let adds = cell(run.columns.redop).is_some_and(|operation| !matches!(operation, "none" | ""));
    let root = cell(run.columns.root).and_then(|root| root.parse::<i64>().ok()).filter(|root| *root >= 0);
    (Some(adds), Some(root.is_some()), root)
}

/// Whether a collective among `ranks` has this share.
fn has_share(name: &str, ranks: u32, share: (f64, f64)) -> bool {
    let of = factor(name, ranks);
    of >= share.0 * (1.0 - SLACK / 3.0) && of <= share.1 * (1.0 + SLACK / 3.0)
}

/// Whether a collective can have this share among any number of ranks.
fn is_possible(name: &str, share: (f64, f64)) -> bool {
    let (least, most) = (factor(name, 2), factor(name, u32::MAX));
    share.1 * (1.0 + SLACK / 3.0) >= least && share.0 * (1.0 - SLACK / 3.0) <= most
}

/// The numbers of ranks that a collective with this share can have.
fn ranks_of(name: &str, share: (f64, f64)) -> Option<u32> {
    let double = if name == "allreduce" { 2.0 } else { 1.0 };
    if matches!(name, "broadcast" | "reduce") {
        return None;
    }
    let (least, most) = ((double / (double - share.0)).ceil(), (double / (double - share.1)).floor());
    (least >= 2.0 && least == most && least < 1e6).then_some(least as u32)
}

/// The collectives that the table can be of, by the rows' operations, roots and bandwidths, and the program's name.
pub(super) fn candidates(
    file: &str,
    run: &Run,
    all: &[Figures],
    share: Option<(f64, f64)>,
    log: &mut NcclLog,
) -> Result<Vec<String>, InputError> {
    let own = run.program.as_ref().map(|(family, name)| (*family, name.as_str()));
    if let Some((Family::Mpi, name)) = own {
        return mpi(file, run, name);
    }
    let own = own.map(|(_, name)| name);
    let unlike = ["sendrecv", "hypercube", "latency"];
    let (adds, has_root, root) = columns(run);
    let fits = |program: &&Program| {
        program.is_like(adds, has_root)
            && share.is_none_or(|share| match log.ranks {
                Some(ranks) => has_share(program.collective, ranks, share),
                None => is_possible(program.collective, share),
            })
    };
    let mut found: Vec<_> = PROGRAMS.iter().filter(fits).collect();
    if let Some(own) = own {
        if unlike.contains(&own) {
            let message = format!("is of {own}, which is no collective here: name the table of another program");
            return Err(wrong(file, run.line, "", message));
        }
        let named: Vec<_> = found.iter().filter(|p| own == p.name || own == p.collective).copied().collect();
        found = if named.is_empty() { found } else { named };
    } else if log.ranks.is_none_or(|ranks| ranks > 2) {
        by_count(run, all, log, &mut found);
    }
    if found.is_empty() {
        return Err(contradiction(file, run, share, log));
    }
    if log.ranks.is_none() {
        let told: BTreeSet<_> = found.iter().map(|p| share.and_then(|share| ranks_of(p.collective, share))).collect();
        log.ranks = told.first().copied().flatten().filter(|_| told.len() == 1);
    }
    let rooted = |root: Option<i64>, name: &str| {
        root.filter(|root| *root >= 0).map_or(name.to_owned(), |r| format!("{name}:{r}"))
    };
    Ok(found.iter().map(|p| rooted(root.filter(|_| p.has_root), p.collective)).collect())
}

/// Keeps those whose buffers are divided as the column of counts says, if it says so.
fn by_count(run: &Run, all: &[Figures], log: &NcclLog, found: &mut Vec<&'static Program>) {
    let (Some(at), Some(kind)) = (run.columns.count, run.columns.kind) else { return };
    let width = |kind: &str| match kind {
        "int8" | "uint8" | "char" => 1.0,
        "half" | "bfloat16" | "fp16" | "bf16" => 2.0,
        "double" | "int64" | "uint64" => 8.0,
        _ => 4.0,
    };
    let last = run.rows.iter().zip(all).next_back();
    let Some((count, f)) =
        last.and_then(|(row, f)| Some((row.cells.get(at)?.parse::<f64>().ok()? * width(row.cells.get(kind)?), f)))
    else {
        return;
    };
    let close = |a: f64, b: f64| (a - b).abs() <= 0.05 * b;
    let parts = log.ranks.map_or(f.bytes / count, f64::from);
    let divided = match (close(count, f.bytes), parts > 1.5 && close(count * parts, f.bytes)) {
        (true, false) => false,
        (false, true) => true,
        _ => return,
    };
    let kept: Vec<_> = found.iter().filter(|p| p.divides == divided).copied().collect();
    if !kept.is_empty() {
        *found = kept;
    }
}

/// The refusal of a table whose bandwidths, operations and ranks fit no collective.
fn contradiction(file: &str, run: &Run, share: Option<(f64, f64)>, log: &NcclLog) -> InputError {
    let share = share.map_or_else(String::new, |share| format!("busbw is {:.3} of algbw, ", (share.0 + share.1) / 2.0));
    let ranks = log.ranks.map_or_else(|| "unknown".to_owned(), |ranks| ranks.to_string());
    let message = format!(
        "{share}which with this redop and root is no collective among the log's ranks ({ranks}): keep the lines that \
         list the ranks of this table, and no others, and its columns as they were printed"
    );
    wrong(file, run.line, "", message)
}

/// The collective of OSU's or Intel's benchmark, whose sizes are those of one rank.
fn mpi(file: &str, run: &Run, name: &str) -> Result<Vec<String>, InputError> {
    match name {
        "allreduce" => Ok(vec!["allreduce".to_owned()]),
        "broadcast" | "bcast" => Ok(vec!["broadcast:0".to_owned()]),
        "reduce" => Ok(vec!["reduce:0".to_owned()]),
        _ => {
            let message = format!(
                "is of {name}, whose sizes are those of one rank's part or whose meaning differs: of OSU's and Intel's \
                 tables those of allreduce, bcast and reduce are compared"
            );
            Err(wrong(file, run.line, "", message))
        }
    }
}
