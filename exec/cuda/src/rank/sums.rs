//! Times NCCL's sums over GPUs of this machine, from when all members have called until the last one has the result.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockstep_exec::device::{DeviceError, GroupId};
use lockstep_topology::Dtype;

use super::Gpus;
use crate::driver::{Communicator, Event, Fill, GpuMemory, GpuStream, Priority};

/// NCCL is given up after this long without progress.
const PATIENCE: Duration = Duration::from_secs(60);

/// State shared by all members of a group.
struct Group {
    id: GroupId,
    members: u32,
    /// Arrivals at the barriers, of all members together.
    met: AtomicU32,
    failed: AtomicBool,
}

/// Seconds of each sum, by number of elements.
pub type GpuSums = Vec<(u64, Vec<f64>)>;

/// Why a member ended early; `None` if another one failed.
type Cause = Option<DeviceError>;

impl Group {
    /// Waits for a condition that other members may prevent.
    fn wait(&self, is_there: impl Fn() -> Result<bool, DeviceError>) -> Result<(), Cause> {
        let began = Instant::now();
        while !is_there()? {
            if self.failed.load(Ordering::SeqCst) {
                return Err(None);
            }
            if began.elapsed() > PATIENCE {
                let reason = format!("nothing for {PATIENCE:?}");
                return Err(Some(DeviceError::Refused { call: "a sum by NCCL".to_owned(), reason }));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Waits until all members have reached barrier number `number`.
    fn barrier(&self, number: u32) -> Result<(), Cause> {
        self.met.fetch_add(1, Ordering::SeqCst);
        self.wait(|| Ok(self.met.load(Ordering::SeqCst) >= number * self.members))
    }
}

impl Gpus {
    /// Seconds of each of `repetitions` sums over the first `members` GPUs, after one warm-up, by number of elements.
    /// `None` without NCCL, or with fewer GPUs.
    ///
    /// # Errors
    /// NCCL errors, a lost GPU, or too little memory.
    pub fn sums(&self, members: u32, elements: &[u64], repetitions: u32) -> Result<Option<GpuSums>, DeviceError> {
        if members as usize > self.count() || members < 2 || !self.has_nccl() {
            return Ok(None);
        }
        let id = Communicator::id(&self.of(0).context)?;
        let group = &Group { id, members, met: AtomicU32::new(0), failed: AtomicBool::new(false) };
        let member = |member| {
            let own = self.member(group, member, elements, repetitions);
            group.failed.fetch_or(own.is_err(), Ordering::SeqCst);
            own
        };
        let member = &member;
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..members).map(|number| scope.spawn(move || member(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a member returns what is wrong")).collect()
        });
        let mut seconds: Vec<Vec<Vec<f64>>> = Vec::new();
        for own in all {
            match own {
                Ok(own) => seconds.push(own),
                Err(Some(error)) => return Err(error),
                Err(None) => {}
            }
        }
        let last = |size: usize, repetition: usize| seconds.iter().map(|own| own[size][repetition]).fold(0.0, f64::max);
        let of_size = |(size, elements): (usize, &u64)| {
            (*elements, (0..repetitions as usize).map(|repetition| last(size, repetition)).collect())
        };
        Ok(Some(elements.iter().enumerate().map(of_size).collect()))
    }

    /// One member's seconds, by size and repetition.
    fn member(&self, group: &Group, number: u32, elements: &[u64], repetitions: u32) -> Result<Vec<Vec<f64>>, Cause> {
        let context = &self.of(number).context;
        context.bind()?;
        let bytes = Dtype::F32.bytes(elements.iter().copied().max().unwrap_or(0));
        let memory = GpuMemory::new(context, "what is added up", bytes, Fill::Zeros)?;
        let (stream, summed) = (GpuStream::new(context, Priority::High)?, Event::new(context, false)?);
        let communicator = Communicator::begin(context, &group.id, number, group.members)?;
        group.wait(|| communicator.is_ready())?;
        let (mut all, mut barriers) = (Vec::new(), 0);
        for elements in elements {
            let mut own = Vec::new();
            for repetition in 0..=repetitions {
                barriers += 1;
                group.barrier(barriers)?;
                let begun = Instant::now();
                // SAFETY: there are that many elements, with no other user.
                unsafe { communicator.sum(&stream, memory.address(), *elements) }?;
                group.wait(|| communicator.is_ready())?;
                summed.record(&stream)?;
                group.wait(|| summed.finished())?;
                if repetition > 0 {
                    own.push(begun.elapsed().as_secs_f64());
                }
            }
            all.push(own);
        }
        communicator.finish()?;
        group.wait(|| communicator.is_ready())?;
        communicator.close()?;
        Ok(all)
    }
}
