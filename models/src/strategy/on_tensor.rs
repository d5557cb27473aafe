//! `OnTensor`: a strategy that splits layers along `tensor` as a table of layouts states, and samples along `data`, where a
//! mesh has that axis too.

use std::fmt;
use std::marker::PhantomData;

use lockstep_topology::InputError;

use super::split::{SplitLayers, everything};
use super::{Plan, Shard, zero};
use crate::model::Table;
use crate::{Axis, AxisSet, Graph, Job, Mesh};

/// The setting with which ranks that have the same part of each layer shard its optimizer state, as the strategy of that
/// name does: the distributed optimizer of Megatron-LM.
const SHARES_STATE: &str = "zero-1";

/// Layouts of all tensors along `tensor`.
pub(super) trait TensorLayouts {
    /// The strategy's name.
    const NAME: &str;

    /// Where its tensors lie.
    fn table() -> Table;
}

/// The strategy of such a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnTensor<T> {
    /// Whether ranks with the same part of each layer shard its optimizer state.
    shares_state: bool,
    layouts: PhantomData<T>,
}

impl<T: TensorLayouts> Plan for OnTensor<T> {
    fn parse(settings: &str) -> Result<OnTensor<T>, String> {
        let of = |shares_state| Ok(OnTensor { shares_state, layouts: PhantomData });
        match settings {
            "" => of(false),
            SHARES_STATE => of(true),
            _ => Err(format!(
                "{} has no setting {settings:?}; there is: {SHARES_STATE}, which shares the optimizer's state out along data",
                T::NAME
            )),
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shares_state { write!(f, "{}:{SHARES_STATE}", T::NAME) } else { f.write_str(T::NAME) }
    }

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        let layers = SplitLayers {
            mesh: job.mesh.clone().map_or_else(|| Mesh::new(&[(Axis::Tensor, job.workers)]), Ok)?,
            axis: Axis::Tensor,
            table: T::table(),
            // Without a mesh each rank contributes its own batch, and all take all of them.
            passes: vec![everything(if job.mesh.is_some() { 1 } else { job.workers }, job.batch_per_rank)],
            variable_batch: false,
            shares_state: self.shares_state,
        };
        layers.graph(job)
    }

    /// The state is sharded along `device` where there is one.
    fn axes(&self) -> AxisSet {
        let without = AxisSet::of(&[Axis::Pipeline, Axis::Data, Axis::Tensor]);
        if self.shares_state { without.or(zero::AXES) } else { without }
    }

    fn splits_layers(&self) -> bool {
        true
    }

    fn activation_axes(&self) -> AxisSet {
        AxisSet::of(&[Axis::Tensor])
    }
}
