//! Estimates the typical error of a prediction from where such predictions were measured: the error of computation for the
//! share of the step that computes, that of exchanges for the share that waits for them.
//!
//! It is a mean error, not an interval. Two rows that differ by less cannot be put in order, unless their errors are
//! alike, as on one kind of GPU.

use lockstep_sim::costs::kernel_error;
use lockstep_topology::Library;
use lockstep_topology::cluster::DeviceKind;

use crate::predicted::Predicted;
use crate::setup::Setup;
use crate::shipped::CALIBRATED;
use crate::site::Site;
use lockstep_experiment::Experiment;
use lockstep_models::Role;
use lockstep_report::PredictedRow;

/// The same of ranks that share cores.
const SHARING_CORES: f64 = 0.11;
/// The error of kernels of CPUs that are priced by data sheets: assumed to be that of GPUs without timed kernels.
const CPU_DATA_SHEET: f64 = 0.65;
/// The error of exchanges on a described network: the largest of the medians over NCCL's measured curves
/// (docs/collectives.md).
const EXCHANGES: f64 = 0.13;

/// Why the typical error of a prediction is not known, as a note says it; `None` where it is.
pub(crate) fn not_known(predicted: &Predicted) -> Option<&'static str> {
    if predicted.program.whole_model().tokens().is_some() {
        return Some(
            "the typical error is not known: predictions of models of tokens were compared with no measurement yet, attention on GPUs \
             is priced as a plain matrix product, and activations of split layers are copied and sent in fp32",
        );
    }
    let mut exchanges = predicted.program.roles.iter().flat_map(Role::exchanges);
    let waits = predicted.exposed_comm_s > 0.0
        && exchanges.any(|(_, exchange)| exchange.algorithm.library() == Some(Library::Predicted));
    waits.then_some(
        "the typical error is not known: the step waits for exchanges by library:rccl, whose predictions were compared with no \
         measurement",
    )
}

/// The typical error of a prediction, relative to its throughput; `None` where it is [`not_known`].
pub(crate) fn typical_error(experiment: &Experiment, site: &Site, setup: &Setup, predicted: &Predicted) -> Option<f64> {
    let step = predicted.step_time_s;
    let share = |seconds: f64| if step > 0.0 { (seconds / step).clamp(0.0, 1.0) } else { 0.0 };
    let exposed = share(predicted.exposed_comm_s);
    let exchanges = if experiment.on_this_machine() { CALIBRATED } else { EXCHANGES };
    let computing = computation(experiment, site, setup, predicted);
    not_known(predicted).is_none().then(|| ((1.0 - exposed) * computing).hypot(exposed * exchanges))
}

/// The error of the time of a rank's tasks, the largest of the devices in use.
fn computation(experiment: &Experiment, site: &Site, setup: &Setup, predicted: &Predicted) -> f64 {
    // An anchor is a measurement of computation.
    let anchored = experiment.anchor.is_some();
    let of_device = |rank| {
        let device = &site.cluster.devices()[predicted.placement.device(rank).0 as usize];
        match &device.kind {
            DeviceKind::Gpu(gpu) if !anchored && !site.prices(gpu) => {
                kernel_error(gpu, predicted.program.precision).exp_m1()
            }
            DeviceKind::Cpu(_) if !anchored && site.profile.is_none() => CPU_DATA_SHEET,
            DeviceKind::Cpu(cpu) => {
                let threads = predicted.placement.ranks_on(device.id).saturating_mul(setup.options.threads_per_rank);
                if threads > cpu.cores { SHARING_CORES } else { CALIBRATED }
            }
            DeviceKind::Gpu(_) | DeviceKind::Switch(_) => CALIBRATED,
        }
    };
    predicted.placement.all().map(of_device).fold(0.0, f64::max)
}

/// The note on errors, and a note on each two clusters whose best rows differ by less than their errors.
pub fn error_notes(rows: &[PredictedRow]) -> Vec<String> {
    let errors = || rows.iter().filter_map(|row| row.typical_error_pct);
    let span = errors().reduce(f64::min).zip(errors().reduce(f64::max)).map(|(least, most)| {
        let (least, most) = (format!("{least:.0}"), format!("{most:.0}"));
        if least == most { most } else { format!("{least} to {most}") }
    });
    let known = span.map(|span| {
        format!(
            "± {span} % is the typical error of such predictions: of kernels by data sheets or a calibration, and of exchanges, \
             where others were measured, else assumed (docs/simulator.md)"
        )
    });
    let mut notes: Vec<String> = known.into_iter().collect();
    let clusters = rows.iter().fold(Vec::<&str>::new(), |mut names, row| {
        if !names.contains(&row.cluster.as_str()) {
            names.push(&row.cluster);
        }
        names
    });
    for (at, first) in clusters.iter().enumerate() {
        notes.extend(clusters[at + 1..].iter().filter_map(|second| undecided(rows, first, second)));
    }
    notes
}

