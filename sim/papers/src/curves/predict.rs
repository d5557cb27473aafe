//! Predicts the time of a measured point on the system's machine.

use lockstep_sim::{CollectiveRun, Platform, Roofline, SimError, nccl_choice, simulate_collective};
use lockstep_topology::{Cluster, Group, Hosting, Placement, PlacementRule};

use super::{Curve, CurvePoint, MeasuredSystem};

/// The prediction of a point.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Predicted {
    pub(super) micros: f64,
    /// NCCL's choice.
    pub(super) choice: Option<String>,
}

/// Predicts `point` of `curve` on `cluster`, the system's.
///
/// # Errors
/// Ranks that have no place, an algorithm that does not serve them.
pub(super) fn predict(
    system: &MeasuredSystem,
    cluster: &Cluster,
    curve: &Curve,
    point: &CurvePoint,
) -> Result<Predicted, SimError> {
    let placement = Placement::new(cluster, point.ranks, &PlacementRule::Pack)?;
    let placement = placement.and_switches(cluster, &curve.algorithm.joined(point.ranks), &curve.algorithm)?;
    let hosting = Hosting::new(&placement, &system.hosting)?;
    let costs = Roofline;
    let platform = Platform::new(cluster, &placement, &hosting, &costs);
    let members: Vec<_> = placement.all().collect();
    let group = match curve.algorithm.by_nodes() {
        true => Group::nodes(&placement.node_sizes(&members)),
        false => Group::flat(placement.ranks()),
    };
    let collective = curve.collective.of(point.ranks, point.bytes);
    let run = CollectiveRun::new(collective, curve.algorithm.clone(), group, point.bytes / 4);
    let time = simulate_collective(&run, &platform)?.time;
    let choice = nccl_choice(&run, &platform)?.and_then(|text| Some(text.split_once(" takes ")?.1.to_owned()));
    Ok(Predicted { micros: time.as_secs_f64() * 1e6, choice })
}
