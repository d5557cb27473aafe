//! `Recipe`: describes the training of a paper as an optimizer, rules for initial values and a number of epochs.

use lockstep_models::{Augmentation, InitRules, Optimizer};

/// The published training of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// `goyal2017:resnet-50`: the file's name and its own.
    pub name: String,
    /// Author and place.
    pub source: String,
    /// Samples per step that it was made for; `None`: any, and the rate scales.
    pub global_batch: Option<u32>,
    /// Passes over the training samples.
    pub epochs: Option<u32>,
    /// Rate, momentum, decay.
    pub optimizer: Optimizer,
    /// Initial values.
    pub inits: InitRules,
    /// Random augmentation of training samples.
    pub augmentation: Augmentation,
}
