//! Computes errors by curve, and over all of them.

use lockstep_report::{CurvePointRow, CurveRow};
use lockstep_sim::{CollectiveRun, Platform, Roofline, SimError, nccl_choice, simulate_collective};
use lockstep_topology::{Cluster, Group, Hosting, Placement, PlacementRule};

use super::shipped::cluster;
use super::{Curve, CurvePoint, MeasuredSystem};

/// Sizes that count as large.
const LARGE: u64 = 16 << 20;

/// Predictions beside measured curves.
#[derive(Debug, Clone)]
pub struct Curves {
    /// A row per curve.
    pub rows: Vec<CurveRow>,
    /// A row per point.
    pub points: Vec<CurvePointRow>,
    /// Notes about all of them.
    pub notes: Vec<String>,
}

/// Predicts all points of `systems`.
///
/// # Errors
/// An unknown cluster, ranks without a place, an algorithm that does not serve them.
pub fn curves(systems: &[MeasuredSystem]) -> Result<Curves, SimError> {
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    for system in systems {
        let cluster = cluster(&system.cluster)?;
        for curve in &system.curves {
            let mut own = Vec::new();
            for point in &curve.points {
                let predicted = predict(system, &cluster, curve, point)?;
                own.push(CurvePointRow {
                    system: system.name.clone(),
                    curve: curve.name.clone(),
                    ranks: point.ranks,
                    bytes: point.bytes,
                    choice: predicted.choice,
                    time_us: point.micros,
                    predicted_time_us: predicted.micros,
                    log_error: libm::log(predicted.micros / point.micros).abs(),
                    counted: curve.counted.contains(&point.bytes),
                });
            }
            rows.extend(row(system, curve, &own));
            points.append(&mut own);
        }
    }
    let notes = vec![note(&rows)];
    Ok(Curves { rows, points, notes })
}

/// The errors of a curve; `None` where no point counts.
fn row(system: &MeasuredSystem, curve: &Curve, points: &[CurvePointRow]) -> Option<CurveRow> {
    let counted = || points.iter().filter(|point| point.counted);
    let worst = counted().max_by(|one, other| one.log_error.total_cmp(&other.log_error))?;
    Some(CurveRow {
        system: system.name.clone(),
        curve: curve.name.clone(),
        collective: curve.collective.of(2, 8).name().to_owned(),
        algorithm: curve.algorithm.to_string(),
        points: counted().count() as u32,
        median_log_error: median(counted().map(|point| point.log_error))?,
        median_log_error_from_16mib: median(
            counted().filter(|point| point.bytes >= LARGE).map(|point| point.log_error),
        ),
        worst_log_error: worst.log_error,
        worst_at_bytes: worst.bytes,
    })
}

/// The median; `None` without values.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| lockstep_models::median(values))
}

fn note(rows: &[CurveRow]) -> String {
    let of_all = median(rows.iter().map(|row| row.median_log_error)).unwrap_or(0.0);
    let worst = rows.iter().map(|row| row.median_log_error).fold(0.0, f64::max);
    let large = median(rows.iter().filter_map(|row| row.median_log_error_from_16mib)).unwrap_or(0.0);
    format!(
        "|ln(predicted / measured)|, the median of each curve: of {} curves the median is {of_all:.3}, the largest {worst:.3}; from 16 MiB \
         the median is {large:.3}",
        rows.len()
    )
}

/// The prediction of a point.
#[derive(Debug, Clone, PartialEq)]
struct Predicted {
    micros: f64,
    /// NCCL's choice.
    choice: Option<String>,
}

/// Predicts `point` of `curve` on `cluster`, the system's.
///
/// # Errors
/// Ranks that have no place, an algorithm that does not serve them.
fn predict(
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
