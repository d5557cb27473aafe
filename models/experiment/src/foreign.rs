//! `Foreign`: the settings in a file of another training framework, for those that nothing else in an experiment sets.

use std::path::Path;

use lockstep_flags::{Read, read_file};
use lockstep_topology::document::Entry;
use lockstep_topology::{ErrorPlace, InputError};

use crate::axis_sizes::{AXIS_SIZES, AxisSizes, INTERLEAVE};
use crate::batch::Batch;
use crate::experiment::Experiment;
use crate::settings::settings;

/// A file of another framework.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreign {
    /// Its path.
    file: String,
    /// Whether what is not understood is left out.
    ignore: bool,
    /// What it says, once it has been read.
    read: Read,
    /// Where the experiment names it.
    place: ErrorPlace,
}

/// The file under the key `from`: its path, or a table with it and whether to leave out what is not understood.
pub(crate) fn read(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    let (file, ignore) = match entry.text() {
        Ok(file) => (file.to_owned(), false),
        Err(_) => {
            let table = entry.section("from", &["file", "ignore"])?;
            let file = table.need("file", "\"train.toml\"")?.text()?.to_owned();
            (file, table.get("ignore").map_or(Ok(false), |ignore| ignore.boolean())?)
        }
    };
    experiment.from = Some(Foreign { file, ignore, read: Read::default(), place: entry.place() });
    Ok(())
}

impl Experiment {
    /// Sets what the file of another framework says and nothing else does.
    ///
    /// # Errors
    /// Values that contradict each other or what the experiment says itself.
    pub(crate) fn follow_foreign(&mut self) -> Result<(), InputError> {
        let Some(Foreign { file, ignore, place, .. }) = self.from.clone() else { return Ok(()) };
        let read = read_file(Path::new(&file), self.sets("model"))?.for_predictions();
        if !ignore {
            read.check(&file, "write from = { file = …, ignore = true }")?;
        }
        let wrong = |flag: &str, error: InputError| InputError::new(file.as_str(), flag, error.to_string());
        let mut axes = AxisSizes::default();
        let (mut per_rank, mut global) = (None, None);
        for (flag, value) in &read.flags {
            let axis = AXIS_SIZES.iter().position(|(_, name)| name == flag);
            match (*flag, axis) {
                (_, Some(axis)) if !self.sets("mesh") => axes.sizes[axis] = value.parse().ok(),
                (INTERLEAVE, _) if !self.sets("schedule") => axes.chunks = value.parse().ok(),
                (INTERLEAVE, _) | (_, Some(_)) => {}
                ("micro-batch-size", _) => per_rank = value.parse::<u32>().ok(),
                ("global-batch-size", _) => global = value.parse::<u64>().ok(),
                _ => self.set_foreign(flag, value, &place).map_err(|error| wrong(flag, error))?,
            }
        }
        self.batch_foreign(per_rank, global, &place).map_err(|error| wrong("batch", error))?;
        axes.apply(self).map_err(|error| wrong("mesh", error))?;
        self.from = Some(Foreign { file: file.clone(), ignore, read, place: place.clone() });
        ["mesh", "schedule"].iter().filter(|key| axes.gives(key)).for_each(|key| {
            self.places.insert((*key).to_owned(), place.clone());
        });
        Ok(())
    }

    /// Sets one of its flags, where nothing else does.
    fn set_foreign(&mut self, flag: &str, value: &str, place: &ErrorPlace) -> Result<(), InputError> {
        let key = flag.replace('-', "_");
        let taken = self.sets(&key) || key == "accumulate" && self.sets("global_batch");
        let Some(setting) = settings().find(|setting| setting.key == key).filter(|_| !taken) else { return Ok(()) };
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
    pub fn account_of_foreign(&self) -> Vec<String> {
        let Some(Foreign { file, read, .. }) = &self.from else { return Vec::new() };
        let flags: Vec<String> =
            read.flags.iter().map(|(flag, value)| format!("{flag} {value}").trim_end().to_owned()).collect();
        let first = format!("{file} ({}) stands for {}, where nothing else sets them", read.source, flags.join(", "));
        std::iter::once(first).chain(read.notes().map(|note| format!("{file}: {note}"))).collect()
    }
}
