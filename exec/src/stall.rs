//! Diagnoses a stalled job: the stuck collective, the ranks missing from it, and what each rank does.

use std::collections::BTreeMap;
use std::fmt::Write;

use lockstep_topology::Bytes;

use crate::flight::{Flight, FlightOperation};

/// Most ranks without a record that a report lists.
const MOST_NAMED: usize = 16;

/// Which ranks hold up a job, as far as the available records show.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// Ranks that others wait for and that wait for none themselves; empty where all wait in a cycle.
    pub culprits: Vec<u32>,
    /// The report, one line each: the collective, the ranks, the cause.
    pub report: String,
}

impl Flight {
    /// The current operation: of those not ended, the one that began first (an exchange that everything else queues
    /// behind).
    pub fn present(&self) -> Option<&FlightOperation> {
        self.operations.iter().find(|operation| operation.ended_s.is_none())
    }

    /// The operation that ended last.
    pub fn last_ended(&self) -> Option<&FlightOperation> {
        let ended = self.operations.iter().filter(|operation| operation.ended_s.is_some());
        ended.max_by(|a, b| a.ended_s.unwrap_or_default().total_cmp(&b.ended_s.unwrap_or_default()))
    }

    /// The operation that has begun and not ended and is not a collective, such as a computation.
    pub(crate) fn stuck_in(&self) -> Option<&FlightOperation> {
        self.operations.iter().rev().find(|operation| operation.ended_s.is_none() && operation.collective.is_none())
    }

    fn line(&self) -> String {
        let mut line = format!("rank {}: ", self.rank);
        let waits: Vec<String> = self.waits_for.iter().map(|rank| format!("rank {rank}")).collect();
        let idle = format!("{:.1} s", self.idle_s);
        let in_step = |operation: &FlightOperation| format!("`{}`, step {}", operation.name, operation.step);
        let said = match (self.stuck_in(), self.present()) {
            _ if self.over => line.write_str("has ended"),
            (Some(operation), _) => write!(line, "in {} for {idle}", in_step(operation)),
            (None, Some(operation)) if !waits.is_empty() => {
                write!(line, "waits in {} for {} since {idle}", in_step(operation), waits.join(", "))
            }
            (None, Some(operation)) => write!(line, "in {}, nothing moved for {idle}", in_step(operation)),
            (None, None) if !waits.is_empty() => {
                write!(line, "between two operations waits for {} since {idle}", waits.join(", "))
            }
            (None, None) => write!(line, "between two operations, nothing moved for {idle}"),
        };
        // Writing to a string does not fail.
        let _ = said;
        if let Some(last) = self.last_ended() {
            let _ = write!(line, "; last done: {}", in_step(last));
        }
        line
    }
}

