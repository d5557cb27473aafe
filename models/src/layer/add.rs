//! The sum of two or more inputs of one shape.

use super::{Arity, CaffeKind, Kind, Layer, LayerRule, Pass, Shape, Sizes, Work};

pub(super) struct Add;

pub(super) const KIND: Kind = Kind {
    caffe: Some(CaffeKind {
        types: &["Eltwise", "ELTWISE"],
        own: &["eltwise_param"],
        fields: &["operation"],
        read: |of| match of.word("operation")? {
            None | Some("SUM") => Ok(Layer::Add),
            Some(_) => Err(of.refuse("operation", "only SUM is known here")),
        },
    }),
    ..Kind::plain("add", |_| Ok(Layer::Add))
};

impl LayerRule for Add {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn arity(&self) -> Arity {
        Arity::Several
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        match inputs.iter().find(|shape| **shape != inputs[0]) {
            Some(other) => Err(format!("adds inputs of shapes {} and {other}: they must be equal", inputs[0])),
            None => Ok(inputs[0]),
        }
    }

    /// Of m inputs m − 1 FLOPs an output; backward copies.
    fn work(&self, pass: Pass, of: &Sizes) -> Work {
        match pass {
            Pass::Forward => Work::of(of.input - of.output, of.input, of.output),
            Pass::BackwardData => Work::of(0.0, of.output, of.input),
            Pass::BackwardWeight => Work::default(),
        }
    }

    /// Of two any, for x + y = y + x; of more only the first, to keep the brackets.
    fn overwrites(&self, inputs: usize) -> usize {
        if inputs == 2 { 2 } else { 1 }
    }

    fn takes_relu(&self) -> bool {
        true
    }
}
