//! Tests models, by subject.

mod bad_input;
mod blocks;
pub(crate) mod configs;
pub(crate) mod decoders;
mod inits;
mod random;
mod sizes;
mod tokens;
mod work;
mod zoo;

use super::*;
use crate::zoo::ZOO;
use lockstep_models::{Init, InitRules, Layer, LayerId, Node, Pass, random_model};
use lockstep_topology::Dtype;

/// The model of a valid text.
fn parsed(text: &str) -> Model {
    parse_model("m.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

/// A model of 1×8×8 samples with these layers between input and a dense layer with loss.
fn with_layers(layers: &str) -> String {
    format!(
        "name = \"m\"\ninput = [1, 8, 8]\nlayer = [\n{layers}\n{{ kind = \"dense\", out_features = 2 }},\n\
         {{ kind = \"softmax_cross_entropy\" }},\n]\n"
    )
}

/// The text of a model of the zoo.
fn zoo_text(wanted: &str) -> &'static str {
    ZOO.iter().find(|(name, _)| *name == wanted).map(|(_, text)| *text).unwrap_or_else(|| panic!("no {wanted}"))
}

/// The layer of that name.
fn named<'a>(model: &'a Model, name: &str) -> (LayerId, &'a Node) {
    model.iter().find(|(_, node)| node.name == name).unwrap_or_else(|| panic!("no layer {name}"))
}
