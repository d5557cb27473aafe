//! Binds ranks to processors, so that measurements repeat: each rank gets as many cores as it has threads, spread over
//! sockets.
//!
//! Only processors that this process may use are taken, so the choice of a launcher or of `taskset` is kept. Where
//! several processes of a job may use the same processors, these are divided among all of their ranks.

mod plan;
mod processors;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::path::Path;

pub(crate) use plan::Process;
use plan::Processor;

/// Size of the affinity mask: the most processors, as Linux numbers them.
const MOST: usize = 1 << 14;

/// The processors of each rank of a process; empty where nothing is known of them, and then ranks stay unbound.
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

    /// One place: all processors that the calling thread may use.
    pub fn of_this_thread() -> Pins {
        Pins { places: vec![processors::allowed()] }
    }

    /// For `ranks` ranks with a thread each on all processors that this process might be given, whatever its launcher
    /// has bound it to. Used to measure the machine while the job's other processes sleep.
    pub fn anywhere(ranks: usize) -> Pins {
        Pins { places: plan::plan(&Pins::free(), ranks, 1) }
    }

    /// The number of those processors.
    pub fn everywhere() -> usize {
        Pins::free().len()
    }

    /// The processors that the calling thread may use, ascending; empty where the system does not report them.
    pub fn allowed() -> Vec<usize> {
        processors::allowed()
    }

    /// Which of all processors the system allows a thread that asks for them.
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

    /// Whether two of these ranks use hardware threads of one core, as far as the system says.
    pub fn share_a_core(&self) -> bool {
        let processors = here();
        let core = |number: &usize| processors.iter().find(|of| of.number == *number).map(|of| (of.package, of.core));
        let cores: Vec<_> = self.places.iter().flatten().filter_map(core).collect();
        (1..cores.len()).any(|number| cores[..number].contains(&cores[number]))
    }

    /// Restricts the calling thread, and threads that it starts meanwhile, to the processors of rank number `index` of
    /// this process until the result is dropped. Does nothing where there are none or the system refuses.
    pub fn bind(&self, index: usize) -> BoundThread<'_> {
        BoundThread::to(self.places.get(index).map_or(&[], Vec::as_slice))
    }
}

/// The processors that the calling thread may use, ascending.
pub(crate) fn allowed() -> Vec<usize> {
    processors::allowed()
}

/// The processors that the calling thread may use, with their topology.
fn here() -> Vec<Processor> {
    processors::read(Path::new(processors::SYSTEM), &processors::allowed())
}

/// A thread bound to some processors; when dropped, the previous affinity is restored.
#[must_use = "a thread is bound as long as this lives"]
#[derive(Debug)]
pub struct BoundThread<'a> {
    places: &'a [usize],
    before: Vec<usize>,
}

impl<'a> BoundThread<'a> {
    /// Restricts the calling thread, and threads that it starts meanwhile, to these processors until the result is
    /// dropped.
    pub(crate) fn to(places: &'a [usize]) -> BoundThread<'a> {
        let before = if places.is_empty() { Vec::new() } else { processors::allowed() };
        let is_bound = !before.is_empty() && processors::allow(places);
        BoundThread { places: if is_bound { places } else { &[] }, before }
    }

    /// The processors, by the operating system's numbers; none where the thread is not bound.
    pub fn places(&self) -> &[usize] {
        self.places
    }
}

impl Drop for BoundThread<'_> {
    fn drop(&mut self) {
        if !self.places.is_empty() {
            processors::allow(&self.before);
        }
    }
}

/// The numbers of a list in Linux's notation, `0-2,7`.
#[cfg(test)]
pub(crate) fn listed(text: &str) -> Vec<usize> {
    let number = |text: &str| text.trim().parse::<usize>().expect("a number");
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    };
    text.trim().split(',').flat_map(part).collect()
}