/// Finds which rank waits for which and which ones are the cause, from the `flights` at hand; the job has `ranks`
/// ranks.
pub fn diagnose(flights: &[Flight], ranks: u32) -> Diagnosis {
    let known: BTreeMap<u32, &Flight> = flights.iter().map(|flight| (flight.rank, flight)).collect();
    let mut report = String::new();
    let live = || flights.iter().filter(|flight| !flight.over);
    // The earliest collective that any rank is in: later ones may only queue behind it.
    let open = live().flat_map(|flight| &flight.operations).filter(|one| one.ended_s.is_none());
    let stuck =
        open.filter_map(|one| Some((one.collective?, one.what.as_ref()?, one))).min_by_key(|(number, ..)| *number);
    let (mut missing, mut unknown) = (Vec::new(), Vec::new());
    if let Some((number, (method, bytes, first, last), operation)) = &stuck {
        let in_it = |flight: &&Flight| {
            let exchanges = flight.started.len() as u64;
            let (run, place) = (number / exchanges.max(1), number % exchanges.max(1));
            flight.started.get(place as usize).is_some_and(|started| u64::from(*started) > run)
        };
        let here = known.iter().filter(|(rank, _)| (*first..=*last).contains(rank));
        missing = here.clone().filter(|(_, flight)| !in_it(flight)).map(|(rank, _)| *rank).collect();
        // A job may have more ranks than a report has lines.
        unknown = (*first..=*last).filter(|rank| !known.contains_key(rank)).take(MOST_NAMED).collect();
        let others = (u64::from(*last) + 1).saturating_sub(u64::from(*first) + here.count() as u64);
        let who = |ranks: &[u32]| ranks.iter().map(|rank| rank.to_string()).collect::<Vec<_>>().join(", ");
        let _ = write!(
            report,
            "collective {number}: `{}`, step {}, {method}, {} among ranks {first} to {last}",
            operation.name,
            operation.step,
            Bytes(*bytes)
        );
        if !missing.is_empty() {
            let _ = write!(report, "; not begun by rank {}", who(&missing));
        }
        if !unknown.is_empty() {
            let _ = write!(report, "; nothing known here of rank {}", who(&unknown));
            if others > unknown.len() as u64 {
                let _ = write!(report, " and {} more", others - unknown.len() as u64);
            }
        }
        report.push('\n');
    }
    for flight in flights {
        let _ = writeln!(report, "{}", flight.line());
    }
    let culprits = culprits(&known, &missing, &unknown, ranks);
    let causes: Vec<String> = culprits
        .iter()
        .map(|rank| match known.get(rank).and_then(|flight| flight.stuck_in().or(flight.present())) {
            Some(one) => format!("rank {rank}, in `{}`, step {}", one.name, one.step),
            None if known.contains_key(rank) => format!("rank {rank}"),
            None => format!("rank {rank}, or the rank that it waits for, has no record here"),
        })
        .collect();
    let _ = match causes.is_empty() {
        true => write!(
            report,
            "cause: all wait for each other: a rank does its collectives in another order, or not all of them"
        ),
        false => write!(report, "cause: {}", causes.join("; ")),
    };
    Diagnosis { culprits, report }
}

