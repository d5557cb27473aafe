//! `Sketch`: builds a model from another framework's file: layers in order of creation, with their shapes.

use std::collections::BTreeMap;

use super::block::{MAX_LAYERS, too_many};
use lockstep_models::{Draft, Multipliers};
use lockstep_models::{Layer, Shape};

/// The name of a layer, without characters that names may not have here.
pub(super) fn clean(name: &str) -> String {
    let clean = |letter: char| if letter.is_ascii_alphanumeric() || "_-./".contains(letter) { letter } else { '_' };
    name.chars().map(clean).collect()
}

/// Drafts whose shapes are known, under unique names.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    drafts: Vec<Draft>,
    shapes: Vec<Shape>,
    /// Names of drafts, and how many layers of a kind had none.
    names: BTreeMap<String, usize>,
}

impl Sketch {
    /// Adds a layer whose shape follows from its inputs, and returns its index; the error is without a place.
    pub(super) fn add(&mut self, draft: Draft) -> Result<usize, String> {
        if self.drafts.len() >= MAX_LAYERS {
            return Err(too_many());
        }
        let shapes: Vec<Shape> = draft.inputs.iter().map(|input| self.shapes[*input]).collect();
        self.shapes.push(draft.layer.output_shape(&shapes)?);
        self.drafts.push(draft);
        Ok(self.drafts.len() - 1)
    }

    /// The layer at an index.
    pub(super) fn layer(&self, index: usize) -> &Layer {
        &self.drafts[index].layer
    }

    /// The layers that feed the one at an index.
    pub(super) fn inputs(&self, index: usize) -> &[usize] {
        &self.drafts[index].inputs
    }

    /// The same, to change it: its shape must stay as it is.
    pub(super) fn layer_mut(&mut self, index: usize) -> &mut Layer {
        &mut self.drafts[index].layer
    }

    /// Gives the parameters of the layer at an index their multipliers.
    pub(super) fn multiply(&mut self, index: usize, multipliers: Vec<Multipliers>) {
        self.drafts[index].multipliers = multipliers;
    }

    /// The output shape of the layer at an index.
    pub(super) fn shape(&self, index: usize) -> Shape {
        self.shapes[index]
    }

    /// A name for a layer that no other has: `wanted`, else the kind and its count.
    pub(super) fn name(&mut self, wanted: &str, kind: &str) -> String {
        let wanted = clean(wanted);
        let base = if wanted.is_empty() { kind.to_owned() } else { wanted.clone() };
        let count = self.names.entry(base.clone()).or_default();
        *count += 1;
        if !wanted.is_empty() && *count == 1 && !matches!(base.as_str(), "input" | "loss") {
            return base;
        }
        let count = *count;
        let numbered = (count..).map(|count| format!("{base}{count}")).find(|name| !self.names.contains_key(name));
        let name = numbered.unwrap_or(base);
        self.names.insert(name.clone(), 1);
        name
    }

    /// Gives the loss at an index its weight in the sum of losses.
    pub(super) fn weigh(&mut self, index: usize, weight: f32) {
        self.drafts[index].loss_weight = weight;
    }

    /// The layers from which a loss follows, in the order of creation, and the place there of each layer.
    pub(super) fn finish_used(self) -> (Vec<Draft>, Vec<Option<usize>>) {
        let mut used: Vec<bool> =
            self.drafts.iter().map(|draft| draft.layer.is_loss() || draft.layer.is_input()).collect();
        for index in
            (0..self.drafts.len()).rev().filter(|index| self.drafts[*index].layer.is_loss()).collect::<Vec<_>>()
        {
            let mut open = vec![index];
            while let Some(index) = open.pop() {
                for input in &self.drafts[index].inputs {
                    if !std::mem::replace(&mut used[*input], true) {
                        open.push(*input);
                    }
                }
            }
        }
        let mut places = vec![None; used.len()];
        let mut drafts = Vec::new();
        for (index, mut draft) in self.drafts.into_iter().enumerate().filter(|(index, _)| used[*index]) {
            places[index] = Some(drafts.len());
            draft.inputs.iter_mut().for_each(|input| *input = places[*input].unwrap_or(0));
            drafts.push(draft);
        }
        (drafts, places)
    }

    /// The layers.
    pub(super) fn finish(self) -> Vec<Draft> {
        self.drafts
    }
}
