//! Generates the steps of each stage under the named schedules of papers.

use std::fmt;
use std::str::FromStr;

use lockstep_topology::InputError;

use super::{PipelinePass, PipelineStep};

/// Limit on the steps of all stages together.
const MAX_STEPS: u64 = 1_000_000;

/// The order in which the stages of a pipeline take the passes of micro-batches.
///
/// Gradients of a chunk are added in ascending micro-batch under each of them, so all train to the same bits.
///
/// ```
/// # use lockstep_models::{PipelineSchedule, PipelinePass};
/// let schedule: PipelineSchedule = "1f1b".parse().unwrap();
/// let steps = schedule.steps(0, 2, 3).unwrap();
/// let picture: String = steps.iter().map(|step| if step.pass == PipelinePass::Forward { 'F' } else { 'B' }).collect();
/// assert_eq!(picture, "FFBFBB");
/// assert!(PipelineSchedule::Interleaved { chunks: 2 }.steps(0, 4, 6).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipelineSchedule {
    /// All forward passes, then all backward passes (Huang et al. 2019 §2.3), both in ascending order, as Narayanan et
    /// al. 2021 draw it (Fig. 3).
    GPipe,
    /// Forward passes until the first gradient arrives, then a forward and a backward pass in turn: PipeDream-Flush
    /// (Narayanan et al. 2021 §2.2.1; Narayanan et al. 2019 §3.2 without the flush).
    OneForwardOneBackward,
    /// The same over several chunks of layers a stage (Narayanan et al. 2021 §2.2.2).
    Interleaved {
        /// Chunks of a stage, at least 2.
        chunks: u32,
    },
    /// Forward and backward passes as in 1F1B, where gradients of parameters are passes of their own: stage i makes those of
    /// a micro-batch i backward passes later, so that each stage has as many micro-batches in flight as the first one has
    /// under 1F1B, and gradients of activations go back without waiting for them (Qi et al. 2023 §2.1, ZB-H1).
    ZeroBubbleH1,
}

impl PipelineSchedule {
    /// Chunks of layers that a stage has.
    pub fn chunks(self) -> u32 {
        if let PipelineSchedule::Interleaved { chunks } = self { chunks } else { 1 }
    }