/// The ranks at the ends of the chains of waits.
fn culprits(known: &BTreeMap<u32, &Flight>, missing: &[u32], unknown: &[u32], ranks: u32) -> Vec<u32> {
    let busy = |flight: &Flight| flight.stuck_in().is_some();
    let mut found: Vec<u32> =
        known.values().filter(|flight| !flight.over && busy(flight)).map(|one| one.rank).collect();
    if found.is_empty() {
        found = missing.to_vec();
    }
    if found.is_empty() {
        // A rank that is waited for and does not wait; ranks of other processes count as not waiting.
        let waited: Vec<u32> = known.values().flat_map(|flight| flight.waits_for.clone()).collect();
        let waits = |rank: &u32| known.get(rank).is_some_and(|flight| !flight.waits_for.is_empty());
        let blocked = waited.is_empty();
        found = waited.into_iter().filter(|rank| *rank < ranks && !waits(rank)).collect();
        // A blocking library call does not report which rank it waits for; suspect ranks without a record.
        if blocked {
            found = unknown.to_vec();
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(number: u64, collective: Option<u64>, ended_s: Option<f64>) -> FlightOperation {
        let name = if collective.is_some() { "allreduce" } else { "forward" }.to_owned();
        let what = collective.map(|_| ("ring".to_owned(), 1024, 0, 3));
        FlightOperation { number, name, step: 7, collective, what, begun_s: 1.0, ended_s, is_aside: false }
    }

    fn flight(rank: u32, operations: Vec<FlightOperation>, started: u32, waits_for: &[u32]) -> Flight {
        let waits_for = waits_for.to_vec();
        Flight { rank, operations, waits_for, idle_s: 2.0, over: false, started: vec![started] }
    }

    /// In a ring each rank waits for the one before: 3 for 2, 2 for 1, 0 for 3.
    #[test]
    fn the_rank_that_computes_is_the_cause() {
        let inside = |rank, peer| flight(rank, vec![operation(4, Some(7), None)], 8, &[peer]);
        let busy = flight(1, vec![operation(3, None, None)], 7, &[]);
        let found = diagnose(&[inside(0, 3), busy, inside(2, 1), inside(3, 2)], 4);
        assert_eq!(found.culprits, [1]);
        assert!(
            found
                .report
                .starts_with("collective 7: `allreduce`, step 7, ring, 1KiB among ranks 0 to 3; not begun by rank 1")
        );
        assert!(
            found.report.contains("rank 2: waits in `allreduce`, step 7 for rank 1 since 2.0 s"),
            "{}",
            found.report
        );
        assert!(found.report.ends_with("cause: rank 1, in `forward`, step 7"), "{}", found.report);
    }

    /// In a library's collective it is unknown which rank waits for which.
    #[test]
    fn in_a_blocking_call_the_rank_without_a_record_is_the_cause() {
        let inside = |rank| flight(rank, vec![operation(4, Some(7), None)], 8, &[]);
        assert_eq!(diagnose(&[inside(0), inside(1), inside(3)], 4).culprits, [2]);
        assert!(diagnose(&[inside(0), inside(1), inside(2), inside(3)], 4).report.contains("in another order"));
        // Only the first of many are named.
        let mut one = inside(0);
        one.operations[0].what = Some(("library:mpi".to_owned(), 4, 0, u32::MAX));
        let found = diagnose(&[one], u32::MAX);
        assert!(found.culprits.len() == MOST_NAMED && found.report.contains("and 4294967279 more"), "{}", found.report);
    }

    #[test]
    fn a_rank_without_a_record_at_the_end_of_the_chain_is_the_cause() {
        let inside = |rank, peer| flight(rank, vec![operation(4, Some(7), None)], 8, &[peer]);
        let found = diagnose(&[inside(0, 3), inside(2, 1), inside(3, 2)], 4);
        assert_eq!(found.culprits, [1]);
        assert!(found.report.contains("nothing known here of rank 1"), "{}", found.report);
        assert!(
            found.report.ends_with("cause: rank 1, or the rank that it waits for, has no record here"),
            "{}",
            found.report
        );
    }

    /// Between two operations learners of other processes request batches from rank 0.
    #[test]
    fn a_rank_that_does_not_answer_is_the_cause() {
        let asks = |rank| flight(rank, vec![operation(3, None, Some(1.5))], 7, &[0]);
        let found = diagnose(&[asks(1), asks(2)], 3);
        assert_eq!(found.culprits, [0]);
        assert!(
            found.report.contains("rank 2: between two operations waits for rank 0 since 2.0 s; last done: `forward`"),
            "{}",
            found.report
        );
        let busy = flight(0, vec![operation(3, None, None)], 7, &[]);
        assert!(diagnose(&[busy, asks(1)], 3).report.ends_with("cause: rank 0, in `forward`, step 7"));
    }

    #[test]
    fn a_cycle_has_no_cause_and_a_rank_that_skips_an_exchange_is_the_cause() {
        let inside = |rank, peer| flight(rank, vec![operation(4, Some(7), None)], 8, &[peer]);
        let circle = diagnose(&[inside(0, 1), inside(1, 2), inside(2, 3), inside(3, 0)], 4);
        assert!(
            circle.culprits.is_empty() && circle.report.contains("cause: all wait for each other"),
            "{}",
            circle.report
        );
        let ended = vec![operation(4, Some(6), Some(1.5))];
        let left_out = diagnose(&[inside(0, 1), inside(1, 2), flight(2, ended, 7, &[]), inside(3, 2)], 4);
        assert_eq!(left_out.culprits, [2]);
        assert!(left_out.report.ends_with("cause: rank 2"), "{}", left_out.report);
        let mut over = inside(2, 1);
        over.over = true;
        assert!(diagnose(&[over], 4).report.contains("rank 2: has ended"));
    }
}
