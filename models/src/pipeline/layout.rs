//! Cuts decoders between their blocks: as Megatron-LM's layout of a pipeline says, or into equal parts in which the embedding and
//! the loss count as a block each.

use std::fmt;
use std::iter::Peekable;
use std::ops::Range;
use std::str::{Chars, FromStr};

use lockstep_topology::shard;

use crate::Model;

/// Letters of a layout at most, repeated ones counted as often as they are repeated.
const MOST: usize = 100_000;
/// Parentheses in one another at most.
const DEEPEST: usize = 16;
/// The cure of a letter that has no meaning.
const LETTERS: &str =
    "write E for the embedding, t for each block, L for the loss, | between stages, and *3 behind what is repeated";

/// The blocks of each chunk; the first chunk has the embedding too, and the last one the loss.
///
/// It is written as Megatron-LM's `--pipeline-model-parallel-layout`: E for the embedding, t for a block, L for the loss, `|`
/// between chunks, `*n` behind what is repeated, parentheses around several things, commas anywhere.
///
/// ```
/// # use lockstep_models::StageLayout;
/// let layout: StageLayout = "Et*3|(tt|)*29,t|L".parse().unwrap();
/// assert_eq!((layout.blocks().len(), layout.blocks().iter().sum::<u32>()), (32, 3 + 2 * 29 + 1));
/// assert_eq!(layout.to_string(), "Ettt|(tt|)*29t|L");
/// assert!("Ettt|mL".parse::<StageLayout>().unwrap_err().contains("multi-token prediction"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageLayout(Vec<u32>);

impl StageLayout {
    /// That of `blocks` blocks over `chunks` chunks of equal numbers, or one more in the first ones, where embedding and loss count
    /// as a block each; `None` where a chunk would have nothing.
    ///
    /// ```
    /// # use lockstep_models::StageLayout;
    /// // Llama 3 405B on 16 stages: of 128 / 16 = 8 the first and the last stage have 7 blocks.
    /// assert_eq!(StageLayout::balanced(126, 16).unwrap().to_string(), "Et*7|(t*8|)*14t*7L");
    /// assert_eq!(StageLayout::balanced(2, 5), None);
    /// ```
    pub fn balanced(blocks: u32, chunks: u32) -> Option<StageLayout> {
        let all = u64::from(blocks) + 2;
        let (chunks, last) = (u64::from(chunks), u64::from(chunks).checked_sub(1)?);
        let of_chunk = |chunk: u64| {
            let part = shard(all, chunks, chunk);
            (part.end - part.start) as u32 - u32::from(chunk == 0) - u32::from(chunk == last)
        };
        (chunks <= all).then(|| StageLayout((0..chunks).map(of_chunk).collect()))
    }

    /// The number of blocks of each chunk.
    pub fn blocks(&self) -> &[u32] {
        &self.0
    }

    /// The first layer of each of `chunks` chunks of `model`.
    ///
    /// # Errors
    /// Other numbers of chunks or blocks, a model without blocks: what was counted, and the cure.
    pub(super) fn begins(&self, model: &Model, chunks: usize) -> Result<Vec<usize>, String> {
        let blocks = blocks_of(model)?;
        if self.0.len() != chunks {
            return Err(format!(
                "has {} parts between its |, and {chunks} are needed, one for each chunk of each stage: write as many, or use other \
                 stages, or the schedule interleaved:V for V chunks a stage",
                self.0.len()
            ));
        }
        let own: u64 = self.0.iter().copied().map(u64::from).sum();
        if own != blocks.len() as u64 {
            let (all, name) = (blocks.len(), model.name());
            let (first, last) = (&blocks[0], &blocks[all - 1]);
            let named = |of: &Range<u32>| model.layers()[of.start as usize].name.clone();
            return Err(format!(
                "has {own} blocks t, and {name} has {all}, that of {} to that of {}: write as many",
                named(first),
                named(last)
            ));
        }
        let end = blocks[blocks.len() - 1].end;
        let mut before = 0;
        let begin = |own: &u32| {
            before += *own as usize;
            blocks.get(before).map_or(end, |block| block.start) as usize
        };
        Ok(std::iter::once(0).chain(self.0[..chunks - 1].iter().map(begin)).collect())
    }
}

