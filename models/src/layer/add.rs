//! Adds two or more inputs of one shape.

use super::*;

pub(super) struct Add;

pub(super) const KIND: LayerKind =
    LayerKind {
        inputs: 2..=usize::MAX,
        takes_relu: true,
        overwrites: 2,
        caffe: CaffeKind::new(&["Eltwise", "ELTWISE"], &["eltwise_param"], "operation coeff stable_prod_grad", |of| {
            match of.word("operation")? {
                None | Some("SUM" | "1") => Ok(Layer::Add),
                Some("PROD" | "0") => Ok(Layer::Product),
                Some(_) => Err(of.refuse(
                    "operation",
                    "only SUM and PROD are layers; for a prediction a sum costs as much as a maximum of two",
                )),
            }
        }),
        ..LayerKind::new("add", |_| Ok(Layer::Add))
    };

impl LayerRule for Add {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        match inputs.iter().find(|shape| **shape != inputs[0]) {
            Some(other) => Err(format!("adds inputs of shapes {} and {other}: they must be equal", inputs[0])),
            None => Ok(Signature::elementwise(inputs, inputs[0])),
        }
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        [of.input_elements() - of.output_elements(), 0.0, 0.0]
    }
}
