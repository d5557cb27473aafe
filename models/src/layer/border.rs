//! Puts zeros around an image, as many on each side as wanted.

use super::window::check_window;
use super::*;

/// Zeros around an image; pairs are (vertical, horizontal). Convolutions have a padding of their own: this one is for
/// sides that differ.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Border {
    /// Above and left.
    pub before: (u32, u32),
    /// Below and right.
    pub after: (u32, u32),
}

pub(super) const KIND: LayerKind = LayerKind {
    keys: &["before", "after"],
    family: "concat",
    ..LayerKind::new("border", |of| {
        let (before, after) = (of.pair("before")?.unwrap_or((0, 0)), of.pair("after")?.unwrap_or((0, 0)));
        Ok(Layer::Border(Border { before, after }))
    })
};

impl LayerRule for Border {
    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        check_window("before", self.before, 0)?;
        check_window("after", self.after, 0)?;
        let side = |size: u32, before, after| {
            let side = u64::from(size) + u64::from(before) + u64::from(after);
            u32::try_from(side).map_err(|_| format!("{side} rows or columns are too many"))
        };
        let (before, after) = (self.before, self.after);
        Ok(Shape {
            channels: inputs[0].channels,
            height: side(inputs[0].height, before.0, after.0)?,
            width: side(inputs[0].width, before.1, after.1)?,
        })
    }

    fn settings(&self) -> String {
        let pair = |of: (u32, u32)| format!("[{}, {}]", of.0, of.1);
        format!(", before = {}, after = {}", pair(self.before), pair(self.after))
    }

    fn cost_settings(&self) -> String {
        format!(" {}x{} {}x{}", self.before.0, self.before.1, self.after.0, self.after.1)
    }

    /// Copies.
    fn work(&self, of: &Sizes) -> [Work; 3] {
        [Work::of(0.0, of.input, of.output), Work::of(0.0, of.input, of.input), Work::default()]
    }
}