/// The layers of each block of a decoder.
///
/// # Errors
/// A model without blocks, or with layers of none between them.
pub(super) fn blocks_of(model: &Model) -> Result<Vec<Range<u32>>, String> {
    let blocks: Vec<_> = model.blocks().into_iter().filter(|block| block.series.is_some()).collect();
    let follows = blocks.windows(2).all(|pair| {
        let (one, next) = (&pair[0], &pair[1]);
        one.layers.end == next.layers.start && one.series == next.series
    });
    if blocks.is_empty() || !follows {
        return Err(format!(
            "{} is not one row of numbered blocks, as decoders are (layers.0, layers.1, …): write layers, work or at=conv3,fc1",
            model.name()
        ));
    }
    Ok(blocks.into_iter().map(|block| block.layers).collect())
}

impl fmt::Display for StageLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.0.len() - 1;
        let text = |(chunk, blocks): (usize, &u32)| {
            let blocks = if *blocks > 3 { format!("t*{blocks}") } else { "t".repeat(*blocks as usize) };
            format!("{}{blocks}{}", if chunk == 0 { "E" } else { "" }, if chunk == last { "L" } else { "" })
        };
        let texts: Vec<String> = self.0.iter().enumerate().map(text).collect();
        let (end, others) = texts.split_last().ok_or(fmt::Error)?;
        for equal in others.chunk_by(|one, next| one == next) {
            match equal {
                [only] => write!(f, "{only}|")?,
                [first, ..] => write!(f, "({first}|)*{}", equal.len())?,
                [] => {}
            }
        }
        f.write_str(end)
    }
}

impl FromStr for StageLayout {
    type Err = String;

    fn from_str(text: &str) -> Result<StageLayout, String> {
        let wrong = |message: String| format!("{text:?} {message}");
        let letters = expanded(&mut text.chars().peekable(), 0).map_err(wrong)?;
        for (letter, what, is_there) in [
            ('E', "begin with the embedding, E", letters.starts_with('E')),
            ('L', "end with the loss, L", letters.ends_with('L')),
        ] {
            let count = letters.chars().filter(|other| *other == letter).count();
            if count != 1 || !is_there {
                return Err(wrong(format!("has {letter} {count} times or elsewhere: {what}, once")));
            }
        }
        let chunks: Vec<&str> = letters.split('|').collect();
        if let Some(empty) = chunks.iter().position(|chunk| chunk.is_empty()) {
            return Err(wrong(format!(
                "leaves part {empty}, counted from 0, empty: give it a block, or leave a | out"
            )));
        }
        let blocks = |chunk: &&str| chunk.bytes().filter(|letter| *letter == b't').count() as u32;
        Ok(StageLayout(chunks.iter().map(blocks).collect()))
    }
}

/// The letters and borders up to the end of the text or of the parentheses, with all that is repeated written out.
fn expanded(text: &mut Peekable<Chars<'_>>, depth: usize) -> Result<String, String> {
    let mut all = String::new();
    loop {
        let item = match text.next() {
            None if depth == 0 => return Ok(all),
            None => return Err("opens a parenthesis that it does not close: add )".to_owned()),
            Some(')') if depth > 0 => return Ok(all),
            Some('(') if depth == DEEPEST => return Err(format!("has more than {DEEPEST} parentheses in one another")),
            Some('(') => expanded(text, depth + 1)?,
            Some(letter @ ('E' | 't' | 'L' | '|')) => letter.to_string(),
            Some(',' | ' ') => continue,
            Some('m') => {
                return Err(
                    "has m, a layer of multi-token prediction, which is not supported yet: leave it out".to_owned()
                );
            }
            Some(other) => return Err(format!("has {other:?}: {LETTERS}")),
        };
        let times = if text.next_if_eq(&'*').is_some() { number(text)? } else { 1 };
        if item.len().saturating_mul(times) + all.len() > MOST {
            return Err(format!("has more than {MOST} letters: repeat less"));
        }
        all.push_str(&item.repeat(times));
    }
}

/// The number behind a `*`.
fn number(text: &mut Peekable<Chars<'_>>) -> Result<usize, String> {
    let digits: String = std::iter::from_fn(|| text.next_if(char::is_ascii_digit)).collect();
    digits
        .parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("has *{digits}: write a number from 1 behind *, e.g. t*3"))
}
