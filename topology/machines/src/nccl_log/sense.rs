//! Finds out what a table measured, from its rows, its ranks and its program, and refuses what contradicts itself.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_topology::{Bytes, InputError};

use super::collectives::{candidates, is_cut};
use super::figures::{CLEAR, Figures, SLACK, figures, share};
use super::runs::Run;
use super::{MeasuredSize, NcclLog, wrong};

/// The cure where ranks did not talk to each other.
const TALK: &str = "nccl-tests that are built without MPI=1 run each process alone: build them with make MPI=1, or give \
                    one process several GPUs (-g)";

/// Refuses a table of single ranks.
pub(super) fn check_talking(file: &str, run: &Run) -> Result<(), InputError> {
    if run.columns.is_of_cpu {
        let message = "is of the CPU's times (cputime), in which calls return: measure without -C";
        return Err(wrong(file, run.line, "", message));
    }
    let first = run.ranks.iter().filter(|rank| rank.rank == 0);
    let zeros: BTreeSet<(Option<u64>, &str, &str)> = first.map(|r| (r.pid, &*r.host, &*r.device)).collect();
    let groups: BTreeSet<u32> = run.ranks.iter().map(|rank| rank.group).collect();
    if zeros.len() > groups.len().max(1) {
        let message = format!("lists {} ranks 0: they did not talk to each other. {TALK}", zeros.len());
        return Err(wrong(file, run.line, "", message));
    }
    if groups.len() > 1 {
        let message = format!("is of {} groups of ranks side by side (NCCL_TESTS_SPLIT)", groups.len());
        return Err(wrong(file, run.line, "", format!("{message}: measure one group, without that setting")));
    }
    let mut all = Vec::new();
    for row in &run.rows {
        all.push(figures(file, run, row)?.0);
    }
    let largest = all.iter().filter_map(|f| Some((f.algbw?.0, f.busbw?.0))).max_by(|a, b| a.0.total_cmp(&b.0));
    // The list may be cut short; what came over the bus tells more.
    let alone = match largest {
        Some((algbw, busbw)) if algbw >= 0.1 => busbw == 0.0,
        _ => run.ranks.len() == 1,
    };
    if alone {
        let message = "is of one rank, whose bus bandwidth is 0: nothing was sent";
        return Err(wrong(file, run.line, "", format!("{message}. {TALK}")));
    }
    Ok(())
}

/// What the run's table says.
pub(super) fn of_run(file: &str, run: &Run) -> Result<NcclLog, InputError> {
    let mut log = NcclLog { line: run.line, version: run.version, ..NcclLog::default() };
    let mut all = Vec::new();
    for row in &run.rows {
        let (of_row, in_place) = figures(file, run, row)?;
        if in_place {
            note(&mut log.notes, "where the log has no time out of place, the time in place is compared".to_owned());
        }
        all.push(of_row);
    }
    // A replay leaves the figures out of place blank; other output may also have cut a row off.
    let has_both = run.columns.times.len() == 2;
    let once = run.rows.iter().filter(|row| has_both && row.cells.len() <= run.columns.times[1]).count();
    if once > 0 {
        let message = format!(
            "{once} of the log's rows have figures once, where the header has them out of place and in place: taken as out of place"
        );
        note(&mut log.notes, message);
    }
    if run.in_place_only {
        note(&mut log.notes, "the log has times in place alone, which are compared".to_owned());
    }
    let listed = distinct_ranks(run);
    (log.is_listed, log.ranks) = (listed.is_some(), listed.or(run.stated_ranks));
    hosts_and_gpu(run, &mut log);
    let share = share(&all);
    if let Some((listed, share)) = listed.zip(share)
        && is_cut(run, listed, share)
    {
        (log.is_listed, log.ranks, log.ranks_per_host) = (false, run.stated_ranks, None);
        note(&mut log.notes, format!("the log lists {listed} ranks and has bandwidths of more: its list is cut short"));
    }
    if let Some(ranks) = log.ranks.filter(|ranks| *ranks < 2) {
        (log.is_listed, log.ranks, log.ranks_per_host) = (false, None, None);
        note(&mut log.notes, format!("the log states {ranks} ranks, between which nothing is sent: that is left out"));
    }
    log.collectives = candidates(file, run, &all, share, &mut log)?;
    let per_unit = unit(run, &all, &mut log);
    let sizes = all.iter().map(|f| MeasuredSize { bytes: Bytes(f.bytes as u64), time_us: f.time.0 * per_unit });
    log.sizes = sizes.filter(|size| size.bytes.0 >= 4).collect();
    if log.sizes.is_empty() {
        return Err(wrong(file, run.line, "", "has no size of at least 4 bytes: measure larger ones"));
    }
    described(run, &mut log);
    Ok(log)
}

