//! Takes fixed subsets, a given number of samples of each part of a data set, so that a short run still uses real data.

use lockstep_topology::InputError;

use super::Dataset;
use super::split::stratified;

/// Seed of the subsets: the year of Fashion-MNIST's paper. It must never change, or runs stop being comparable.
const SEED: u64 = 2017;

/// The number of samples of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subset {
    train: u32,
    held_out: u32,
}

impl Subset {
    /// Splits `NAME:TRAIN+HELD_OUT` into the name and the two numbers; `None` where `what` has no such ending.
    pub(super) fn split(what: &str) -> Option<(&str, Subset)> {
        let (name, counts) = what.rsplit_once(':')?;
        let (train, held_out) = counts.split_once('+')?;
        Some((name, Subset { train: train.parse().ok()?, held_out: held_out.parse().ok()? }))
    }

    /// The samples of both parts: each class's share, rounded down or up.
    ///
    /// # Errors
    /// No sample, or more than there are; `what` is the value given by the user.
    pub(super) fn of(
        self,
        what: &str,
        (train, held_out): (Dataset, Dataset),
    ) -> Result<(Dataset, Dataset), InputError> {
        let some = |data: Dataset, count: u32, part: &str| {
            let all = data.len() as u32;
            let error = |cure: String| Err(InputError::flag("data", what, cure));
            if count > all {
                return error(format!("there are {all} samples {part}: use that many at most"));
            }
            if count == 0 {
                return error(format!("no sample {part} is too few: use more"));
            }
            // Samples that have not one label each are of one class.
            let (labels, classes) = match data.labels().len() == data.len() {
                true => (data.labels().to_vec(), data.classes()),
                false => (vec![0; data.len()], 1),
            };
            let (rest, mut drawn) = stratified(&labels, classes, count, all, SEED);
            // Rounding leaves some samples: one more of as many classes, at most one of each.
            let mut more = vec![true; classes as usize];
            let first_of_class = |sample: &u32| std::mem::take(&mut more[labels[*sample as usize] as usize]);
            drawn.extend(rest.into_iter().filter(first_of_class).take(count as usize - drawn.len()));
            drawn.sort_unstable();
            Ok(data.subset(&drawn))
        };
        Ok((some(train, self.train, "to train on")?, some(held_out, self.held_out, "held out")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_counts_after_a_colon_select_a_subset() {
        let subset = |train, held_out| Subset { train, held_out };
        assert_eq!(Subset::split("mnist:400+100"), Some(("mnist", subset(400, 100))));
        assert_eq!(Subset::split("a:b:4+1"), Some(("a:b", subset(4, 1))));
        for other in ["mnist", "mnist:400", "synthetic:64", "mnist:4+x", "4+1"] {
            assert_eq!(Subset::split(other), None, "{other}");
        }
    }
}
