//! Cuts a model into chunks of consecutive layers.

use std::fmt;
use std::str::FromStr;

use lockstep_topology::{InputError, nearest, shard};

use super::layout::{StageLayout, blocks_of};
use crate::{LayerId, Model};

/// How the layers of a model are divided among chunks.
///
/// ```
/// # use lockstep_models::StageCut;
/// let cut: StageCut = "at=conv3,fc1".parse().unwrap();
/// assert_eq!(cut, StageCut::At(vec!["conv3".to_owned(), "fc1".to_owned()]));
/// assert_eq!(cut.to_string(), "at=conv3,fc1");
/// assert_eq!("Ett|tL".parse::<StageCut>().unwrap().to_string(), "Ett|tL");
/// assert!("flops".parse::<StageCut>().unwrap_err().contains("write layers, work, blocks, at=conv3,fc1 or Ett|ttL"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageCut {
    /// Equal numbers of layers, one more in some where they cannot be equal.
    Layers,
    /// Minimises the FLOPs of forward and backward in the largest chunk. Among such cuts the last chunks get as much as
    /// they may: the first ones hold the activations of more micro-batches. Layers that read the samples are in the
    /// first chunk.
    Work,
    /// Equal numbers of a decoder's blocks, where the embedding with what follows it before the first block, and all behind the
    /// last block with the loss, count as a block each (Megatron-LM's `--account-for-embedding-in-pipeline-split` and
    /// `--account-for-loss-in-pipeline-split`); one more in the first chunks where they cannot be equal.
    Blocks,
    /// The layers of these names begin the second chunk and those after it.
    At(Vec<String>),
    /// The blocks of each chunk as in Megatron-LM's layout.
    Layout(StageLayout),
}

impl fmt::Display for StageCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StageCut::Layers => f.write_str("layers"),
            StageCut::Work => f.write_str("work"),
            StageCut::Blocks => f.write_str("blocks"),
            StageCut::At(names) => write!(f, "at={}", names.join(",")),
            StageCut::Layout(layout) => layout.fmt(f),
        }
    }
}

impl FromStr for StageCut {
    type Err = String;

    fn from_str(text: &str) -> Result<StageCut, String> {
        match (text, text.strip_prefix("at=")) {
            ("layers", _) => Ok(StageCut::Layers),
            ("work", _) => Ok(StageCut::Work),
            ("blocks", _) => Ok(StageCut::Blocks),
            (_, Some("")) => Ok(StageCut::At(Vec::new())),
            (_, Some(names)) => Ok(StageCut::At(names.split(',').map(|name| name.trim().to_owned()).collect())),
            _ if text.starts_with('E') || text.contains('|') => text.parse().map(StageCut::Layout),
            _ => Err(lockstep_topology::unknown_name(
                text,
                "cut",
                &["layers", "work", "blocks", "at=conv3,fc1", "Ett|ttL"],
            )),
        }
    }
}

impl StageCut {
    /// The first layer of each of `chunks` chunks, which are at least 1 and at most as many as layers; `work` is that
    /// of each layer.
    ///
    /// # Errors
    /// Of a list: too many or too few names, names of no layer, names that do not ascend. Of blocks: a model that has none,
    /// too few of them, a layout of other numbers.
    pub(super) fn begins(&self, model: &Model, chunks: usize, work: &[f64]) -> Result<Vec<usize>, InputError> {
        let layers = work.len();
        match self {
            StageCut::Layers => {
                Ok((0..chunks as u64).map(|chunk| shard(layers as u64, chunks as u64, chunk).start as usize).collect())
            }
            StageCut::Work => {
                // Layers that read the samples stay with the input, if enough others are left.
                let readers = model.consumers(LayerId(0)).iter().max().map_or(0, |last| last.index());
                let head = if chunks + readers <= layers { readers } else { 0 };
                let first = work[..=head].iter().sum();
                let units: Vec<f64> = std::iter::once(first).chain(work[head + 1..].iter().copied()).collect();
                Ok(least_maximum(&units, chunks)
                    .into_iter()
                    .map(|begin| if begin == 0 { 0 } else { begin + head })
                    .collect())
            }
            StageCut::Blocks => self.by_blocks(model, chunks),
            StageCut::At(names) => self.at(names, model, chunks),
            StageCut::Layout(layout) => layout.begins(model, chunks).map_err(|message| self.refused(message)),
        }
    }

    fn refused(&self, message: String) -> InputError {
        InputError::flag("cut", self.to_string(), message)
    }

    fn by_blocks(&self, model: &Model, chunks: usize) -> Result<Vec<usize>, InputError> {
        let blocks = blocks_of(model).map_err(|message| self.refused(message))?.len();
        let layout = StageLayout::balanced(blocks as u32, chunks as u32).ok_or_else(|| {
            let most = blocks + 2;
            let message = format!(
                "has {most} parts, {blocks} blocks of {} with embedding and loss, for {chunks} chunks: use at most {most} stages",
                model.name()
            );
            self.refused(message)
        })?;
        layout.begins(model, chunks).map_err(|message| self.refused(message))
    }

    fn at(&self, names: &[String], model: &Model, chunks: usize) -> Result<Vec<usize>, InputError> {
        let refuse = |message: String| Err(self.refused(message));
        if names.len() + 1 != chunks {
            let (wanted, given) = (chunks - 1, names.len());
            let message = format!("name the first layer of each chunk but the first: {wanted} in all, and not {given}");
            return refuse(message);
        }
        let mut begins = vec![0];
        for name in names {
            let Some(layer) = model.layers().iter().position(|node| node.name == *name) else {
                let near = nearest(name, model.layers().iter().map(|node| &*node.name));
                let cure = match near.is_empty() {
                    true => "write names of its layers, in order".to_owned(),
                    false => format!("did you mean {}?", near.join(" or ")),
                };
                return refuse(format!("{} has no layer {name:?}; {cure}", model.name()));
            };
            let last = begins[begins.len() - 1];
            if layer <= last {
                let before = &model.layers()[last].name;
                let message = format!("layer {name:?} does not come after {before:?}, where the chunk before begins");
                return refuse(message + ": name layers in the order of the model, each once");
            }
            begins.push(layer);
        }
        Ok(begins)
    }
}

/// The first layer of each of `chunks` parts of `work`, none empty, the heaviest of which is as light as it can be.
///
/// The least maximum of k parts up to layer j is the least over the last cut i of max(that of k − 1 parts up to i, work
/// of i..j). The best i never falls as j grows, so a row takes one pass.
pub(super) fn least_maximum(work: &[f64], chunks: usize) -> Vec<usize> {
    let layers = work.len();
    let mut sums = vec![0.0];
    work.iter().for_each(|work| sums.push(sums[sums.len() - 1] + work));
    let of = |first: usize, end: usize| sums[end] - sums[first];
    let mut row: Vec<f64> = (0..=layers).map(|end| of(0, end)).collect();
    for parts in 2..=chunks {
        let mut next = vec![f64::INFINITY; parts];
        let mut cut = parts - 1;
        for end in parts..=layers {
            let maximum = |cut: usize| row[cut].max(of(cut, end));
            while cut + 1 < end && maximum(cut + 1) <= maximum(cut) {
                cut += 1;
            }
            next.push(maximum(cut));
        }
        row = next;
    }
    let limit = row[layers];
    let mut begins = vec![0; chunks];
    let mut end = layers;
    for chunk in (1..chunks).rev() {
        let mut first = end - 1;
        while first > chunk && of(first - 1, end) <= limit {
            first -= 1;
        }
        begins[chunk] = first;
        end = first;
    }
    begins
}
