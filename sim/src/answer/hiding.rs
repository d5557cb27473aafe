//! Finds the bandwidth that would hide the communication: by which factor links would have to be faster, or
//! could be slower.
//!
//! In the simple case 2·bytes(G) / time of the backward pass (Goyal et al. 2017 §4.3); in general the simulation
//! decides, with a search over one factor for all links between devices.

use lockstep_models::{Buffer, Program};
use lockstep_topology::Bandwidth;
use lockstep_topology::cluster::{Figure, LinkKind};

use super::perturbed::CostParameter;
use super::subject::Subject;
use crate::error::SimError;
use crate::simulate::Prediction;

/// Communication counts as hidden while less than this share of the step is exposed.
pub const HIDDEN: f64 = 0.01;
/// The bounds of the search.
const LEAST: f64 = 1e-3;
const MOST: f64 = 1e4;
/// The ratio to which the factor must be found.
const NEAR: f64 = 1.01;

/// The bandwidth that hides the communication of a prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Hiding {
    /// Kinds of the links that messages take between devices, with the least bandwidth of each now; empty where ranks
    /// communicate in memory only.
    pub links: Vec<(LinkKind, Bandwidth)>,
    /// The least factor for all of their bandwidths with which communication is hidden; below 1 it is hidden now.
    /// `None`: no bandwidth hides it, or there are no links.
    pub factor: Option<f64>,
    /// The share of the step that stays exposed with links ten thousand times as fast.
    pub floor: f64,
    /// 2·bytes(G), of the gradients, over the time of a worker's backward pass.
    pub simple: Option<Bandwidth>,
}

/// Searches for the bandwidth; `parameters` are those of the prediction, `progress` gets the number of
/// simulations done.
///
/// # Errors
/// As [`simulate`](crate::simulate).
pub fn hiding(
    subject: &Subject<'_>,
    prediction: &Prediction,
    parameters: &[CostParameter],
    progress: &mut dyn FnMut(usize),
) -> Result<Hiding, SimError> {
    let (program, cluster) = (subject.program(), subject.platform().cluster);
    let mut links = Vec::new();
    for parameter in parameters {
        let CostParameter::Cluster(Figure::Bandwidth(kind)) = parameter else { continue };
        if *kind == LinkKind::SharedMemory {
            continue;
        }
        let of_kind = cluster.links().iter().filter(|link| link.kind == *kind);
        let least = of_kind.map(|link| link.bandwidth).min_by(|a, b| a.bytes_per_s().total_cmp(&b.bytes_per_s()));
        links.extend(least.map(|least| (*kind, least)));
    }
    let simple = simple(program, prediction);
    let exposed = |prediction: &Prediction| {
        prediction.timeline.exposed_comm_s(program) / prediction.timeline.step_time_s().max(f64::MIN_POSITIVE)
    };
    let now = exposed(prediction);
    if links.is_empty() {
        return Ok(Hiding { links, factor: None, floor: now, simple });
    }
    let scaled_links: Vec<CostParameter> =
        links.iter().map(|(kind, _)| CostParameter::Cluster(Figure::Bandwidth(*kind))).collect();
    let mut done = 0;
    let mut at = |factor: f64| -> Result<f64, SimError> {
        progress(done);
        done += 1;
        Ok(exposed(&subject.scaled((&scaled_links, factor), (&[], 1.0))?))
    };
    let floor = at(MOST)?;
    let (low, high) = if now < HIDDEN {
        let least = at(LEAST)?;
        if least < HIDDEN {
            return Ok(Hiding { links, factor: Some(LEAST), floor, simple });
        }
        ((LEAST, least), (1.0, now))
    } else if floor >= HIDDEN {
        return Ok(Hiding { links, factor: None, floor, simple });
    } else {
        ((1.0, now), (MOST, floor))
    };
    let factor = between(low, high, &mut at)?;
    Ok(Hiding { links, factor: Some(factor), floor, simple })
}

/// The least factor with which communication is hidden, between one with which it is not and one with which it is, each
/// with the share that is exposed.
///
/// The exposed time per second of computation is roughly linear in the time of a byte, so a guess on the line between
/// two factors is close, and one beside it confirms that; otherwise every third guess halves the remaining interval.
fn between(
    (mut low, mut exposed): (f64, f64),
    (mut high, mut hidden): (f64, f64),
    at: &mut dyn FnMut(f64) -> Result<f64, SimError>,
) -> Result<f64, SimError> {
    let per_second = |share: f64| share / (1.0 - share).max(f64::MIN_POSITIVE);
    let mut beside = None;
    for guesses in 1.. {
        if high / low <= NEAR {
            break;
        }
        let [on_low, on_high, wanted] = [exposed, hidden, HIDDEN].map(per_second);
        let part = (wanted - on_high) / (on_low - on_high);
        let on_line = 1.0 / (1.0 / high + part * (1.0 / low - 1.0 / high));
        let guess = match beside.take() {
            Some(beside) => beside,
            None if guesses % 3 == 0 || !on_line.is_finite() => (low * high).sqrt(),
            None => on_line,
        };
        // Neither end of the interval again.
        let step = NEAR.sqrt().sqrt();
        let guess = if high / low > step * step { guess.clamp(low * step, high / step) } else { (low * high).sqrt() };
        let share = at(guess)?;
        if share < HIDDEN {
            (high, hidden) = (guess, share);
            beside = (guesses % 3 == 1).then_some(guess / (NEAR - 1e-4));
        } else {
            (low, exposed) = (guess, share);
            beside = (guesses % 3 == 1).then_some(guess * (NEAR - 1e-4));
        }
    }
    Ok(high)
}

/// 2·bytes(G) / t_backward; `None` without an exchange or a backward pass.
fn simple(program: &Program, prediction: &Prediction) -> Option<Bandwidth> {
    program.roles[0].exchanges().next()?;
    let kinds = prediction.timeline.seconds_by_kind(program);
    let backward: f64 = kinds.iter().filter(|(kind, _)| kind.starts_with("backward")).map(|(_, s)| s).sum();
    let bytes = program.dtype(Buffer::Gradients).bytes(program.model.parameter_elements());
    Bandwidth::new(2.0 * bytes as f64 / backward)
}
