//! `LayerId`: identifies a layer inside its model.

/// A layer's position in topological order, which is also its index in [`Model::layers`](crate::Model::layers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerId(pub u32);

impl LayerId {
    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
