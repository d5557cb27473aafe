//! Turns a vector, in the same memory: features as a row or a column of an image with one channel, and back.

use super::*;

/// A vector in other dimensions: one side of the input and one of the output may be longer than 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// The output's shape.
    pub shape: Shape,
}

pub(super) const KIND: LayerKind = LayerKind {
    is_view: true,
    keys: &["channels", "height", "width"],
    ..LayerKind::new("reshape", |of| {
        let side = |key| of.size(key).map(|side| side.unwrap_or(1));
        let (channels, height, width) = (side("channels")?, side("height")?, side("width")?);
        Ok(Layer::Reshape(Reshape { shape: Shape::of_image(channels, height, width) }))
    })
};

impl LayerRule for Reshape {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let is_vector = |shape: Shape| shape.dimensions().iter().filter(|(_, size)| *size != 1).count() <= 1;
        let (from, to) = (inputs[0], self.shape);
        if !is_vector(from) || !is_vector(to) || from.elements() != to.elements() {
            return Err(format!(
                "makes {to} of {from}: both must be vectors, with one side longer than 1, of as many elements"
            ));
        }
        Ok(Signature::elementwise(inputs, to).with_whole(&[Dimension::Feature, Dimension::Row, Dimension::Column]))
    }

    fn settings(&self) -> String {
        let to = self.shape.image();
        format!(", channels = {}, height = {}, width = {}", to.channels, to.height, to.width)
    }
}
