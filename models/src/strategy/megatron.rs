//! Builds Megatron's pairs of layers: splits the first by its output's features, the second by its input's, so that the
//! tensor between them stays on its rank (Shoeybi et al. 2019 §3).

use super::on_tensor::{OnTensor, TensorLayouts};
use crate::AxisLayout;
use crate::model::{COLUMNS, Entry, FEATURES, Names, Table, VOCABULARY};

/// Rows of a weight, then columns along `tensor`: each pair has one allreduce forward, of its output, and one backward,
/// of its input's gradient.
pub(super) type Megatron = OnTensor<Layouts>;

/// Its table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layouts;

impl TensorLayouts for Layouts {
    const NAME: &str = "megatron";

    fn table() -> Table {
        const ALL: Names = Names::Pattern("*");
        Table::default()
            .weights(ALL, &[Entry::If(COLUMNS), Entry::Always(FEATURES), Entry::Always(VOCABULARY)])
            .outputs(ALL, &[Entry::If(FEATURES), Entry::Always(AxisLayout::Replicated)])
            .whole_gradients(ALL)
    }
}