    /// The passes of each micro-batch through each chunk.
    pub fn passes(self) -> &'static [PipelinePass] {
        if self == PipelineSchedule::ZeroBubbleH1 { &PipelinePass::ALL } else { &PipelinePass::CROSSING }
    }

    /// The steps of stage `stage` of `stages` over `micro_batches` micro-batches, in order: each of
    /// [`passes`](PipelineSchedule::passes) once for each chunk and micro-batch.
    ///
    /// # Errors
    /// A stage that does not exist, micro-batches that do not fill interleaved chunks, more than 1,000,000 steps
    /// of all stages.
    pub fn steps(self, stage: u32, stages: u32, micro_batches: u32) -> Result<Vec<PipelineStep>, InputError> {
        self.refuse(stages, micro_batches)?;
        if stage >= stages {
            let message = format!("there are only {stages}, counted from 0: use a smaller one");
            return Err(InputError::new("stage", stage.to_string(), message));
        }
        // An earlier stage has more stages after it to wait for, so the first one runs ahead the furthest.
        let behind = stages - 1 - stage;
        let all = self.chunks() * micro_batches;
        let ahead = match self {
            PipelineSchedule::GPipe => all,
            PipelineSchedule::OneForwardOneBackward | PipelineSchedule::ZeroBubbleH1 => behind.min(all),
            PipelineSchedule::Interleaved { chunks } => {
                all.min((2 * u64::from(behind) + u64::from(chunks - 1) * u64::from(stages)).try_into().unwrap_or(all))
            }
        };
        let forward = |turn| self.step(turn, stage, stages, PipelinePass::Forward);
        let weight = |turn| self.step(turn, stage, stages, PipelinePass::Weight);
        let delayed = if self == PipelineSchedule::ZeroBubbleH1 { stage.min(all) } else { all };
        let backward = |turn: u32| {
            let own = self.step(turn, stage, stages, PipelinePass::Backward);
            std::iter::once(own).chain(turn.checked_sub(delayed).map(weight))
        };
        let pairs = (ahead..all).flat_map(|turn| std::iter::once(forward(turn)).chain(backward(turn - ahead)));
        let steps = (0..ahead).map(forward).chain(pairs).chain((all - ahead..all).flat_map(backward));
        let left = if self == PipelineSchedule::ZeroBubbleH1 { all - delayed..all } else { 0..0 };
        Ok(steps.chain(left.map(weight)).collect())
    }

    /// The steps of every stage.
    ///
    /// # Errors
    /// As [`steps`](PipelineSchedule::steps).
    pub fn lists(self, stages: u32, micro_batches: u32) -> Result<Vec<Vec<PipelineStep>>, InputError> {
        self.refuse(stages, micro_batches)?;
        (0..stages).map(|stage| self.steps(stage, stages, micro_batches)).collect()
    }

    /// The pass that a stage takes at a turn: of `stages` micro-batches through one of its chunks, then
    /// through the next.
    fn step(self, turn: u32, stage: u32, stages: u32, pass: PipelinePass) -> PipelineStep {
        let PipelineSchedule::Interleaved { chunks } = self else {
            return PipelineStep { micro_batch: turn, chunk: stage, pass };
        };
        let (round, within) = (turn / (stages * chunks), turn % (stages * chunks));
        let own = match pass {
            PipelinePass::Forward => within / stages,
            PipelinePass::Backward | PipelinePass::Weight => chunks - 1 - within / stages,
        };
        PipelineStep { micro_batch: round * stages + within % stages, chunk: own * stages + stage, pass }
    }

    /// Refuses numbers that it does not take.
    fn refuse(self, stages: u32, micro_batches: u32) -> Result<(), InputError> {
        for (key, number) in [("stages", stages), ("micro_batches", micro_batches)] {
            if number == 0 {
                return Err(InputError::flag(key, "0", "a pipeline needs at least 1: use 1 or more"));
            }
        }
        let chunks = u128::from(stages) * u128::from(self.chunks());
        let steps = self.passes().len() as u128 * chunks * u128::from(micro_batches);
        if steps > u128::from(MAX_STEPS) {
            let message = format!(
                "{chunks} chunks take {steps} steps, and at most {MAX_STEPS} are listed: use fewer micro-batches, stages or chunks"
            );
            return Err(InputError::flag("micro_batches", micro_batches.to_string(), message));
        }
        let PipelineSchedule::Interleaved { chunks } = self else { return Ok(()) };
        if chunks < 2 {
            return Err(InputError::flag("schedule", self.to_string(), too_few(&chunks.to_string())));
        }
        if !micro_batches.is_multiple_of(stages) {
            let below = micro_batches - micro_batches % stages;
            let near = if below > 0 { format!("{below} or {}", below + stages) } else { stages.to_string() };
            let message =
                format!("{self} over {stages} stages needs a multiple of {stages} micro-batches: use {near}, or 1f1b");
            return Err(InputError::flag("micro_batches", micro_batches.to_string(), message));
        }
        Ok(())
    }
}

/// The schedules, with settings that they take.
const NAMES: [&str; 4] = ["gpipe", "1f1b", "interleaved:2", "zb-h1"];

/// The error message for too few chunks.
fn too_few(chunks: &str) -> String {
    format!("{chunks:?} is not a number of chunks from 2: write interleaved:2, or 1f1b for one chunk a stage")
}

impl fmt::Display for PipelineSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PipelineSchedule::GPipe => f.write_str("gpipe"),
            PipelineSchedule::OneForwardOneBackward => f.write_str("1f1b"),
            PipelineSchedule::Interleaved { chunks } => write!(f, "interleaved:{chunks}"),
            PipelineSchedule::ZeroBubbleH1 => f.write_str("zb-h1"),
        }
    }
}

impl FromStr for PipelineSchedule {
    type Err = String;

    /// Reads `gpipe`, `1f1b`, `interleaved:2` and `zb-h1`.
    fn from_str(text: &str) -> Result<PipelineSchedule, String> {
        let ours = lockstep_topology::aliases::ours("schedule", text, ["gpipe", "1f1b", "interleaved", "zb-h1"])?;
        match (&*ours, ours.strip_prefix("interleaved:")) {
            ("gpipe", _) => Ok(PipelineSchedule::GPipe),
            ("1f1b", _) => Ok(PipelineSchedule::OneForwardOneBackward),
            ("zb-h1", _) => Ok(PipelineSchedule::ZeroBubbleH1),
            (text, _) if text.starts_with("zb-h1:") => {
                Err("zb-h1 has one chunk of layers a stage: write zb-h1 without a number, or interleaved:2".to_owned())
            }
            ("interleaved", _) => Err("interleaved needs its chunks of a stage: write interleaved:2".to_owned()),
            (_, Some(chunks)) => match chunks.parse() {
                Ok(count @ 2..) => Ok(PipelineSchedule::Interleaved { chunks: count }),
                _ => Err(too_few(chunks)),
            },
            _ => Err(lockstep_topology::unknown_name(text, "schedule", &NAMES)),
        }
    }
}
