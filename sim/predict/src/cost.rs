//! `TrainingCost`: what training costs at a price of its devices for an hour: a million samples, and an epoch.

use std::collections::BTreeSet;

use lockstep_experiment::{Configuration, Experiment};
use lockstep_topology::Placement;

/// What training costs, in the currency of the price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainingCost {
    /// A million samples.
    pub per_million_samples: f64,
    /// A pass over the training samples; `None` where their number is not known.
    pub per_epoch: Option<f64>,
}

impl TrainingCost {
    /// The cost at `price`, of a device for an hour, of `devices` that process `images_per_s` samples a second together;
    /// an epoch has `samples`.
    ///
    /// ```
    /// # use lockstep_predict::TrainingCost;
    /// // Eight devices at 2.50 are 20 an hour, in which 1,000 samples a second are 3.6 million.
    /// let cost = TrainingCost::at(2.5, 8, 1000.0, Some(1_800_000));
    /// assert!((cost.per_million_samples - 20.0 / 3.6).abs() < 1e-12);
    /// assert!((cost.per_epoch.unwrap() - 10.0).abs() < 1e-12);
    /// ```
    pub fn at(price: f64, devices: usize, images_per_s: f64, samples: Option<u64>) -> TrainingCost {
        let of = |samples: f64| samples / images_per_s / 3600.0 * devices as f64 * price;
        TrainingCost { per_million_samples: of(1e6), per_epoch: samples.map(|samples| of(samples as f64)) }
    }

    /// The cost of a configuration, where the experiment has a price for its cluster.
    pub(crate) fn of(
        experiment: &Experiment,
        configuration: &Configuration,
        price: Option<f64>,
        placement: &Placement,
        images_per_s: f64,
    ) -> Option<TrainingCost> {
        let samples = experiment.stated_samples(configuration.job.model.input());
        price.map(|price| TrainingCost::at(price, devices(placement), images_per_s, samples))
    }
}

/// Devices (GPUs, or CPUs with all their cores) that have ranks.
fn devices(placement: &Placement) -> usize {
    placement.all().map(|rank| placement.device(rank)).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::rows;
    use crate::{Setup, Site};
    use lockstep_sim::NetworkModel;

    fn costs(text: &str) -> Vec<(f64, Option<f64>, Option<f64>)> {
        let experiment = Experiment::parse("e.toml", &format!("name = \"e\"\nmodel = \"lenet\"\n{text}")).unwrap();
        let site = Site::open(&experiment, None).unwrap();
        let setup = Setup::of(&experiment, &site, NetworkModel::MaxMin).unwrap();
        let (found, _) = rows(&experiment, &site, &setup, |_, _| ()).unwrap();
        found.iter().map(|row| (row.images_per_s, row.cost_per_million_samples, row.cost_per_epoch)).collect()
    }

    /// Costs of GPUs with one and two learners each, and of CPUs with ranks on their cores, are those of the devices.
    #[test]
    fn costs_are_of_the_devices_that_have_ranks() {
        for (text, devices) in [
            ("cluster = \"dgx1-v100\"\nranks = 4\n", 4.0),
            ("cluster = \"dgx1-v100\"\nranks = 4\nstrategy = \"sma\"\nlearners = 2\n", 4.0),
            ("cluster = \"ethernet-4\"\nranks = 4\nranks_per_node = 2\n", 2.0),
        ] {
            let (images_per_s, million, epoch) = costs(&format!("{text}price = 1.8\n"))[0];
            let wanted = 1.8 * devices / 3600.0 / images_per_s * 1e6;
            assert!((million.unwrap() / wanted - 1.0).abs() < 1e-12, "{text}");
            // The default data set has no size that anyone stated.
            assert_eq!(epoch, None);
            let (_, _, epoch) = costs(&format!("{text}price = 1.8\ndata = \"synthetic:50000\"\n"))[0];
            assert!((epoch.unwrap() / (0.05 * wanted) - 1.0).abs() < 1e-12, "{text}");
        }
        assert_eq!(costs("cluster = \"dgx1-v100\"\ndata = \"synthetic:50000\"\n")[0].1, None);
    }
}
