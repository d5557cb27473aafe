//! Says where a step reacts more to another resource than to the one that bounds it.
//!
//! The bound is the resource that is busy for the largest share of the step. Exchanges of which a part is exposed may determine
//! more of it although their links are busy for less.

use lockstep_report::explanation::Explanation;

/// Smaller differences, in percent per percent, are not said.
const SAID: f64 = 0.05;

/// The line about the rate to which the step reacts most, where it is not that of the bound.
pub(super) fn stronger(answer: &Explanation) -> Option<String> {
    let class = &answer.classes.iter().find(|class| class.busiest == answer.bound)?.class;
    let computes = ["multiprocessors", "cores", "GPU memory", "host memory"].contains(&class.as_str());
    let own = match class.as_str() {
        "multiprocessors" => "GPU peak FLOP/s".to_owned(),
        "cores" => "CPU peak FLOP/s".to_owned(),
        "storage" | "decode threads" => return None,
        class => format!("{class} bandwidth"),
    };
    let of = |name: &str| answer.sensitivities.iter().find(|of| of.parameter == name).map_or(0.0, |of| of.elasticity);
    // With a profile, times of kernels stand for both figures of a device.
    let own_share = if computes { (-of(&own)).max(of("kernel times")) } else { -of(&own) };
    let rates = answer
        .sensitivities
        .iter()
        .filter(|of| of.parameter != own && (of.parameter.ends_with("bandwidth") || of.parameter.ends_with("FLOP/s")));
    let most = rates.min_by(|a, b| a.elasticity.total_cmp(&b.elasticity))?;
    let exchanging = answer.critical_path.iter().find(|kind| kind.kind == "exchange").map_or(0.0, |kind| kind.share);
    (-most.elasticity > own_share + SAID).then(|| {
        format!(
            "1 % more {} takes {:.2} % off the step, 1 % more of this {:.2} %; {:.0} % of the critical path is exchanges",
            most.parameter,
            -most.elasticity,
            own_share,
            100.0 * exchanging
        )
    })
}

#[cfg(test)]
mod tests {
    use lockstep_experiment::Experiment;

    use super::*;
    use crate::setup::Setup;
    use crate::site::Site;

    /// What is said of a step on two DGX H100, and its sensitivities.
    fn said(model: &str, batch: u32) -> (Option<String>, Vec<(String, f64)>, String) {
        let text = format!(
            "name = \"e\"\nmodel = \"{model}\"\ncluster = \"dgx-h100:2\"\nranks = 16\nbatch_per_rank = {batch}\nprecision = \"bf16\"\n"
        );
        let mut experiment = Experiment::parse("e.toml", &text).unwrap();
        experiment.find_library();
        let site = Site::open(&experiment, None).unwrap();
        let setup = Setup { explain: true, ..Setup::of(&experiment, &site, Default::default()).unwrap() };
        let (rows, _) = crate::rows::rows(&experiment, &site, &setup, |_, _| {}).unwrap();
        let answer = rows[0].explanation.clone().unwrap();
        let found = answer.sensitivities.iter().map(|of| (of.parameter.clone(), of.elasticity)).collect();
        (stronger(&answer), found, answer.bound)
    }

    /// Of AlexNet's step 56 % of the critical path is exchanges, so that NVLink counts for more than the busiest resource, the
    /// GPUs' memory; VGG-16 computes for longer than it exchanges.
    #[test]
    fn a_stronger_rate_than_the_bounds_is_said() {
        let (line, found, bound) = said("alexnet", 64);
        let line = line.unwrap_or_else(|| panic!("{bound}: {found:?}"));
        let (first, elasticity) = &found[0];
        assert!(bound.ends_with("gpu0 memory") && first == "nvlink bandwidth", "{bound}: {found:?}");
        assert!(line.starts_with(&format!("1 % more {first} takes {:.2} % off the step", -elasticity)), "{line}");
        let (line, found, bound) = said("vgg-16", 64);
        assert_eq!(line, None, "{bound}: {found:?}");
    }
}
