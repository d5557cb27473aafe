//! Builds layers whose activations are split by samples, and whose products are split by the features that they sum: an
//! all-to-all turns one split into the other before each product, and a reduce-scatter of the products leads back (the way of
//! DeepSpeed-Ulysses, Jacobs et al. 2023, §3, with products in the place of attention).

use super::on_tensor::{OnTensor, TensorLayouts};
use crate::AxisLayout;
use crate::model::{COLUMNS, Entry, Names, SAMPLES, Table};

/// Ranks along `tensor` keep columns of each weight, and a part of the samples of each activation. A product whose input
/// features do not divide keeps its whole weight.
pub(super) type AllToAll = OnTensor<Layouts>;

/// Its table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layouts;

impl TensorLayouts for Layouts {
    const NAME: &str = "all-to-all";

    fn table() -> Table {
        const ALL: Names = Names::Pattern("*");
        Table::default()
            .weights(ALL, &[Entry::Always(COLUMNS)])
            .outputs(Names::Input, &[Entry::Always(AxisLayout::Replicated)])
            .outputs(ALL, &[Entry::Always(SAMPLES), Entry::Always(AxisLayout::Replicated)])
            .whole_gradients(ALL)
    }
}
