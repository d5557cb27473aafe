//! Applies what a file of another training framework says, where nothing else in the experiment does.

use lockstep_models::Axis;
use lockstep_topology::{ErrorPlace, InputError};

use crate::axis_sizes::{AXIS_SIZES, AxisSizes, INTERLEAVE};
use crate::batch::Batch;
use crate::experiment::Experiment;
use crate::foreign::Foreign;
use crate::form::positive;
use crate::settings::settings;

impl Experiment {
    /// Sets what the file of another framework says and nothing else does.
    ///
    /// # Errors
    /// Values that contradict each other or what the experiment says itself.
    pub(crate) fn follow_foreign(&mut self) -> Result<(), InputError> {
        let Some(from) = self.from.take() else { return Ok(()) };
        let from = from.opened(self.sets("model"))?;
        let Foreign { file, read, place, .. } = &from;
        let wrong = |flag: &str, error: InputError| InputError::new(file.as_str(), flag, error.to_string());
        let mut axes = AxisSizes::default();
        let (mut per_rank, mut global) = (None, None);
        for (flag, value) in &read.flags {
            let count = || positive(value).map_err(|message| InputError::new(file.as_str(), value, message));
            let axis = AXIS_SIZES.iter().position(|(_, name)| name == flag);
            // The experiment's ranks say how many copies there are; an axis of one rank is none.
            let stands = axis.is_none_or(|axis| {
                !self.sets("mesh") && if AXIS_SIZES[axis].0 == Axis::Data { !self.sets("ranks") } else { value != "1" }
            });
            match (*flag, axis) {
                (_, Some(axis)) if stands => axes.sizes[axis] = Some(count()?),
                (INTERLEAVE, _) if !self.sets("schedule") => axes.chunks = Some(count()?),
                (INTERLEAVE, _) | (_, Some(_)) => {}
                ("micro-batch-size", _) => per_rank = Some(count()?),
                ("global-batch-size", _) => global = Some(u64::from(count()?)),
                _ => self.set_foreign(flag, value, place).map_err(|error| wrong(flag, error))?,
            }
        }
        self.batch_foreign(per_rank, global, place).map_err(|error| wrong("batch", error))?;
        axes.apply(self).map_err(|error| wrong("mesh", error))?;
        ["mesh", "schedule"].iter().filter(|key| axes.gives(key)).for_each(|key| {
            self.places.insert((*key).to_owned(), place.clone());
        });
        self.from = Some(from);
        Ok(())
    }

    /// Sets one of its flags, where nothing else does.
    fn set_foreign(&mut self, flag: &str, value: &str, place: &ErrorPlace) -> Result<(), InputError> {
        let key = flag.replace('-', "_");
        if self.sets(&key) || key == "accumulate" && self.sets("global_batch") {
            return Ok(());
        }
        let missing = || InputError::new("", value, "is no setting of an experiment");
        let setting = settings().find(|setting| setting.key == key).ok_or_else(missing)?;
        setting.how.check(value).map_err(|message| InputError::flag(setting.key, value, message))?;
        setting.how.take(self, setting, &[value.to_owned()])?;
        self.places.insert(key, place.clone());
        Ok(())
    }

    /// Sets its samples of a micro-batch and of a step, where nothing else does.
    fn batch_foreign(
        &mut self,
        per_rank: Option<u32>,
        global: Option<u64>,
        place: &ErrorPlace,
    ) -> Result<(), InputError> {
        let own_size = self.sets("batch_per_rank");
        let own_step = self.sets("global_batch") || self.sets("accumulate");
        let sizes = if own_size { self.batch.per_rank().to_vec() } else { per_rank.into_iter().collect() };
        match (global.filter(|_| !own_step), sizes.as_slice()) {
            (Some(global), []) => self.batch = Batch::Global(vec![global]),
            (Some(global), sizes) => self.set_batches(sizes, vec![global])?,
            (None, sizes) if !sizes.is_empty() && !own_size => {
                let batch = std::mem::replace(&mut self.batch, Batch::PerRank(Vec::new()));
                match batch.global().to_vec() {
                    step if step.is_empty() => self.batch = Batch::PerRank(sizes.to_vec()),
                    step => self.set_batches(sizes, step)?,
                }
            }
            (None, _) => return Ok(()),
        }
        for (key, is) in
            [("batch_per_rank", per_rank.is_some() && !own_size), ("global_batch", global.is_some() && !own_step)]
        {
            if is {
                self.places.insert(key.to_owned(), place.clone());
            }
        }
        Ok(())
    }

    /// What of the other framework's file is taken and what not, a line each.
    pub(crate) fn account_of_foreign(&self) -> Vec<String> {
        self.from.as_ref().map_or_else(Vec::new, Foreign::account)
    }
}