/// Notes on types, operations and results that the prediction does not distinguish.
fn described(run: &Run, log: &mut NcclLog) {
    let set = |at: Option<usize>| -> BTreeSet<&str> {
        run.rows.iter().filter_map(|row| row.cells.get(at?)).map(String::as_str).collect()
    };
    let join = |of: &BTreeSet<&str>| of.iter().copied().collect::<Vec<_>>().join(", ");
    let kinds = set(run.columns.kind);
    if kinds.iter().any(|kind| !matches!(*kind, "float" | "fp32" | "float32" | "f32")) {
        note(&mut log.notes, format!("the log's type is {}: predicted for as many bytes of fp32", join(&kinds)));
    }
    let operations = set(run.columns.redop);
    if operations.iter().any(|of| !matches!(*of, "sum" | "none")) {
        note(&mut log.notes, format!("the log's operation is {}: predicted as a sum", join(&operations)));
    }
    if run.has_failed {
        note(
            &mut log.notes,
            "the log says that results were wrong (out of bounds values): its times may mean nothing".to_owned(),
        );
    }
}

fn note(notes: &mut Vec<String>, text: String) {
    if !notes.contains(&text) {
        notes.push(text);
    }
}

/// The number of ranks that the run lists.
fn distinct_ranks(run: &Run) -> Option<u32> {
    let ranks: BTreeSet<u32> = run.ranks.iter().map(|rank| rank.rank).collect();
    (!ranks.is_empty()).then_some(ranks.len() as u32)
}

/// Reads hosts and GPUs off the lines of the ranks.
fn hosts_and_gpu(run: &Run, log: &mut NcclLog) {
    let ranks: BTreeMap<u32, (&str, &str)> = run.ranks.iter().map(|r| (r.rank, (&*r.host, &*r.gpu))).collect();
    let mut hosts = BTreeMap::<&str, u32>::new();
    ranks.values().for_each(|(host, _)| *hosts.entry(host).or_default() += 1);
    let counts: BTreeSet<u32> = hosts.values().copied().collect();
    log.ranks_per_host = counts.first().copied().filter(|_| counts.len() == 1 && !hosts.contains_key(""));
    let gpus: BTreeSet<&str> = ranks.values().map(|(_, gpu)| *gpu).filter(|gpu| !gpu.is_empty()).collect();
    match gpus.len() {
        1 => log.gpu = gpus.first().map(|gpu| (*gpu).to_owned()),
        0 => {}
        _ => {
            let all = gpus.iter().copied().collect::<Vec<_>>().join(", ");
            note(&mut log.notes, format!("the log's ranks have different GPUs: {all}; the cluster's are predicted"));
        }
    }
}

/// Microseconds in a unit of the table's times, and a note where its columns contradict each other.
fn unit(run: &Run, all: &[Figures], log: &mut NcclLog) -> f64 {
    let of = |f: &Figures| {
        let (algbw, around) = f.algbw.filter(|(algbw, _)| *algbw >= CLEAR)?;
        let by_time = f.bytes / f.time.0 * 1e-3;
        let rounding = around / algbw + f.time.1 / f.time.0 + SLACK;
        Some((by_time / algbw, rounding))
    };
    let ratios: Vec<(f64, f64)> = all.iter().filter_map(of).collect();
    let all_are = |factor: f64| ratios.iter().all(|(ratio, rounding)| (ratio / factor - 1.0).abs() <= *rounding);
    let stated = if run.is_in_ms { 1000.0 } else { 1.0 };
    if ratios.is_empty() || all_are(stated) {
        return stated;
    }
    if let Some(other) = [1.0, 1000.0, 1e6].into_iter().find(|factor| all_are(*factor)) {
        note(&mut log.notes, format!("by the log's bandwidths, its times are in units of {other} us"));
        return other;
    }
    let odd = ratios.iter().filter(|(ratio, rounding)| (ratio / stated - 1.0).abs() > *rounding).count();
    let message = format!(
        "{odd} of the log's rows have an algbw that is not size / time: their sizes and times are taken as printed"
    );
    note(&mut log.notes, message);
    stated
}
