//! `Stopwatch` times an operation and tells whether the system preempted its thread meanwhile; `Reference` is the
//! operation whose time is the speed of a core.

use std::time::Instant;

use lockstep_exec::ThreadUse;
use lockstep_exec::device::cpu::{ChainLayer, Kernel, Mode, Threads};
use lockstep_models::{Dense, Layer, Shape};

/// A thread that lost less than this much of an operation's time to others was not interrupted.
const LOST: f64 = 0.02;
/// The same for short operations: the system's own work takes as long.
const LOST_S: f64 = 20e-6;

/// Interruptions beyond this are of other programs, which run for milliseconds.
const TAKEN_S: f64 = 5e-4;

/// A running measurement of the calling thread.
pub(crate) struct Stopwatch {
    used: ThreadUse,
    /// When it began.
    pub(crate) began: Instant,
}

/// The time of an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lap {
    /// Wall-clock seconds.
    pub(crate) seconds: f64,
    /// Whether the system gave the thread's processor to another thread meanwhile.
    pub(crate) preempted: bool,
    /// Seconds in which the thread did not run, because it waited or was preempted.
    pub(crate) away_s: f64,
}

impl Stopwatch {
    /// Begins now.
    pub(crate) fn start() -> Stopwatch {
        let used = ThreadUse::now();
        Stopwatch { used, began: Instant::now() }
    }

    /// The time since the beginning.
    pub(crate) fn stop(self) -> Lap {
        let passed = self.began.elapsed();
        let used = ThreadUse::now();
        let ran = used.ran.saturating_sub(self.used.ran);
        Lap {
            seconds: passed.as_secs_f64(),
            preempted: used.preemptions > self.used.preemptions,
            away_s: if used.ran.is_zero() { 0.0 } else { passed.saturating_sub(ran.min(passed)).as_secs_f64() },
        }
    }
}

impl Lap {
    /// Whether an operation that never waits took longer because another thread had its processor.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.preempted && self.away_s > (LOST * self.seconds).max(LOST_S)
    }

    /// Whether another program had the processor for a good part of a time slice: longer than the system's own work takes.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_interrupted() && self.away_s > TAKEN_S
    }

    /// Seconds of an operation that never waits without those in which another program had its processor.
    pub(crate) fn ran_s(&self) -> f64 {
        self.seconds - if self.is_interrupted() { self.away_s } else { 0.0 }
    }

    /// The seconds, negative where the thread was preempted: for lists of the times of messages, whose threads also wait.
    pub(crate) fn signed(&self) -> f64 {
        if self.preempted { -self.seconds } else { self.seconds }
    }
}

/// Width of the reference's layer and samples in its batch: weights come from the shared cache, where neighbours disturb
/// most.
const SIDE: usize = 768;
const SAMPLES: usize = 16;

/// A matrix product of about a sixth of a millisecond.
pub(crate) struct Reference {
    kernel: Kernel,
    x: Vec<f32>,
    w: Vec<f32>,
    y: Vec<f32>,
}

impl Reference {
    /// With memory of its own, on one thread.
    pub(crate) fn new() -> Reference {
        let layer = Layer::Dense(Dense { out_features: SIDE as u32, bias: false });
        let shape = [Shape::of_image(SIDE as u32, 1, 1)];
        let kernel = Kernel::new(&[ChainLayer { layer: &layer, inputs: &shape }], SAMPLES, &Threads::one());
        Reference { kernel, x: vec![0.5; SIDE * SAMPLES], w: vec![0.25; SIDE * SIDE], y: vec![0.0; SIDE * SAMPLES] }
    }

    /// Computes it once.
    pub(crate) fn run(&mut self) {
        self.kernel.forward(Mode::Evaluate, &[&self.x], &self.w, &mut [], &mut self.y);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn short_losses_are_no_interruption_and_waiting_is_no_preemption() {
        let lap = |seconds, preempted, away_s| Lap { seconds, preempted, away_s };
        assert!(lap(1e-3, true, 5e-4).is_interrupted());
        assert!(!lap(1e-3, false, 5e-4).is_interrupted(), "it waited");
        assert_eq!((lap(4.0, true, 1.0).ran_s(), lap(4.0, false, 1.0).ran_s()), (3.0, 4.0));
        assert!(lap(1e-3, true, 6e-4).is_taken() && !lap(1e-3, true, 4e-4).is_taken());
        assert!(!lap(1e-3, true, 19e-6).is_interrupted() && !lap(1.0, true, 19e-3).is_interrupted());
        assert_eq!((lap(2.0, true, 0.0).signed(), lap(2.0, false, 0.0).signed()), (-2.0, 2.0));
        assert!(lap(0.0, true, 0.0).signed().is_sign_negative());
    }

    /// A thread that sleeps is away and not preempted; one that works is there.
    #[test]
    fn time_away_is_the_time_asleep() {
        let asleep = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(20));
        let asleep = asleep.stop();
        assert!(asleep.away_s > 0.015 && asleep.seconds >= 0.02, "{asleep:?}");
        let works = Stopwatch::start();
        while works.began.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let works = works.stop();
        assert!(works.away_s <= works.seconds, "{works:?}");
        assert!(works.preempted || works.away_s < 0.01, "{works:?}");
    }
}