/// Whether the fastest rows of two clusters differ by less than their errors together.
fn undecided(rows: &[PredictedRow], first: &str, second: &str) -> Option<String> {
    let best = |cluster: &str| {
        let of_it = rows.iter().enumerate().filter(|(_, row)| row.cluster == cluster);
        of_it.max_by(|(_, a), (_, b)| a.images_per_s.total_cmp(&b.images_per_s))
    };
    let ((at, a), (other, b)) = (best(first)?, best(second)?);
    let (Some(of_a), Some(of_b)) = (a.typical_error_pct, b.typical_error_pct) else {
        let (at, other) = (at + 1, other + 1);
        return Some(format!(
            "which of {first} and {second} is faster is not known: the typical errors of rows {at} and {other} are not both known"
        ));
    };
    let apart = (a.images_per_s / b.images_per_s).ln().abs().exp_m1() * 100.0;
    let errors = of_a.hypot(of_b);
    (apart < errors).then(|| {
        format!(
            "rows {} and {} differ by {apart:.0} %, less than their errors together ({errors:.0} %): which of {first} and {second} \
             is faster is not known, unless they are off alike, as one kind of GPU is",
            at + 1,
            other + 1
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cluster: &str, images_per_s: f64, error: f64) -> PredictedRow {
        let cluster = cluster.to_owned();
        PredictedRow { cluster, images_per_s, typical_error_pct: Some(error), ..PredictedRow::default() }
    }

    /// Rows that wait for RCCL have no typical error; a single rank waits for nothing, and other algorithms are known. Those of
    /// models of tokens have none.
    #[test]
    fn errors_that_were_not_measured_are_not_known() {
        let predicted = |model: &str, settings: &str| {
            let text =
                format!("name = \"e\"\nmodel = \"{model}\"\ncluster = \"mi300x-8\"\nbatch_per_rank = 16\n{settings}\n");
            let mut experiment = Experiment::parse("e.toml", &text).unwrap();
            experiment.find_library();
            let site = Site::open(&experiment, None).unwrap();
            let setup = Setup::of(&experiment, &site, Default::default()).unwrap();
            crate::rows::rows(&experiment, &site, &setup, |_, _| {}).unwrap()
        };
        for (model, settings, known) in [
            ("resnet-32", "ranks = 8", false),
            ("resnet-32", "ranks = 1", true),
            ("resnet-32", "ranks = 8\nalgorithm = \"ring\"", true),
            ("gpt2-char", "ranks = 1", false),
        ] {
            let (rows, notes) = predicted(model, settings);
            let says = notes.iter().any(|note| note.contains("typical error is not known"));
            assert_eq!((rows[0].typical_error_pct.is_some(), says), (known, !known), "{settings}: {notes:?}");
        }
    }

    #[test]
    fn clusters_closer_than_their_errors_are_not_put_in_order() {
        // Errors of 3 and 4 % are 5 % together.
        let notes = |second: f64| error_notes(&[row("a", 100.0, 3.0), row("b", 10.0, 4.0), row("b", second, 4.0)]);
        assert_eq!(notes(104.0).len(), 2);
        assert!(notes(104.0)[1].starts_with("rows 1 and 3 differ by 4 %"), "{:?}", notes(104.0));
        assert_eq!(notes(106.0).len(), 1);
        assert!(notes(106.0)[0].starts_with("± 3 to 4 %"));
        let alike = error_notes(&[row("a", 100.0, 38.6), row("a", 90.0, 39.4)]);
        assert!(alike[0].starts_with("± 39 % is"), "{alike:?}");
        assert!(error_notes(&[]).is_empty());
        let unknown = PredictedRow { typical_error_pct: None, ..row("b", 50.0, 0.0) };
        let notes = error_notes(&[row("a", 100.0, 3.0), unknown]);
        assert_eq!(notes.len(), 2);
        assert!(notes[0].starts_with("± 3 %") && notes[1].contains("rows 1 and 2 are not both known"), "{notes:?}");
    }
}
