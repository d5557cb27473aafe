//! `Axes`: the lists that `[sweep]` gives in place of the experiment's single values, as they are written.

use lockstep_models::{Bucket, Strategy};
use lockstep_topology::{Algorithm, Bytes, InputError};

use super::form::Form;
use super::read::{each, refuse_both};
use super::setting::{Apart, Style};
use super::{Batch, Experiment, Learners, SETTINGS};
use crate::sweep::{RankCount, SCALES, Scale, counts};
use lockstep_topology::document::Entry;

/// Lists by key; a key without one keeps what the experiment says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axes {
    /// Models, as `model` takes them.
    pub models: Option<Vec<String>>,
    /// Clusters, as `cluster` takes them, and with `1..32` in place of a number of hosts.
    pub clusters: Option<Vec<String>>,
    /// Numbers of ranks.
    pub ranks: Option<Vec<RankCount>>,
    /// How training is spread over ranks.
    pub strategies: Option<Vec<Strategy>>,
    /// Learners on each device.
    pub learners: Option<Vec<u32>>,
    /// Samples per step.
    pub batch: Option<Batch>,
    /// Micro-batches per step and rank.
    pub accumulate: Option<Vec<u32>>,
    /// Methods of the allreduce.
    pub algorithms: Option<Vec<Algorithm>>,
    /// How gradients are cut into exchanges.
    pub buckets: Option<Vec<Bucket>>,
    /// Bytes per lane; `None`: the algorithm's own choice.
    pub chunks: Option<Vec<Option<Bytes>>>,
    /// Exchanges in flight at once.
    pub concurrent_exchanges: Option<Vec<u32>>,
    /// Figures of the clusters, each with the factors that it is multiplied by.
    pub scales: Vec<Scale>,
}

/// Reads `[sweep]` into the experiment's axes; errors about its keys then name its lines.
pub(super) fn read(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    let axes: Vec<_> = SETTINGS.iter().filter_map(|setting| Some((setting.key, setting.axis.as_ref()?))).collect();
    let section = entry.section("[sweep]", &axes.iter().map(|(key, _)| *key).collect::<Vec<_>>())?;
    refuse_both(&section)?;
    for entry in section.entries() {
        let axis = axes.iter().find(|(key, _)| *key == entry.key());
        axis.map_or(Ok(()), |(_, axis)| axis.how.read(experiment, &entry))?;
        experiment.places.insert(entry.key().to_owned(), entry.place());
    }
    // What only errors about both keys ask for.
    if experiment.sweep.batch.is_some() {
        let other = if section.get("global_batch").is_some() { "batch_per_rank" } else { "global_batch" };
        experiment.places.remove(other);
    }
    Ok(())
}

/// Numbers, `1..1024` or `all`, each of which may stand for several.
pub(super) const RANKS: Apart = Apart {
    style: Style::List,
    check: |text| counts(text).map(drop),
    take: |experiment, texts| {
        let mut all: Vec<RankCount> = Vec::new();
        for count in texts.iter().flat_map(|text| counts(text).unwrap_or_default()) {
            if !all.contains(&count) {
                all.push(count);
            }
        }
        experiment.sweep.ranks = Some(all);
        Ok(())
    },
    read: |experiment, entry| {
        let mut all: Vec<RankCount> = Vec::new();
        for item in entry.items()? {
            let these = if item.text().is_ok() { item.read(counts)? } else { vec![RankCount::Of(item.count()?)] };
            for count in these {
                if all.contains(&count) {
                    return Err(item.error(format!("{count} ranks stand twice in ranks: leave one out")));
                }
                all.push(count);
            }
        }
        experiment.sweep.ranks = Some(all);
        Ok(())
    },
};

/// Numbers of learners; none is found by tuning.
pub(super) const LEARNERS: Form<u32> = Form {
    text: |text| match text.parse::<Learners>()? {
        Learners::Each(each) => Ok(each),
        Learners::Auto => Err("a sweep needs to know each configuration: write numbers, e.g. 1,2,4".to_owned()),
    },
    entry: |entry| match entry.text() {
        Ok(_) => Err(entry.error("a sweep needs to know each configuration: write numbers")),
        Err(_) => Ok(entry.whole(1..=1024)? as u32),
    },
    style: Style::One,
    is_number: true,
};

/// `nic=0.5,1,2`, several times, and a table in a file.
pub(super) const SCALE: Apart = Apart {
    style: Style::Repeated,
    check: |text| text.parse::<Scale>().map(drop),
    take: |experiment, texts| {
        let all: Vec<Scale> = texts.iter().filter_map(|text| text.parse().ok()).collect();
        if let Some(both) = Scale::overlap(&all) {
            return Err(InputError::flag("scale", all[0].name.clone(), both));
        }
        experiment.sweep.scales = all;
        Ok(())
    },
    read: |experiment, entry| scales(entry).map(|all| experiment.sweep.scales = all),
};

/// `[sweep.scale]`: for each name its factors.
fn scales(entry: &Entry<'_>) -> Result<Vec<Scale>, InputError> {
    let section = entry.section("[sweep.scale]", &SCALES)?;
    let mut all: Vec<Scale> = Vec::new();
    // In the order of the list of names, whatever the file's.
    for name in SCALES {
        let Some(entry) = section.get(name) else { continue };
        let factors = each(&entry, |item| item.number(0.0))?;
        all.push(Scale::new(name, factors).map_err(|wrong| entry.error(wrong))?);
        if let Some(both) = Scale::overlap(&all) {
            return Err(entry.error(both));
        }
    }
    Ok(all)
}
