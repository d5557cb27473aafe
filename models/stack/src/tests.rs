//! Tests the account: closed forms of papers, sums over ranks, what grows with what, bad input.

mod papers;
mod properties;

use crate::Decoder;

/// The decoder of that name.
fn model(name: &str) -> Decoder {
    Decoder::of(&lockstep_readers::load_model(name).unwrap()).unwrap()
}

/// GPT-3 with as many layers as make it quick, and without biases and tables that the paper leaves out.
fn gpt3() -> Decoder {
    model("gpt3-175b:layers=24")
}
