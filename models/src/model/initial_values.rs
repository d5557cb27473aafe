//! `InitialValues`: holds initial values of parameters and running statistics by name, which replace the model's rules.

use std::collections::BTreeMap;

use super::Model;

/// Values that a training begins with, such as those of a file of weights; what it lacks begins by the model's rules.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InitialValues {
    /// By the parameter's name, e.g. `conv1.weight`, as many as the parameter has.
    pub parameters: BTreeMap<String, Vec<f32>>,
    /// By the batch norm's name: running means, then running variances.
    pub statistics: BTreeMap<String, Vec<f32>>,
}

impl InitialValues {
    /// Puts the values into the arenas of `model`.
    ///
    /// # Panics
    /// Values of another length than the parameter or the statistics of their name.
    pub fn put(&self, model: &Model, parameters: &mut [f32], statistics: &mut [f32]) {
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
    }
}
