//! `Dimension`: names what an index of a tensor counts.

/// What an index of a tensor counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// Samples of a batch.
    Sample,
    /// Positions of a sequence.
    Position,
    /// Heads of attention.
    Head,
    /// Features of an activation, channels of an image; rows of a weight that is split.
    Feature,
    /// Rows of an image, or of a filter.
    Row,
    /// Columns of an image, or of a filter.
    Column,
    /// Tokens of a vocabulary.
    Vocabulary,
    /// Experts.
    Expert,
    /// Features that a weight computes.
    Output,
    /// Features that a weight reads: its columns.
    Input,
    /// Elements of a bucket of parameters, regardless of tensor boundaries.
    Element,
}

lockstep_topology::named!(Dimension, "dimension": Sample = "sample", Position = "position", Head = "head", Feature = "feature",
    Row = "row", Column = "column", Vocabulary = "vocabulary", Expert = "expert", Output = "output", Input = "input",
    Element = "element");
