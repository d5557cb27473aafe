//! Tests pins: threads stay on the processors planned for them.

use super::*;
use crate::device::cpu::Threads;

/// The calling thread's affinity as Linux reports it, independent of the call under test.
fn said() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
    listed(line)
}

/// Threads have the processors that were planned for them and no others; afterwards they have their previous ones
/// again.
#[test]
fn threads_run_on_their_planned_processors() {
    let free = said();
    assert_eq!(free, allowed());
    for (ranks, threads) in [(1, 1), (2, 1), (free.len(), 1), (2 * free.len() + 1, 1), (1, free.len()), (2, 2)] {
        let pins = Pins::new(ranks, threads);
        assert_eq!(pins.places.len(), ranks);
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                let (pins, free) = (&pins, &free);
                scope.spawn(move || {
                    let bound = pins.bind(rank);
                    let mut places = bound.places().to_vec();
                    places.sort_unstable();
                    assert_eq!(places, said());
                    assert!(!places.is_empty() && places.iter().all(|number| free.contains(number)));
                    // A team that is made now keeps to them as well.
                    let team = Threads::new(threads).expect("a few threads");
                    let kept = std::sync::Mutex::new(Vec::new());
                    team.each(64, |_, _| kept.lock().expect("no thread panics").push(said()));
                    assert!(kept.into_inner().expect("no thread panics").iter().all(|said| *said == places));
                    drop(bound);
                    assert_eq!(said(), *free);
                });
            }
        });
        if ranks * threads <= free.len() {
            let mut all = pins.places.concat();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), ranks * threads, "ranks share processors: {pins:?}");
        }
    }
}

/// A thread that is bound to one processor still finds all of them.
#[test]
fn all_processors_are_found_from_one() {
    let (free, first) = (allowed(), allowed()[0]);
    let found = std::thread::spawn(move || {
        assert!(processors::allow(&[first]));
        let found = Pins::anywhere(free.len()).places.concat();
        assert_eq!((allowed(), Pins::everywhere() >= free.len()), (vec![first], true));
        free.iter().all(|number| found.contains(number)) || Pins::everywhere() > free.len()
    });
    assert!(found.join().expect("no panic"));
}

/// A process that may use one processor stays on it, however many ranks it has.
#[test]
fn the_affinity_set_by_a_launcher_is_kept() {
    let last = *allowed().last().expect("a processor");
    std::thread::spawn(move || {
        assert!(processors::allow(&[last]));
        let pins = Pins::new(3, 1);
        assert_eq!(pins.places, vec![vec![last]; 3]);
        assert_eq!(pins.bind(1).places(), [last]);
    })
    .join()
    .expect("it keeps to it");
}
