//! Builds Megatron's pairs of layers with activations that stay split by samples around them (Korthikanti et al. 2022,
//! §4.2.2, who split sequences): what `megatron` sums on every rank is reduce-scattered here, and gathered before the next
//! pair, so that no rank keeps or computes what the others have as well.

use super::on_tensor::{OnTensor, TensorLayouts};
use crate::AxisLayout;
use crate::model::{COLUMNS, Entry, FEATURES, Names, SAMPLES, Table, VOCABULARY};

/// As [`Megatron`](super::Megatron) along `tensor`; layers outside of its pairs each work on a part of the samples. Batch
/// normalisation works on all of them, since a part has other statistics.
pub(super) type SequenceParallel = OnTensor<Layouts>;

/// Its table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layouts;

impl TensorLayouts for Layouts {
    const NAME: &str = "sequence-parallel";

    fn table() -> Table {
        const ALL: Names = Names::Pattern("*");
        Table::default()
            .weights(ALL, &[Entry::If(COLUMNS), Entry::Always(FEATURES), Entry::Always(VOCABULARY)])
            .outputs(Names::Input, &[Entry::Always(AxisLayout::Replicated)])
            .outputs(ALL, &[Entry::If(FEATURES), Entry::Always(SAMPLES), Entry::Always(AxisLayout::Replicated)])
            .whole_gradients(ALL)
    }
}
