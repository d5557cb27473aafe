//! Prepares batches in threads, into page-aligned memory: reads and decodes JPEG files, converts arrays of bytes, copies
//! values, and augments.
//!
//! A free thread takes the next samples of the oldest batch. A sample depends on the seed and its place alone, so
//! batches are the same for any number of threads. Where the device transforms, threads decode alone.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use lockstep_data::{Dataset, Recipe};
use lockstep_topology::InputError;

use super::batch::{Batch, lock};
use super::batch_memory::BatchMemory;
use crate::pin::{self, BoundThread};

/// Threads of a process that prepare batches, started on first use.
#[derive(Debug)]
pub(crate) struct Decoders {
    /// The processors they may use: the process's, even if a bound rank starts them.
    processors: Vec<usize>,
    running: OnceLock<Running>,
}

/// The threads and their shared state.
#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Requested batches, the oldest first.
#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<(VecDeque<Arc<Batch>>, bool)>,
    asked: Condvar,
}

impl Decoders {
    /// Decoders that start their threads with the first batch, on the processors of the calling thread.
    pub(crate) fn new() -> Decoders {
        Decoders { processors: pin::allowed(), running: OnceLock::new() }
    }

    /// Requests a batch of `data` in `memory`, which has room for it: after those requested before, or ahead of them if a rank
    /// waits for it. `on_device` says whether the rank's device transforms its samples.
    ///
    /// # Errors
    /// The system refuses threads.
    pub(super) fn ask(
        &self,
        data: &Dataset,
        recipe: Recipe,
        memory: Arc<BatchMemory>,
        at_once: bool,
        on_device: &Arc<AtomicBool>,
    ) -> Result<Arc<Batch>, InputError> {
        let batch = Arc::new(Batch::new(recipe, memory, on_device));
        let shared = &self.start(data.decode_threads(self.available()))?.shared;
        let mut queue = lock(&shared.queue);
        match at_once {
            true => queue.0.push_front(batch.clone()),
            false => queue.0.push_back(batch.clone()),
        }
        match batch.is_small() {
            true => shared.asked.notify_one(),
            false => shared.asked.notify_all(),
        }
        Ok(batch)
    }

    /// The number of processors that the threads may use; of the calling thread where the system does not list them.
    fn available(&self) -> usize {
        match self.processors.len() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            listed => listed,
        }
    }

    fn start(&self, threads: usize) -> Result<&Running, InputError> {
        if let Some(running) = self.running.get() {
            return Ok(running);
        }
        let shared = Arc::new(Shared::default());
        let mut running = Running { shared: shared.clone(), threads: Vec::new() };
        let _unbound = BoundThread::to(&self.processors);
        for _ in 0..threads {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("decode".to_owned()).spawn(move || shared.work());
            running.threads.push(thread.map_err(|failure| {
                let message = format!("the system gives no further thread ({failure}): use fewer");
                InputError::flag("decode_threads", threads.to_string(), message)
            })?);
        }
        // If two ranks got here at the same time, one set of threads ends again.
        Ok(self.running.get_or_init(|| running))
    }
}

impl Shared {
    /// The loop of a thread, until it is stopped.
    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if queue.1 {
                return;
            }
            let Some(batch) = queue.0.front().cloned() else {
                queue = self.asked.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            let made = batch.advance();
            queue = lock(&self.queue);
            if !made && let Some(at) = queue.0.iter().position(|other| Arc::ptr_eq(other, &batch)) {
                queue.0.remove(at);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.shared.queue).1 = true;
        self.shared.asked.notify_all();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::pin::listed;

    /// The processors of each decoding thread of this process.
    fn of_decoders() -> Vec<Vec<usize>> {
        let threads = std::fs::read_dir("/proc/self/task").expect("Linux has it");
        // Threads of other tests may end meanwhile.
        let status = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("status")).ok());
        let decodes = status.filter(|status| status.starts_with("Name:\tdecode\n"));
        decodes
            .map(|status| {
                listed(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list"))
            })
            .collect()
    }

    /// A rank bound to one processor starts threads that may use all of them, and stays bound itself.
    #[test]
    fn threads_are_not_bound_to_the_rank_that_starts_them() {
        let free = pin::allowed();
        let decoders = Decoders::new();
        let own = [free[0]];
        let _bound = BoundThread::to(&own);
        assert_eq!(decoders.available(), free.len());
        decoders.start(3).expect("three threads");
        // A thread names itself once it runs.
        let until = Instant::now() + Duration::from_secs(20);
        let mut found = of_decoders();
        while found.len() < 3 && Instant::now() < until {
            std::thread::yield_now();
            found = of_decoders();
        }
        assert!(found.len() >= 3 && found.iter().all(|processors| *processors == free), "{found:?} of {free:?}");
        assert_eq!(pin::allowed(), own);
    }
}
