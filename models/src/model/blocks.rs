//! `Block`: the layers of a model whose names share a number, or between which one tensor alone leads on.

use std::ops::Range;

use super::Model;

/// Neighbouring layers that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Indices of its layers.
    pub layers: Range<u32>,
    /// What comes before its number in their names: `layers`; `None` of layers without one.
    pub series: Option<String>,
}

impl Model {
    /// The blocks in layer order; neither the input, nor a loss, nor a part of one is in one.
    ///
    /// Layers of a repeated block are numbered: `layers.0.query`, `stage1.2.conv1`, `/layer1/layer1.0/conv1`. Among others a
    /// block ends wherever the output of one layer is all that later layers read.
    ///
    /// ```
    /// # use lockstep_models::random_model;
    /// let blocks = random_model(3, false).blocks();
    /// assert!(blocks.windows(2).all(|pair| pair[0].layers.end <= pair[1].layers.start));
    /// assert!(blocks.iter().all(|block| block.layers.start > 0 && !block.layers.is_empty()));
    /// ```
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let (mut last_read, mut begins, mut before) = (0, true, None);
        for (id, node) in self.iter() {
            let own = numbered(&node.name);
            if !(node.layer.is_input() || node.layer.is_of_loss()) {
                match blocks.last_mut().filter(|block| block.layers.end == id.0 && before == own) {
                    Some(block) if own.is_some() || !begins => block.layers.end += 1,
                    _ => {
                        blocks.push(Block { layers: id.0..id.0 + 1, series: own.map(|(series, _)| series.to_owned()) });
                    }
                }
            }
            before = own;
            // What earlier layers made is no longer read, so that its own output alone leads on.
            begins = last_read <= id.0;
            last_read = self.consumers(id).iter().map(|other| other.0).max().unwrap_or(0).max(last_read);
        }
        blocks
    }
}

/// `layers` and `0` of `layers.0.query`: what comes before the first part of a name that is a number, and the number.
fn numbered(name: &str) -> Option<(&str, &str)> {
    let mut start = 0;
    for part in name.split(['.', '/']) {
        let end = start + part.len();
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some((name[..start].trim_end_matches(['.', '/']), &name[start..end]));
        }
        start = end + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LayerId;

    #[test]
    fn blocks_are_named_by_their_first_number() {
        let names = [
            ("layers.0.query", Some(("layers", "0"))),
            ("stage1.12.conv1", Some(("stage1", "12"))),
            ("/layer1/layer1.0/conv1/Conv", Some(("/layer1/layer1", "0"))),
            ("conv1", None),
            ("", None),
            ("layers..x", None),
            ("12", Some(("", "12"))),
        ];
        names.into_iter().for_each(|(name, block)| assert_eq!(numbered(name), block, "{name}"));
    }

    /// Where a block ends, nothing that was made earlier is read later, but its last output.
    #[test]
    fn one_tensor_alone_leads_on_from_block_to_block() {
        for seed in 0..50 {
            let model = crate::random_model(seed, false);
            for block in model.blocks() {
                let end = block.layers.end;
                let crosses = |id: u32| model.consumers(LayerId(id)).iter().any(|consumer| consumer.0 >= end);
                assert!((0..end - 1).all(|id| !crosses(id)), "model {seed}, block {block:?}");
            }
        }
    }
}
