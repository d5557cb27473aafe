//! GELU by its tanh approximation: x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))) (Hendrycks and Gimpel 2016, §2).

use super::*;

pub(super) struct Gelu;

pub(super) const KIND: Kind = Kind {
    input_use: InputUse::Always,
    onnx: &[("Gelu", |of| match of.word("approximate")? {
        Some("tanh") => Ok(Layer::Gelu),
        _ => Err(of.refuse(
            "approximate",
            "is exact: only the approximation by tanh is known here, export with approximate = \"tanh\"",
        )),
    })],
    family: "curve",
    ..Kind::new("gelu", |_| Ok(Layer::Gelu))
};

impl LayerRule for Gelu {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    /// Forward 9 FLOPs an element, the tanh counted as one; backward 18, from gradient and input.
    fn work(&self, pass: Pass, of: &Sizes) -> Work {
        match pass {
            Pass::Forward => Work::of(9.0 * of.input, of.input, of.output),
            Pass::BackwardData => Work::of(18.0 * of.input, 2.0 * of.input, of.input),
            Pass::BackwardWeight => Work::default(),
        }
    }
}
