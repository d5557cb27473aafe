//! `Threads`: the set of a host's hardware threads that a device is near, from a mask or from ranges.

/// Ranges of threads, first and last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Threads(Vec<(u32, u32)>);

impl Threads {
    /// From a list of ranges as nvidia-smi prints it: `0-15,64-79`.
    pub(crate) fn of_ranges(ranges: &str) -> Option<Threads> {
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last && last < 1 << 24).then_some((first, last))
        };
        ranges.split(',').map(range).collect::<Option<Vec<_>>>().map(Threads)
    }

    /// From a mask as Linux prints it: hexadecimal words with commas, the highest first.
    pub(crate) fn of_mask(mask: &str) -> Option<Threads> {
        let mask = mask.trim();
        let mut set = Vec::new();
        let words = mask.strip_prefix("0x").unwrap_or(mask).split(',').rev();
        for (index, word) in words.enumerate() {
            let bits = if word.is_empty() { 0 } else { u32::from_str_radix(word, 16).ok()? };
            let first = u32::try_from(index).ok()?.checked_mul(32)?;
            set.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| (first + bit, first + bit)));
        }
        Some(Threads(set))
    }

    /// Whether no thread is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many threads are in any of the sets.
    pub(crate) fn count<'a>(sets: impl IntoIterator<Item = &'a Threads>) -> u32 {
        let mut all: Vec<(u32, u32)> = sets.into_iter().flat_map(|set| set.0.iter().copied()).collect();
        all.sort_unstable();
        let (mut next, mut count) = (0, 0);
        for (first, last) in all {
            let first = first.max(next);
            if first <= last {
                count += last - first + 1;
                next = last + 1;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_count_each_thread_once() {
        let [ranges, inside] = ["0-3,8", "2-9"].map(|text| Threads::of_ranges(text).unwrap());
        assert_eq!(Threads::count([&ranges]), 5);
        assert_eq!(Threads::count([&ranges, &inside]), 10);
        let mask = Threads::of_mask("00000001,0000000f").unwrap();
        assert_eq!(Threads::count([&mask]), 5);
        assert_eq!(Threads::count([&mask, &ranges]), 6);
        assert_eq!(Threads::of_mask("0xff").map(|set| Threads::count([&set])), Some(8));
        assert!(Threads::of_ranges("5-2").is_none() && Threads::of_ranges("N/A").is_none());
        assert!(Threads::of_mask("xyz").is_none() && Threads::of_mask("123456789").is_none());
    }
}
