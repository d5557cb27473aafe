//! `run`: predicts the points of a sweep on several threads, in the order of their rows; and estimates how long a large
//! sweep takes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockstep_topology::{Cluster, ErrorPlace, InputError};

use super::collector::Collector;
use super::points::Points;
use lockstep_experiment::THIS_MACHINE;
use lockstep_experiment::sweep::Sweep;
use lockstep_report::failure::Failure;
use lockstep_report::progress::Estimate;

/// Points that an estimate times at most.
const SAMPLES: u32 = 8;
/// An estimate that has taken this long times no further point.
const PATIENCE: Duration = Duration::from_secs(4);

/// Predicts every point that `collector` has no row for, on `jobs` threads.
///
/// Points are handed out in the order of their rows, so only a few rows at any moment are out of order.
///
/// # Errors
/// A simulation that deadlocks, a file that cannot be written.
pub fn run(points: &Points<'_>, collector: &Collector, jobs: usize, estimate: &Estimate) -> Result<(), Failure> {
    let (first, order) = (collector.done(), collector.order());
    let next = AtomicU32::new(first);
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(point) = order.get(place as usize).copied().filter(|_| collector.may_start(place)) else { return };
            let label = |point, ranks| points.label(point, ranks);
            if collector.plan().same_as.contains_key(&point) {
                collector.put(place, None, label);
                continue;
            }
            match points.row(point, order[collector.done() as usize]) {
                Ok(row) => {
                    let share = f64::from(place - first) / (order.len() as f64 - f64::from(first));
                    estimate.show(share, &format!("point {point} of {}", points.count()));
                    collector.put(place, Some(row), label);
                }
                Err(failure) => return collector.stop(failure),
            }
        }
    };
    estimate.beside(|| {
        std::thread::scope(|scope| {
            for _ in 1..jobs {
                scope.spawn(work);
            }
            work();
        });
    });
    estimate.end();
    collector.end()
}

/// About how many seconds the points of `order` take on `jobs` threads, and how many of them, spread evenly, were
/// timed for that.
///
/// # Errors
/// A simulation that deadlocks.
pub fn estimate(points: &Points<'_>, order: &[u32], jobs: usize) -> Result<(f64, u32), Failure> {
    let (begun, all) = (Instant::now(), order.len() as u32);
    let mut timed = 0;
    for sample in 0..SAMPLES.min(all) {
        let place = (u64::from(sample) * u64::from(all) / u64::from(SAMPLES.min(all))) as usize;
        points.row(order[place], order[place])?;
        timed += 1;
        if begun.elapsed() > PATIENCE {
            break;
        }
    }
    let each = begun.elapsed().as_secs_f64() / f64::from(timed.max(1));
    Ok((each * f64::from(all) / jobs as f64, timed))
}

/// Refuses unknown clusters, and scales that none of the clusters has the figures of, before anything is predicted.
///
/// # Errors
/// As above.
pub fn check(sweep: &Sweep) -> Result<(), InputError> {
    let mut untouched: Vec<_> = sweep.scales.iter().collect();
    for entry in 0..sweep.entries.len() {
        // The second size of an entry has a network even where a single host has none.
        let sizes = sweep.places.iter().filter(|place| place.entry == entry).map(|place| &place.name).take(2);
        let Some(name) = sizes.last() else { continue };
        if name == THIS_MACHINE {
            untouched.retain(|scale| !["cpu", "host-memory"].contains(&scale.name.as_str()));
            continue;
        }
        let cluster = Cluster::load(name).map_err(|error| {
            if error.place == ErrorPlace::Flag("cluster") { sweep.base.locate(error) } else { error }
        })?;
        untouched.retain(|scale| !scale.touches(&cluster));
    }
    match untouched.first() {
        None => Ok(()),
        Some(scale) => {
            let message = "no cluster of the sweep has any of it: lockstep clusters show says what there is";
            Err(sweep.base.locate(InputError::flag("scale", scale.name.clone(), message)))
        }
    }
}
