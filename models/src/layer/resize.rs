//! Resizes an image by repeating or leaving out places.

use super::window::image_of;
use super::*;

/// The image in another size: each place takes the input's nearest one, ⌊place · input side / output side⌋.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resize {
    /// The output's height.
    pub height: u32,
    /// The output's width.
    pub width: u32,
}

pub(super) const KIND: LayerKind = LayerKind {
    keys: &["height", "width"],
    family: "concat",
    ..LayerKind::new("resize", |of| {
        let side = |key| of.size(key)?.ok_or_else(|| of.missing(key, "the output's rows or columns, e.g. height = 28"));
        Ok(Layer::Resize(Resize { height: side("height")?, width: side("width")? }))
    })
};

impl Resize {
    /// The input's row that is row `place` of the output, or its column.
    pub fn source(place: u32, input: u32, output: u32) -> u32 {
        (u64::from(place) * u64::from(input) / u64::from(output.max(1))) as u32
    }

    /// The output's rows that are the input's row `place`, or columns: from, and behind the last.
    pub fn targets(place: u32, input: u32, output: u32) -> (u32, u32) {
        let first = |place: u64| (place * u64::from(output)).div_ceil(u64::from(input.max(1))) as u32;
        (first(place.into()), first(u64::from(place) + 1))
    }
}

impl LayerRule for Resize {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        Ok(Signature::elementwise(inputs, Shape::of_image(image_of(inputs[0])?.channels, self.height, self.width))
            .with_whole(&[Dimension::Row, Dimension::Column]))
    }

    fn settings(&self) -> String {
        format!(", height = {}, width = {}", self.height, self.width)
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        [0.0, (of.output_elements() - of.input_elements()).max(0.0), 0.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each place of the output is among the targets of its source, and of no other.
    #[test]
    fn targets_are_the_inverse_of_sources() {
        for input in 1..12 {
            for output in 1..30 {
                for place in 0..output {
                    let source = Resize::source(place, input, output);
                    let of = |at: u32| {
                        let (from, to) = Resize::targets(at, input, output);
                        (from..to).contains(&place)
                    };
                    let all: Vec<u32> = (0..input).filter(|at| of(*at)).collect();
                    assert_eq!(all, [source], "{place} of {output} from {input}");
                }
            }
        }
    }
}
