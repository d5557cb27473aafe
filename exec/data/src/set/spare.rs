//! `Spare`: keeps the memory of samples that have left a rank for those that arrive.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Memory of samples that have left, by bytes. Pages that were in use need no clearing by the system.
#[derive(Debug, Clone, Default)]
pub(super) struct Spare(BTreeMap<usize, Vec<Arc<[u8]>>>);

impl Spare {
    /// Keeps the memory of a sample.
    pub(super) fn keep(&mut self, values: Arc<[u8]>) {
        if !values.is_empty() {
            self.0.entry(values.len()).or_default().push(values);
        }
    }

    /// Memory for at least `bytes`, a quarter more at most, that nothing else refers to.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Arc<[u8]>> {
        let fits = self.0.range(bytes..=bytes + bytes / 4).next().map(|(length, _)| *length)?;
        let all = self.0.get_mut(&fits)?;
        let mut found = all.pop();
        if all.is_empty() {
            self.0.remove(&fits);
        }
        found.as_mut().is_some_and(|values| Arc::get_mut(values).is_some()).then_some(found).flatten()
    }

    /// Keeps at most `bytes` bytes, those of the largest samples.
    pub(super) fn trim(&mut self, bytes: usize) {
        let mut left = bytes;
        for (length, all) in self.0.iter_mut().rev() {
            all.truncate(left / (*length).max(1));
            left -= all.len() * length;
        }
        self.0.retain(|_, all| !all.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Spare memory is large enough, little larger than asked for, not used elsewhere, and no more than its limit.
        #[test]
        fn spare_memory_fits(lengths in prop::collection::vec(0usize..200, 0..30), asked in prop::collection::vec(1usize..200, 0..30), most in 0usize..3000) {
            let mut spare = Spare::default();
            let kept: Vec<Arc<[u8]>> = lengths.iter().map(|length| vec![0; *length].into()).collect();
            // Some is still in use: that of every third sample.
            let in_use: Vec<Arc<[u8]>> = kept.iter().step_by(3).cloned().collect();
            kept.into_iter().for_each(|values| spare.keep(values));
            spare.trim(most);
            let left: usize = spare.0.iter().map(|(length, all)| length * all.len()).sum();
            prop_assert!(left <= most && left <= lengths.iter().sum());
            for bytes in asked {
                if let Some(mut values) = spare.take(bytes) {
                    prop_assert!((bytes..=bytes + bytes / 4).contains(&values.len()));
                    prop_assert!(Arc::get_mut(&mut values).is_some());
                }
            }
            drop(in_use);
        }
    }
}
