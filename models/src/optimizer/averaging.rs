//! Defines model averaging: buffers and constants with which learners, each with its own model, follow their average.
//!
//! One iteration of Koliousis et al. 2019, Alg. 1, for learner j, all of it from the old w_j and z:
//!
//! ```text
//! g_j = γ·∇ℓ(w_j)    c_j = α·(w_j − z)    w_j ← w_j − g_j − c_j    z ← z + Σ c_j + μ·(z − z_prev)
//! ```
//!
//! In the first iteration there is no z_prev and no momentum; afterwards z_prev is the z at this iteration's start
//! (line 13 of the printed algorithm names a z′ that it does not define). Without momentum it is synchronous elastic
//! averaging SGD (Zhang, Choromanska and LeCun 2015). The arithmetic on each element is a formula of the strategy
//! (`strategy/learners.rs`).
//!
//! With reference models (§3.3) there are two levels. Device d has a reference r_d, against which its learners
//! are corrected:
//!
//! ```text
//! c_j = α·(w_j − r_d)    w_j ← w_j − g_j − c_j    s_d = Σ c_j over its learners
//! ```
//!
//! Across devices Alg. 1 applies to the references instead of replicas. The first device's reference is the average
//! model z; the learning of another device's learners, s_d, takes the place of a replica's gradient step:
//!
//! ```text
//! C_d = α'·(r_d − z)    r_d ← (r_d + s_d) − C_d    z ← z + (s_0 + Σ C_d) + μ·(z − z_prev)
//! ```

use crate::{Buffer, Declared};

/// How the batches of an iteration are assigned to learners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Assignment {
    /// Each learner has its own, equally many, and takes the next one when it is free.
    #[default]
    Own,
    /// The same batches, assigned round-robin: while the next learner is busy, those after it wait even if free
    /// (Koliousis et al. 2019, §4.3: schedulers that "wait for a given replica to become available").
    RoundRobin,
    /// Each learner takes equally many, and a free learner the next one of its process (Koliousis et al. 2019, §4.3:
    /// "associates the next batch with a model replica on a first-come, first-served basis").
    FirstCome,
}

/// The constants of model averaging.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Averaging {
    /// α: the part of a learner's distance from the average model that each synchronisation removes.
    pub alpha: f64,
    /// μ: the momentum of the average model; `None`: the optimizer's. Learners themselves have none.
    pub momentum: Option<f64>,
    /// τ: batches of a learner from one synchronisation to the next.
    pub period: u32,
    /// Which learner takes which batch.
    pub assignment: Assignment,
    /// α': the part of a reference model's distance from the average model that each synchronisation removes; `None`
    /// where there are no reference models, one for the learners of each device (Koliousis et al. 2019, §3.3).
    pub reference_alpha: Option<f64>,
}

impl Averaging {
    /// Holds a learner's c_j, and after the exchange Σ c_j.
    pub const DIFFERENCES: Buffer = Buffer::Declared(0);
    /// Holds z.
    pub const AVERAGE: Buffer = Buffer::Declared(1);
    /// Holds z_prev.
    pub const PREVIOUS: Buffer = Buffer::Declared(2);

    /// Holds a device's reference model; the first device's is the average model.
    pub const REFERENCE: Buffer = Buffer::Declared(3);

    /// The buffers of a learner besides its weights and gradients, for a model of `parameters` elements.
    pub(crate) fn buffers(&self, parameters: u64) -> Vec<Declared> {
        let names = ["differences", "average model", "previous average model", "reference model"];
        let buffer = |name: &&str| Declared::scratch(*name, parameters);
        names[..if self.reference_alpha.is_some() { 4 } else { 3 }].iter().map(buffer).collect()
    }
}
