//! SiLU, or swish: x / (1 + e⁻ˣ) (Hendrycks and Gimpel 2016, §2).

use super::*;

pub(super) struct Silu;

pub(super) const KIND: Kind = Kind {
    input_use: InputUse::Always,
    onnx: &[("Swish", |of| match of.number("alpha")? {
        None | Some(1.0) => Ok(Layer::Silu),
        Some(_) => Err(of.refuse("alpha", "must be 1: another slope is not known here")),
    })],
    family: "curve",
    ..Kind::new("silu", |_| Ok(Layer::Silu))
};

impl LayerRule for Silu {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    /// Forward 4 FLOPs an element, the exponential counted as one; backward 8, from gradient and input.
    fn work(&self, pass: Pass, of: &Sizes) -> Work {
        match pass {
            Pass::Forward => Work::of(4.0 * of.input, of.input, of.output),
            Pass::BackwardData => Work::of(8.0 * of.input, 2.0 * of.input, of.input),
            Pass::BackwardWeight => Work::default(),
        }
    }
}
