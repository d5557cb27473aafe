//! Reads the factors by which a sweep multiplies figures of clusters: `nic=0.5,1,2`, several times, and the table
//! `[sweep.scale]`.

use lockstep_topology::InputError;

use crate::experiment::Experiment;
use crate::form::Style;
use crate::scale::{ClusterScale, SCALES};
use crate::setting::{Reading, SettingEntry};
use lockstep_topology::document::Entry;

/// Figures of clusters with their factors.
pub(crate) struct Scales;

impl Reading for Scales {
    fn style(&self) -> Style {
        Style::Repeated
    }

    fn check(&self, text: &str) -> Result<(), String> {
        text.parse::<ClusterScale>().map(drop)
    }

    fn take(&self, experiment: &mut Experiment, _: &SettingEntry, texts: &[String]) -> Result<(), InputError> {
        let all: Vec<ClusterScale> = texts.iter().filter_map(|text| text.parse().ok()).collect();
        if let Some(both) = ClusterScale::overlap(&all) {
            return Err(InputError::flag("scale", all[0].name.clone(), both));
        }
        experiment.sweep.scales = all;
        Ok(())
    }

    fn read(&self, experiment: &mut Experiment, _: &SettingEntry, entry: &Entry<'_>) -> Result<(), InputError> {
        let section = entry.section("[sweep.scale]", &SCALES)?;
        let mut all: Vec<ClusterScale> = Vec::new();
        // In the order of the list of names, regardless of the file's.
        for entry in SCALES.iter().filter_map(|name| section.get(name)) {
            let factors = entry.items()?.iter().map(|item| item.number(0.0)).collect::<Result<_, _>>()?;
            all.push(ClusterScale::new(entry.key(), factors).map_err(|wrong| entry.error(wrong))?);
            if let Some(both) = ClusterScale::overlap(&all) {
                return Err(entry.error(both));
            }
        }
        experiment.sweep.scales = all;
        Ok(())
    }
}
