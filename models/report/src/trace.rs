//! Writes traces for Perfetto and chrome://tracing, with the same tracks and names for predicted and
//! measured timelines.
//!
//! The format is Chrome's trace event JSON: a process per rank, a thread per stream, a complete event ("X") per span,
//! times in microseconds. Exchanges of one rank may be in flight at once, so each takes the first free of its exchange
//! tracks: spans of one track never overlap. Times are written digit by digit from integer picoseconds, and stay exact.

use std::io::{self, Write};
use std::path::Path;

use lockstep_models::{Periodic, Program, Span, Stream, Timeline};
use lockstep_topology::{ErrorPlace, InputError, Time};

use crate::output::write_atomically;

/// The compute stream's thread number; exchange tracks follow.
const COMPUTE: usize = 0;
/// The thread numbers of input tasks, beyond all that exchanges may use.
const INPUT: usize = 1 << 20;

/// Runs to be shown side by side.
#[derive(Debug, Default)]
pub struct TraceFile {
    events: Vec<String>,
    processes: u32,
}

impl TraceFile {
    /// Nothing yet.
    pub fn new() -> TraceFile {
        TraceFile::default()
    }

    /// Adds a run; `label` (such as `predicted lenet, 2 ranks x 16, ring`) is put before the names of its ranks.
    pub fn add(&mut self, label: &str, program: &Program, periodic: &[(Periodic, Program)], timeline: &Timeline) {
        let ranks = program.ranks();
        let work = |kind| periodic.iter().find(|(of, _)| *of == kind).map(|(_, work)| work);
        let of_work = timeline.periodic.iter().filter_map(|run| Some((work(run.kind)?, &run.span)));
        let all = timeline.spans.iter().map(|span| (program, span)).chain(of_work);
        let mut of_rank: Vec<Vec<(&Program, &Span)>> = vec![Vec::new(); ranks as usize];
        for (of, span) in all.filter(|(_, span)| span.rank < ranks) {
            of_rank[span.rank as usize].push((of, span));
        }
        for (rank, mut spans) in (0..ranks).zip(of_rank) {
            let pid = self.processes + rank;
            self.name("process_name", pid, 0, &format!("{label}: rank {rank}"));
            spans.sort_by_key(|(_, span)| (span.start, span.end, span.task));
            // When each track is free again; the first is the compute stream's.
            let mut free = vec![Time::ZERO];
            let mut input = [false; Stream::INPUT.len()];
            for (of, span) in spans {
                let task = &of.roles[of.role_of(rank)].tasks[span.task as usize];
                let track = match task.stream {
                    Stream::Compute => COMPUTE,
                    Stream::Read | Stream::Decode | Stream::Upload => {
                        let number = task.stream.input().unwrap_or_default();
                        input[number] = true;
                        INPUT + number
                    }
                    Stream::Exchange | Stream::Receive | Stream::Synchronisation => {
                        let found = (COMPUTE + 1..free.len()).find(|track| free[*track] <= span.start);
                        found.unwrap_or_else(|| {
                            free.push(Time::ZERO);
                            free.len() - 1
                        })
                    }
                };
                if let Some(free) = free.get_mut(track) {
                    *free = span.end.max(*free);
                }
                self.events.push(format!(
                    "{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{pid},\"tid\":{track},\"ts\":{},\"dur\":{},\
                     \"args\":{{\"iteration\":{},\"repetition\":{},\"ready_us\":{}}}}}",
                    quoted(&task.name),
                    task.op.kind(),
                    micros(span.start),
                    micros(span.end - span.start),
                    span.iteration,
                    span.repetition,
                    micros(span.ready),
                ));
            }
            self.name("thread_name", pid, COMPUTE, "compute");
            for number in (0..input.len()).filter(|number| input[*number]) {
                self.name("thread_name", pid, INPUT + number, ["read", "decode", "upload"][number]);
            }
            for track in COMPUTE + 1..free.len() {
                let number = if track == COMPUTE + 1 { String::new() } else { format!(" {track}") };
                self.name("thread_name", pid, track, &format!("exchange{number}"));
            }
        }
        self.processes += ranks;
    }

    fn name(&mut self, what: &str, pid: u32, tid: usize, name: &str) {
        let name = quoted(name);
        self.events.push(format!(
            "{{\"name\":\"{what}\",\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{name}}}}}"
        ));
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// Whatever the writer reports.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        for (index, event) in self.events.iter().enumerate() {
            let end = if index + 1 == self.events.len() { "\n" } else { ",\n" };
            out.write_all(event.as_bytes())?;
            out.write_all(end.as_bytes())?;
        }
        out.write_all(b"]}\n")
    }

    /// Writes the file that `--trace` names, atomically.
    ///
    /// # Errors
    /// A place that cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), InputError> {
        write_atomically(ErrorPlace::Flag("trace"), path, |out| self.write(out))
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Picoseconds as a decimal number of microseconds.
fn micros(time: Time) -> String {
    format!("{}.{:06}", time.0 / 1_000_000, time.0 % 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use lockstep_models::{Bucket, Job};
    use serde_json::Value;

    use super::*;

    /// Spans of every task of every rank, exchanges in pairs that overlap.
    fn overlapping(program: &Program) -> Timeline {
        let mut spans = Vec::new();
        for rank in 0..program.ranks() {
            let role = &program.roles[program.role_of(rank)];
            for (task, at) in role.tasks.iter().enumerate() {
                let length = if matches!(at.stream, Stream::Exchange | Stream::Receive) { 25 } else { 10 };
                let start = Time(1_000_003 * 10 * task as u64);
                let end = start + Time(1_000_003 * length);
                let task = task as u32;
                spans.push(Span { rank, task, iteration: 0, repetition: 0, ready: start, start, end });
            }
        }
        Timeline::of(spans, 0)
    }

    #[test]
    fn a_trace_parses_and_its_tracks_do_not_overlap() {
        let job =
            Job { bucket: Bucket::Layer, ..Job::new(Arc::new(lockstep_readers::load_model("lenet").unwrap()), 3, 4) };
        let program = job.program().unwrap();
        let mut trace = TraceFile::new();
        for label in ["predicted", "measured \"twice\""] {
            trace.add(label, &program, &[], &overlapping(&program));
        }
        let mut text = Vec::new();
        trace.write(&mut text).unwrap();
        let json: Value = serde_json::from_slice(&text).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let mut tracks: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
        for event in events.iter().filter(|event| event["ph"] == "X") {
            let number = |key: &str| event[key].as_f64().unwrap();
            let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
            tracks.entry(track).or_default().push((number("ts"), number("ts") + number("dur")));
        }
        // Two runs of three ranks; exchanges overlap in pairs, so each rank has its compute and at least two
        // more tracks.
        assert!(tracks.len() >= 2 * 3 * 3, "{:?}", tracks.keys());
        for (track, spans) in tracks {
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-9), "track {track:?} overlaps");
        }
        let spans = events.iter().filter(|event| event["ph"] == "X").count();
        assert_eq!(spans, 2 * 3 * program.roles[0].tasks.len());
    }

    #[test]
    fn times_keep_every_picosecond() {
        assert_eq!(micros(Time(1_000_000_000_001)), "1000000.000001");
        assert_eq!(micros(Time(7)), "0.000007");
    }
}
