//! Flattening, `c × h × w → (c·h·w) × 1 × 1`: the same memory.

use super::{CaffeKind, FeatureRule, Kind, Layer, LayerRule, Pass, Shape, Sizes, Work};

pub(super) struct Flatten;

pub(super) const KIND: Kind = Kind {
    onnx: &[("Flatten", |of| match of.size("axis")? {
        None | Some(1) => Ok(Layer::Flatten),
        Some(other) => Err(of.refuse("axis", &format!("axis is {other}: only 1 is known here"))),
    })],
    caffe: Some(CaffeKind { types: &["Flatten", "FLATTEN"], own: &[], fields: &[], read: |_| Ok(Layer::Flatten) }),
    ..Kind::plain("flatten", |_| Ok(Layer::Flatten))
};

impl LayerRule for Flatten {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        let elements = inputs[0].elements();
        Ok(Shape::flat(u32::try_from(elements).map_err(|_| format!("{elements} features are too many"))?))
    }

    fn work(&self, _: Pass, _: &Sizes) -> Work {
        Work::default()
    }

    fn is_view(&self) -> bool {
        true
    }

    /// What dense layers flatten needs all channels, and is no copy then.
    fn features(&self, _: bool, before_vector: bool) -> Result<FeatureRule, &'static str> {
        Ok(if before_vector { FeatureRule::Whole } else { FeatureRule::Follows })
    }
}
