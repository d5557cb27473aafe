//! What ranks have, brought together by an exchange. It occurs only in the part of a model that a rank holds where layers are
//! split (`models/src/model/shard.rs`), and computes nothing.

use super::{FeatureRule, LayerRule, Pass, Samples, Shape, Sizes, Work};

/// The shape of one gathered sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gathered(pub Shape);

impl LayerRule for Gathered {
    fn kind(&self) -> &'static str {
        "gather"
    }

    fn shape(&self, _: &[Shape]) -> Result<Shape, String> {
        Ok(self.0)
    }

    fn settings(&self) -> String {
        Samples(self.0).settings()
    }

    fn work(&self, _: Pass, _: &Sizes) -> Work {
        Work::default()
    }

    fn features(&self, _: bool, _: bool) -> Result<FeatureRule, &'static str> {
        Ok(FeatureRule::Whole)
    }
}
