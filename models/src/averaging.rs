//! Model averaging: how learners, each with a model of its own, and their average model are kept together.
//!
//! One iteration of Koliousis et al. 2019, Alg. 1, for learner j, all of it from the old w_j and z:
//!
//! ```text
//! g_j = γ·∇ℓ(w_j)    c_j = α·(w_j − z)    w_j ← w_j − g_j − c_j    z ← z + Σ c_j + μ·(z − z_prev)
//! ```
//!
//! In the first iteration there is no z_prev and no momentum; afterwards z_prev is the z that this iteration began with
//! (line 13 of the printed algorithm names a z′ that it does not define). Without momentum it is synchronous elastic
//! averaging SGD (Zhang, Choromanska and LeCun 2015). The program says when each of the three rules below runs.

use crate::{Buffer, Declared, Model};

/// How the batches of an iteration get to the learners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Assignment {
    /// Each learner has its own, equally many, and all wait for the slowest (Koliousis et al. 2019, §4.3: "wait for a given
    /// replica to become available").
    #[default]
    RoundRobin,
    /// A learner that is free takes the next one, until the iteration's are gone.
    FirstCome,
}

/// The numbers of model averaging.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Averaging {
    /// α: the part of a learner's distance from the average model that each synchronisation takes back.
    pub alpha: f64,
    /// μ: the momentum of the average model; `None`: the optimizer's. Learners themselves have none.
    pub momentum: Option<f64>,
    /// τ: batches of a learner from one synchronisation to the next.
    pub period: u32,
    /// Which learner takes which batch.
    pub assignment: Assignment,
}

impl Averaging {
    /// Where a learner's c_j stands, and after the exchange Σ c_j.
    pub const DIFFERENCES: Buffer = Buffer::Declared(0);
    /// Where z stands.
    pub const AVERAGE: Buffer = Buffer::Declared(1);
    /// Where z_prev stands.
    pub const PREVIOUS: Buffer = Buffer::Declared(2);

    /// What a learner has beside its weights and gradients.
    pub(crate) fn buffers(model: &Model) -> Vec<Declared> {
        let buffer = |name: &str| Declared { name: name.to_owned(), elements: model.parameter_elements() };
        ["differences", "average model", "previous average model"].map(buffer).to_vec()
    }

    /// How often a learner of so many may learn in an iteration: all batches may fall to one that is much faster.
    pub(crate) fn repetitions(&self, learners: u32) -> u32 {
        match self.assignment {
            Assignment::RoundRobin => self.period,
            Assignment::FirstCome => self.period.saturating_mul(learners),
        }
    }
}

/// What an averaging task does, element by element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AveragingRule {
    /// w ← w − γ·g: a learner's step between two synchronisations. In an iteration's first repetition there is no gradient yet
    /// and nothing to do.
    Descend,
    /// Local synchronisation: c ← α·(w − z), w ← w − γ·g − c.
    Correct,
    /// Global synchronisation, once the differences are summed: z ← z + Σc + μ·(z − z_prev), z_prev ← the old z.
    Average,
}

impl AveragingRule {
    /// Prefix of task names, and the kind under which reports add tasks up.
    pub fn name(self) -> &'static str {
        match self {
            AveragingRule::Descend => "descend",
            AveragingRule::Correct => "correct",
            AveragingRule::Average => "average",
        }
    }

    /// fp32 elements read and written for each parameter: w, g and w; w, z, g, then w and c; z, Σc, z_prev, then z and z_prev.
    pub fn accesses(self) -> u64 {
        match self {
            AveragingRule::Descend => 3,
            AveragingRule::Correct | AveragingRule::Average => 5,
        }
    }
}
