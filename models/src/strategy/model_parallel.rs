//! Builds model parallelism: splits every layer with weights by rows along `tensor` (Iandola et al. 2016 §4), and
//! samples along `data`, where a mesh has that axis too (as Shoeybi et al. 2019 §3 combine them).

use super::on_tensor::{OnTensor, TensorLayouts};
use crate::AxisLayout;
use crate::model::{Entry, FEATURES, Names, Table};

/// Ranks along `tensor` have all samples of their group and exchange activations and their gradients.
pub(super) type ModelParallel = OnTensor<Layouts>;

/// Its table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layouts;

impl TensorLayouts for Layouts {
    const NAME: &str = "model-parallel";

    fn table() -> Table {
        const ALL: Names = Names::Pattern("*");
        Table::default()
            .weights(ALL, &[Entry::Always(FEATURES)])
            .outputs(ALL, &[Entry::If(FEATURES), Entry::Always(AxisLayout::Replicated)])
    }
}
