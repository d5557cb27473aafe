//! Runs the watchdog: one thread per process, which reads the flight recorders and ends a job that makes no progress.
//!
//! A rank that waits for messages gives up by itself at the stall limit. The watchdog is for everything else: an
//! operation that never returns, a call into MPI that blocks, ranks that wait for each other outside of exchanges,
//! threads that do not end.

use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::error::ExecError;
use crate::flight::{Flight, Flights};
use crate::observer::Observer;
use crate::patience::ASIDE;
use crate::stall::diagnose;

/// Stall limits that a rank in an operation gets: its waiting peers give up after one.
const IN_OPERATION: f64 = 2.0;
/// How long threads may take to end after the job was given up.
const GRACE: Duration = Duration::from_secs(1);
/// Longest interval between two checks.
const LOOK: Duration = Duration::from_millis(200);

/// State shared by the ranks of a process and its watchdog.
pub(crate) struct Guard<'a> {
    pub flights: Flights<'a>,
    /// A wait without progress for this long ends the run.
    pub limit: Duration,
    observer: &'a dyn Observer,
    /// When the job was given up, and why.
    given_up: OnceLock<(Instant, ExecError)>,
}

impl<'a> Guard<'a> {
    pub(crate) fn new(flights: Flights<'a>, limit: Duration, observer: &'a dyn Observer) -> Guard<'a> {
        Guard { flights, limit, observer, given_up: OnceLock::new() }
    }

    /// Gives up the job because `rank` has made no progress for `seconds`; the first call notifies the observer.
    pub(crate) fn give_up(&self, rank: u32, seconds: f64) -> ExecError {
        let mut first = false;
        let (_, error) = self.given_up.get_or_init(|| {
            first = true;
            let report = diagnose(&self.flights.read(), self.flights.ranks()).report;
            (Instant::now(), ExecError::Stall { rank, seconds, report })
        });
        if first {
            self.observer.record(&self.flights.read());
            self.observer.stalled(error);
        }
        error.clone()
    }

    /// Runs `work` on this thread while the watchdog watches.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            let (working, ended) = mpsc::channel::<()>();
            scope.spawn(move || self.look(&ended));
            let result = work();
            drop(working);
            result
        })
    }

    /// What a rank of this process was doing when it ended, in words.
    pub(crate) fn place(&self, rank: u32) -> String {
        let flights = self.flights.read();
        let flight = flights.iter().find(|flight| flight.rank == rank);
        match flight.and_then(|flight| flight.stuck_in().or(flight.present()).or(flight.last_ended())) {
            Some(one) => format!("in `{}`, step {}, begun {:.3} s after the start", one.name, one.step, one.begun_s),
            None => "before the first step".to_owned(),
        }
    }

    /// Checks periodically until the other end of `ended` is dropped.
    fn look(&self, ended: &Receiver<()>) {
        let (mut reported, mut recorded) = (false, false);
        loop {
            match ended.recv_timeout(LOOK.min(self.limit / 4)) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return,
            }
            if self.observer.asks() {
                self.observer.record(&self.flights.read());
            }
            // A rank that does not return may be ended with its process before its error is reported.
            let silent = self.given_up.get().is_none() && self.silent(1.0).is_some();
            if silent && !recorded {
                self.observer.record(&self.flights.read());
            }
            recorded = silent;
            match self.given_up.get() {
                Some((since, error)) if !reported && since.elapsed() > GRACE && !self.flights.all_over() => {
                    reported = true;
                    self.observer.stuck(error);
                }
                Some(_) => {}
                None => {
                    if let Some((rank, seconds)) = self.silent(IN_OPERATION) {
                        self.give_up(rank, seconds);
                    }
                }
            }
        }
    }

    /// A rank without progress for `limits` stall limits, or for more where it is in no task.
    fn silent(&self, limits: f64) -> Option<(u32, f64)> {
        let limit = self.limit.as_secs_f64();
        let most = |flight: &Flight| {
            let aside = flight.present().is_some_and(|operation| operation.is_aside);
            limit * if aside { f64::from(ASIDE) } else { limits }
        };
        // Reading all operations takes a moment; most checks end here.
        if self.flights.longest_still_s() <= limit {
            return None;
        }
        let flights = self.flights.read();
        let silent = flights.iter().filter(|flight| !flight.over && flight.idle_s > most(flight));
        silent.map(|flight| (flight.rank, flight.idle_s)).max_by(|a, b| a.1.total_cmp(&b.1))
    }
}
