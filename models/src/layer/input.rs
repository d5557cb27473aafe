//! The samples themselves: exactly one per model, its first node.

use super::{Arity, FeatureRule, LayerRule, Pass, Shape, Sizes, Work};

/// The shape of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Samples(pub Shape);

impl LayerRule for Samples {
    fn kind(&self) -> &'static str {
        "input"
    }

    fn arity(&self) -> Arity {
        Arity::Nothing
    }

    fn shape(&self, _: &[Shape]) -> Result<Shape, String> {
        Ok(self.0)
    }

    fn settings(&self) -> String {
        format!(", shape = [{}, {}, {}]", self.0.channels, self.0.height, self.0.width)
    }

    fn work(&self, _: Pass, _: &Sizes) -> Work {
        Work::default()
    }

    fn features(&self, _: bool, _: bool) -> Result<FeatureRule, &'static str> {
        Ok(FeatureRule::Whole)
    }
}
