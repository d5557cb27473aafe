//! Puts a border around an image, as wide on each side as wanted: zeros, or the image reflected at its edge.

use super::window::{check_window, image_of};
use super::*;

/// A border around an image; pairs are (vertical, horizontal). Convolutions have a padding of zeros of their own: this
/// one is for sides that differ and for reflected images.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Border {
    /// Above and left.
    pub before: (u32, u32),
    /// Below and right.
    pub after: (u32, u32),
    /// Whether the border holds the image reflected at its edge, which is not repeated, rather than zeros.
    pub reflect: bool,
}

impl Border {
    /// The input's row that is row `place` of the output, or its column; `None` where the border holds a zero. `side` is
    /// the input's height or width, `before` that side's border.
    pub fn source(&self, place: u32, before: u32, side: u32) -> Option<u32> {
        let at = i64::from(place) - i64::from(before);
        let last = i64::from(side) - 1;
        let mirrored = if at < 0 { -at } else { last - (at - last).abs() };
        let at = if self.reflect { mirrored } else { at };
        u32::try_from(at).ok().filter(|at| *at < side)
    }
}

pub(super) const KIND: LayerKind = LayerKind {
    keys: &["before", "after", "reflect"],
    family: "concat",
    flops: [0.0, 0.0, 0.0],
    ..LayerKind::new("border", |of| {
        let (before, after) = (of.pair("before")?.unwrap_or((0, 0)), of.pair("after")?.unwrap_or((0, 0)));
        Ok(Layer::Border(Border { before, after, reflect: of.boolean("reflect")?.unwrap_or(false) }))
    })
};

impl LayerRule for Border {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        check_window("before", self.before, 0)?;
        check_window("after", self.after, 0)?;
        let side = |size: u32, before: u32, after: u32| {
            if self.reflect && before.max(after) >= size {
                return Err(format!(
                    "reflects {} rows or columns of an image of {size}: there must be fewer, since the edge is not repeated",
                    before.max(after)
                ));
            }
            let side = u64::from(size) + u64::from(before) + u64::from(after);
            u32::try_from(side).map_err(|_| format!("{side} rows or columns are too many"))
        };
        let (before, after) = (self.before, self.after);
        let input = image_of(inputs[0])?;
        let (height, width) = (side(input.height, before.0, after.0)?, side(input.width, before.1, after.1)?);
        Ok(Signature::elementwise(inputs, Shape::of_image(input.channels, height, width))
            .with_whole(&[Dimension::Row, Dimension::Column]))
    }

    fn settings(&self) -> String {
        let pair = |of: (u32, u32)| format!("[{}, {}]", of.0, of.1);
        let reflect = if self.reflect { ", reflect = true" } else { "" };
        format!(", before = {}, after = {}{reflect}", pair(self.before), pair(self.after))
    }

    fn cost_settings(&self) -> String {
        let reflect = if self.reflect { " reflect" } else { "" };
        format!(" {}x{} {}x{}{reflect}", self.before.0, self.before.1, self.after.0, self.after.1)
    }

    /// Backward it reads the gradient inside the border.
    fn adjusted_work(&self, of: &Node, pass: Pass, samples: f64, work: Work) -> Work {
        let inside = samples * of.input_elements();
        Work { elements_read: if pass == Pass::BackwardData { inside } else { work.elements_read }, ..work }
    }
}
