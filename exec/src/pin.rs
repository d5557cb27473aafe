//! Binds ranks to processors, so that measurements repeat: as many cores each as a rank has threads, spread over sockets.
//!
//! Only processors that this process may use are taken, so a launcher's or `taskset`'s choice is kept; and where several processes
//! of a job may use the same ones, they are divided among all of their ranks.

mod plan;
mod processors;

use std::path::Path;

pub(crate) use plan::Process;
use plan::Processor;

/// Processors that may be asked for, as Linux numbers them.
const MOST: usize = 1 << 14;

/// The processors of each rank of a process; none where nothing is known of them, and then ranks stay unbound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    places: Vec<Vec<usize>>,
}

impl Pins {
    /// For `ranks` ranks of this process with `threads` threads each. Call it on a thread that is not bound.
    ///
    /// ```
    /// # use lockstep_exec::Pins;
    /// let pins = Pins::new(1, 1);
    /// let place = std::thread::spawn(move || pins.bind(0).places().len()).join().unwrap();
    /// assert!(place <= 1);
    /// ```
    pub fn new(ranks: usize, threads: usize) -> Pins {
        let processors = here();
        Pins { places: plan::plan(&processors, ranks, threads) }
    }

    /// For `ranks` ranks with a thread each on all processors that this process might be given, whatever its launcher has bound it to:
    /// for what is measured of the machine while the job's other processes sleep.
    pub fn anywhere(ranks: usize) -> Pins {
        Pins { places: plan::plan(&Pins::free(), ranks, 1) }
    }

    /// How many processors those are.
    pub fn everywhere() -> usize {
        Pins::free().len()
    }

    /// What the system leaves of all processors to a thread that asks for them.
    fn free() -> Vec<Processor> {
        let asked = || {
            processors::allow(&(0..MOST).collect::<Vec<usize>>());
            here()
        };
        std::thread::scope(|scope| scope.spawn(asked).join()).unwrap_or_default()
    }

    /// For the ranks of process number `own` among the processes of this job on this machine.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    pub(crate) fn beside(processes: &[Process], own: usize, threads: usize) -> Pins {
        Pins { places: plan::of_process(&here(), processes, own, threads).unwrap_or_default() }
    }

    /// Lets the calling thread, and those that it starts meanwhile, use the processors of rank number `index` of this process
    /// alone, until what this gives is dropped. Does nothing where there are none or the system refuses.
    pub fn bind(&self, index: usize) -> Bound<'_> {
        let places = self.places.get(index).map_or(&[][..], Vec::as_slice);
        let before = if places.is_empty() { Vec::new() } else { processors::allowed() };
        let is_bound = !before.is_empty() && processors::allow(places);
        Bound { places: if is_bound { places } else { &[] }, before }
    }
}

/// The processors that the calling thread may use, ascending.
#[cfg_attr(not(feature = "mpi"), allow(dead_code))]
pub(crate) fn allowed() -> Vec<usize> {
    processors::allowed()
}

/// Those that the calling thread may use, and where they lie.
fn here() -> Vec<Processor> {
    processors::read(Path::new(processors::SYSTEM), &processors::allowed())
}

/// A thread that keeps to some processors; dropped, it may use those that it might before.
#[must_use = "a thread is bound as long as this lives"]
#[derive(Debug)]
pub struct Bound<'a> {
    places: &'a [usize],
    before: Vec<usize>,
}

impl Bound<'_> {
    /// The processors, by the operating system's numbers; none where the thread is not bound.
    pub fn places(&self) -> &[usize] {
        self.places
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if !self.places.is_empty() {
            processors::allow(&self.before);
        }
    }
}

/// The numbers of a list as Linux writes them, `0-2,7`.
#[cfg(test)]
fn listed(text: &str) -> Vec<usize> {
    let number = |text: &str| text.trim().parse::<usize>().expect("a number");
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    };
    text.trim().split(',').flat_map(part).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::device::cpu::Threads;

    /// What Linux says of the calling thread, apart from the call that asks it.
    fn said() -> Vec<usize> {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
        listed(line)
    }

    /// Threads have the processors that were planned for them, and no others; afterwards those that they had before.
    #[test]
    fn threads_keep_to_their_processors() {
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

    /// A process that may use one processor keeps to it, however many ranks it has.
    #[test]
    fn what_a_launcher_allows_is_kept() {
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
}
