//! `Shard`: assigns the rows of a sweep to one of several jobs, without communication between them.
//!
//! Rows are assigned in rounds: each round of N consecutive rows gives every shard one, in an order drawn from the
//! rows' numbers. Shards differ by one row at most, and no list whose length divides N gives one shard all the large
//! clusters.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lockstep_topology::{ErrorPlace, InputError};

/// Job schedulers take no more jobs than this in an array.
pub const MOST_SHARDS: u32 = 10_000;

/// One of several parts of a sweep, written `2/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SweepShard {
    /// Which, from 1.
    number: u32,
    /// Of how many.
    of: u32,
}

impl SweepShard {
    /// All shards of a sweep that is divided into `of`.
    pub fn all(of: u32) -> impl Iterator<Item = SweepShard> {
        (1..=of).map(move |number| SweepShard { number, of })
    }

    /// How many there are.
    pub fn of(self) -> u32 {
        self.of
    }

    /// The rows of this shard among `rows`, ascending.
    pub fn rows(self, rows: u32) -> impl Iterator<Item = u32> {
        (0..rows.div_ceil(self.of)).map(move |round| self.row_of(round)).filter(move |row| *row < rows)
    }

    /// The row of this shard in a round; the last round may lack it.
    fn row_of(self, round: u32) -> u32 {
        // In u64, since the last round may end beyond the range of u32.
        let (of, first) = (u64::from(self.of), u64::from(round) * u64::from(self.of));
        let mut order: Vec<u64> = (first..first + of).collect();
        let (_, row, _) = order.select_nth_unstable_by_key(self.number as usize - 1, |row| mixed(*row));
        u32::try_from(*row).unwrap_or(u32::MAX)
    }

    /// Refuses to merge a shard of which the file at `path` holds `found` of `due` points or runs.
    ///
    /// # Errors
    /// Fewer or more points than `due`, with the cure.
    pub fn refuse_part(self, path: &Path, (found, due): (usize, usize), what: &str) -> Result<(), InputError> {
        if found == due {
            return Ok(());
        }
        let holds = if path.exists() { format!("holds {found} of {due} {what}") } else { "is missing".to_owned() };
        let (shard, merge) = (ErrorPlace::Flag("shard"), ErrorPlace::Flag("merge"));
        let message = format!("{holds}: run the same command with {shard} {self} instead of {merge} {}", self.of);
        Err(InputError::flag("merge", path.display().to_string(), message))
    }

    /// The file of this shard beside that of the whole sweep: `rows.2-of-4.csv` of `rows.csv`.
    pub fn file(self, whole: &Path) -> PathBuf {
        let stem = whole.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{stem}.{}-of-{}", self.number, self.of);
        match whole.extension() {
            Some(extension) => whole.with_file_name(format!("{name}.{}", extension.to_string_lossy())),
            None => whole.with_file_name(name),
        }
    }
}

/// The finaliser of splitmix64 (Steele, Lea and Flood 2014, §3), which is one to one: no two rows have the same.
fn mixed(row: u64) -> u64 {
    let mut mixed = row.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl fmt::Display for SweepShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for SweepShard {
    type Err = String;

    fn from_str(text: &str) -> Result<SweepShard, String> {
        let wrong = || format!("{text:?}: write I/N, the shard's number from 1 and how many there are, as in 2/4");
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let of = shards(of).map_err(|_| wrong())?;
        if (1..=of).contains(&number) {
            Ok(SweepShard { number, of })
        } else {
            Err(format!("{text:?}: shards count from 1 to {of}, as do the tasks of an array 1-{of}"))
        }
    }
}

/// Reads how many shards there are.
///
/// # Errors
/// No number from 1 to [`MOST_SHARDS`].
pub fn shards(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| (1..=MOST_SHARDS).contains(count));
    count.ok_or_else(|| format!("{text:?}: use a number from 1 to {MOST_SHARDS}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every row is in one shard, and no shard has two more than another.
        #[test]
        fn shards_are_complete_and_even(rows in 0u32..400, of in 1u32..60) {
            let dealt: Vec<Vec<u32>> = SweepShard::all(of).map(|shard| shard.rows(rows).collect()).collect();
            prop_assert!(dealt.iter().all(|rows| rows.is_sorted()));
            let mut all: Vec<u32> = dealt.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..rows).collect::<Vec<_>>());
            prop_assert!(dealt.iter().all(|own| own.len() as u32 >= rows / of && own.len() as u32 <= rows.div_ceil(of)));
        }

        /// Adding rows to a sweep moves no row to another shard.
        #[test]
        fn additional_rows_keep_the_shards_of_the_others(rows in 0u32..200, more in 0u32..200, of in 1u32..20) {
            for shard in SweepShard::all(of) {
                let grown: Vec<u32> = shard.rows(rows + more).filter(|row| *row < rows).collect();
                prop_assert_eq!(grown, shard.rows(rows).collect::<Vec<_>>());
            }
        }

        #[test]
        fn shards_round_trip(of in 1u32..=MOST_SHARDS, number in 1u32..=MOST_SHARDS) {
            let read = format!("{number}/{of}").parse::<SweepShard>();
            prop_assert_eq!(read.ok().map(|shard| shard.to_string()), (number <= of).then(|| format!("{number}/{of}")));
        }
    }

    /// The innermost list is the one that neighbouring rows differ by, whatever its length.
    #[test]
    fn every_shard_gets_all_values_of_a_list() {
        for (of, length) in [(4, 4), (4, 3), (4, 5), (4, 8), (3, 6), (2, 2), (8, 4)] {
            for shard in SweepShard::all(of) {
                let mut counts = vec![0; length as usize];
                shard.rows(of * length * 30).for_each(|row| counts[(row % length) as usize] += 1);
                // Thirty are to be expected of each value.
                assert!(counts.iter().all(|count| (12..=52).contains(count)), "{shard} of {length}: {counts:?}");
            }
        }
    }

    #[test]
    fn invalid_shards_are_refused_with_the_cure() {
        for text in ["", "1", "/", "1/", "/2", "a/2", "1/0", "-1/2", "1/2/3", "1/10001"] {
            assert!(text.parse::<SweepShard>().unwrap_err().contains("write I/N"), "{text}");
        }
        for text in ["0/4", "5/4"] {
            assert!(text.parse::<SweepShard>().unwrap_err().contains("an array 1-4"), "{text}");
        }
    }

    #[test]
    fn shard_files_are_next_to_the_merged_one() {
        let shard: SweepShard = "2/4".parse().unwrap();
        for (whole, file) in [
            ("rows.csv", "rows.2-of-4.csv"),
            ("a.b/rows.x.jsonl", "a.b/rows.x.2-of-4.jsonl"),
            ("/tmp/rows", "/tmp/rows.2-of-4"),
        ] {
            assert_eq!(shard.file(Path::new(whole)), Path::new(file));
        }
    }
}
