//! Decides which batches threads prepare, as tasks ahead of the loads of a program.

use lockstep_models::{Augmentation, SampleForm, StoredSamples};

use crate::Experiment;

impl Experiment {
    /// How the samples are stored that threads prepare ahead of the loads of `ranks` ranks, as tasks; `None` where each
    /// load draws its samples, and where it is not known how they are stored.
    ///
    /// Threads decode files of pictures, and do all that [`Experiment::decode_threads`] are stated for. By default they convert
    /// and augment other samples where a core is left for them: on the cores of ranks they would only take turns with
    /// these. They do not copy values: a load would copy them again.
    pub fn prepared_for(&self, ranks: u32) -> Option<StoredSamples> {
        let stored = self.loaded?.stored?;
        let works = stored.form != SampleForm::Values || self.augmentation != Augmentation::default();
        let taken = u64::from(ranks) * u64::from(self.threads_per_rank);
        let has_core = self.cores.is_some_and(|cores| u64::from(cores) > taken);
        let prepares = self.decode_threads.is_some() || stored.form.is_picture() || works && has_core;
        prepares.then_some(stored)
    }

    /// The same for any of its numbers of ranks.
    pub fn prepared(&self) -> Option<StoredSamples> {
        self.rank_counts()
            .ok()?
            .into_iter()
            .find_map(|devices| self.prepared_for(devices.saturating_mul(self.learners)))
    }

    /// Whether threads prepare the samples of all its numbers of ranks.
    pub fn is_prepared(&self) -> bool {
        let counts = self.rank_counts().unwrap_or_default();
        counts.into_iter().all(|devices| self.prepared_for(devices.saturating_mul(self.learners)).is_some())
    }

    /// Whether threads decode samples, which a device can transform.
    pub fn decodes(&self) -> bool {
        self.prepared().is_some_and(|stored| stored.form.is_picture())
    }
}

#[cfg(test)]
mod tests {
    use lockstep_models::{SetSizes, Shape};

    use super::*;

    /// On two cores: by form, augmentation, stated threads and ranks.
    #[test]
    fn arrays_and_values_are_prepared_where_a_core_is_left() {
        let of = |form, augment: &str, decode_threads, threads_per_rank| {
            let stored = StoredSamples { form, ..StoredSamples::values(Shape::flat(1)) };
            let loaded = SetSizes { stored: Some(stored), ..SetSizes::of_counts(10, 1) };
            Experiment {
                loaded: Some(loaded),
                cores: Some(2),
                augmentation: augment.parse().expect("an augmentation"),
                decode_threads,
                threads_per_rank,
                ranks: vec![1, 2],
                ..Experiment::default()
            }
        };
        for (form, augment, threads, threads_per_rank, on_one, on_two) in [
            (SampleForm::Jpeg, "none", None, 1, true, true),
            (SampleForm::Jpeg, "flip", None, 2, true, true),
            (SampleForm::Png, "flip", None, 2, true, true),
            (SampleForm::Bytes, "none", None, 1, true, false),
            (SampleForm::Bytes, "flip", None, 2, false, false),
            (SampleForm::Bytes, "none", Some(1), 2, true, true),
            (SampleForm::Values, "none", None, 1, false, false),
            (SampleForm::Values, "flip", None, 1, true, false),
            (SampleForm::Values, "none", Some(3), 1, true, true),
        ] {
            let experiment = of(form, augment, threads, threads_per_rank);
            let case = format!("{form:?} {augment} {threads:?} {threads_per_rank}");
            assert_eq!([1, 2].map(|ranks| experiment.prepared_for(ranks).is_some()), [on_one, on_two], "{case}");
            assert_eq!((experiment.prepared().is_some(), experiment.is_prepared()), (on_one, on_two), "{case}");
            assert_eq!(experiment.decodes(), form.is_picture(), "{case}");
            let named = Experiment { model: "mlp".to_owned(), ..experiment.clone() };
            let ahead = named.configurations().expect("configurations");
            let ahead: Vec<bool> = ahead.iter().map(|one| one.job.ahead.is_some()).collect();
            assert_eq!(ahead, [on_one, on_two], "{case}");
        }
        // Where the number of cores is not known, none are left.
        assert_eq!(Experiment { cores: None, ..of(SampleForm::Bytes, "flip", None, 1) }.prepared(), None);
    }
}
