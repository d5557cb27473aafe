//! Defines values that a training begins with in the place of those that its model draws.

use std::collections::BTreeMap;
use std::fmt::Debug;

use lockstep_topology::InputError;

use super::Model;

/// Values that a training begins with, such as those of a file of weights; what they lack begins by the model's rules.
pub trait InitialValues: Debug + Send + Sync {
    /// Puts the values into the arenas of `model`, [`Model::parameter_elements`] and [`Model::statistics_elements`] numbers.
    ///
    /// # Errors
    /// Values that cannot be read, or are not finite.
    ///
    /// # Panics
    /// Values for a model of other shapes.
    fn put(&self, model: &Model, parameters: &mut [f32], statistics: &mut [f32]) -> Result<(), InputError>;
}

impl PartialEq for dyn InitialValues {
    /// Whether they are the same, not only equal.
    fn eq(&self, other: &dyn InitialValues) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

/// Values by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NamedValues {
    /// By the parameter's name, e.g. `conv1.weight`, as many as the parameter has.
    pub parameters: BTreeMap<String, Vec<f32>>,
    /// By the batch norm's name: running means, then running variances.
    pub statistics: BTreeMap<String, Vec<f32>>,
}

impl InitialValues for NamedValues {
    fn put(&self, model: &Model, parameters: &mut [f32], statistics: &mut [f32]) -> Result<(), InputError> {
        for node in model.layers() {
            for parameter in &node.parameters {
                if let Some(values) = self.parameters.get(&parameter.name) {
                    parameters[parameter.range.start as usize..parameter.range.end as usize].copy_from_slice(values);
                }
            }
            if let (Some(range), Some(values)) = (&node.statistics, self.statistics.get(&node.name)) {
                statistics[range.start as usize..range.end as usize].copy_from_slice(values);
            }
        }
        Ok(())
    }
}
