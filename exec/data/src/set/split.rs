//! Splits samples into a training and a held-out part, stratified by class.
//!
//! Each class contributes the same fraction, so accuracy on the held-out part weighs classes as the whole set does.

use crate::random::{Purpose, shuffle, stream};

/// Splits the samples with these `labels` (all below `classes`) into (train, held out), each in ascending order.
///
/// Of a class of n samples, ⌊n · held_out / total⌋ drawn by `seed` are held out.
pub(super) fn stratified(labels: &[u32], classes: u32, held_out: u32, total: u32, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); classes as usize];
    for (sample, label) in labels.iter().enumerate() {
        members[*label as usize].push(sample as u32);
    }
    let (mut train, mut out) = (Vec::new(), Vec::new());
    for (class, samples) in members.iter_mut().enumerate() {
        shuffle(&mut stream(seed, Purpose::Split, class as u64), samples);
        let count = (samples.len() as u64 * u64::from(held_out) / u64::from(total)) as usize;
        out.extend_from_slice(&samples[..count]);
        train.extend_from_slice(&samples[count..]);
    }
    train.sort_unstable();
    out.sort_unstable();
    (train, out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::stratified;

    proptest! {
        #[test]
        fn parts_are_disjoint_complete_and_of_equal_shares(
            labels in prop::collection::vec(0u32..5, 0..200), held_out in 0u32..=7, seed: u64,
        ) {
            let (train, out) = stratified(&labels, 5, held_out, 7, seed);
            let mut all: Vec<u32> = train.iter().chain(&out).copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..labels.len() as u32).collect::<Vec<_>>());
            for class in 0..5 {
                let of = |part: &[u32]| part.iter().filter(|i| labels[**i as usize] == class).count();
                prop_assert_eq!(of(&out), (of(&train) + of(&out)) * held_out as usize / 7);
            }
            prop_assert_eq!((train, out), stratified(&labels, 5, held_out, 7, seed));
        }
    }

    #[test]
    fn another_seed_holds_out_others() {
        let labels = vec![0; 100];
        assert_ne!(stratified(&labels, 1, 1, 5, 1).1, stratified(&labels, 1, 1, 5, 2).1);
    }
}
