//! Tests that a link's bandwidth matters where it bounds a step and nowhere else: every kind of link of every paper's
//! cluster at twice its rate.

use crate::case::{Case, Known};
use crate::figures::{Cores, Figure};
use crate::machine::{Machine, MachineParameter};
use crate::paper::Paper;
use crate::shipped::{PAPERS, Shipped};
use lockstep_experiment::Experiment;
use lockstep_experiment::sweep::ClusterScale;
use lockstep_predict::Site;

/// Ranks of the largest configuration that is tried, so that the test takes seconds.
const MOST_RANKS: u32 = 16;
/// Kinds of link whose rate no kernel depends on.
const LINKS: [&str; 7] = ["ethernet", "infiniband", "gemini", "nvlink", "pcie", "host-bridge", "shared-memory"];

/// The paper's configurations, the larger ones with fewer ranks.
fn configurations(paper: &Paper) -> Vec<Experiment> {
    let mut found: Vec<Experiment> = Vec::new();
    for experiment in paper.rows.iter().flat_map(|row| row.experiments()) {
        let ranks = experiment.ranks.iter().map(|ranks| (*ranks).min(MOST_RANKS)).collect();
        let smaller = Experiment { ranks, ..experiment.clone() };
        if experiment.cluster == paper.common.cluster && !found.contains(&smaller) {
            found.push(smaller);
        }
    }
    found
}

/// No step takes longer, and none gains more than the time that its computation was idle. Steps that a link bounds gain
/// from one kind of link or another (the busiest wire may wait for a slower copy): with computation as in data sheets,
/// and with a thousandth of it.
#[test]
fn a_links_bandwidth_matters_only_where_it_is_the_bottleneck() {
    let scale = |name: &str| MachineParameter::Scale(ClusterScale::new(name, vec![1.0]).unwrap());
    let faster = [(scale("gpu"), 1000.0), (scale("gpu-memory"), 1000.0), (scale("launch"), 0.001)];
    let mut bounded = 0;
    for Shipped { name, .. } in PAPERS {
        let paper = Paper::load(name).unwrap();
        let cores = Cores::all();
        let configurations = configurations(&paper);
        let site = Site::open(&paper.common, None).unwrap();
        let figures = |machine: Machine<'_>| -> Vec<Figure> {
            let known = Known::default();
            let case = Case::unanchored(&paper, &cores, machine, &known).unwrap();
            cores.each(&configurations, |experiment| case.figure(experiment).unwrap())
        };
        for machine in [Vec::new(), faster.iter().map(|(parameter, value)| (parameter, *value)).collect()] {
            let before = figures(machine.clone());
            let mut gains = vec![0.0_f64; before.len()];
            for link in LINKS {
                let twice = MachineParameter::Scale(ClusterScale::new(link, vec![2.0]).unwrap());
                if !matches!(&twice, MachineParameter::Scale(scale) if scale.touches(&site.cluster)) {
                    continue;
                }
                let after = figures(machine.iter().copied().chain([(&twice, 2.0)]).collect());
                for (index, (before, after)) in before.iter().zip(after).enumerate() {
                    let experiment = &configurations[index];
                    let gain = 1.0 - after.step_time_s / before.step_time_s;
                    let still = before.exposed_s / before.step_time_s;
                    gains[index] = gains[index].max(gain);
                    let what = format!(
                        "{name} {} on {:?}, {link}: gains {gain:.4} of {still:.4}, bound by {}",
                        experiment.model, experiment.ranks, before.bound
                    );
                    // Up to a hundredth is lost where the order of events changes; kernels beside shorter transfers
                    // gain some more.
                    assert!(gain > -0.01 && gain < still + 0.05, "{what}");
                }
            }
            for (before, gain) in before.iter().zip(gains) {
                let by_link = before.bound_kind.as_deref().is_some_and(|kind| LINKS.contains(&kind));
                assert!(!by_link || gain > 0.05, "{name}: bound by {}, gains {gain:.4}", before.bound);
                bounded += u32::from(by_link);
            }
        }
    }
    assert!(bounded > 0, "no link bounds anything");
}
