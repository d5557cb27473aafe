//! `Shape`: the named dimensions of a parameter or of one sample of an activation, and `ImageShape`, how layers on images
//! see a sample.

use std::fmt;

use super::dimension::Dimension;

/// Most elements one sample may have in any tensor: 8 GiB of fp32, and an index still fits a signed 32-bit integer.
const MAX_ELEMENTS: u64 = (1 << 31) - 1;

/// Most dimensions of a tensor.
const MAX_DIMENSIONS: usize = 4;

/// The dimensions of a parameter, or of one sample of an activation, with their sizes, outermost first. A batch has `sample`
/// before them.
///
/// ```
/// # use lockstep_models::{Dimension, Shape};
/// let tokens = Shape::new(&[(Dimension::Position, 128), (Dimension::Feature, 768)]);
/// assert_eq!((tokens.features(), tokens.places(), tokens.inner(Dimension::Position)), (768, 128, 768));
/// assert_eq!((tokens.size(Dimension::Row), tokens.elements()), (1, 128 * 768));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Those beyond `rank` are alike in all shapes.
    dimensions: [(Dimension, u32); MAX_DIMENSIONS],
    rank: u8,
}

/// A sample as layers on images see it: channels of rows of columns, in this order in memory (a batch is `[samples,
/// channels, height, width]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageShape {
    /// Feature maps.
    pub channels: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

impl Shape {
    /// No dimensions: a single number.
    pub const SINGLE: Shape = Shape::new(&[]);

    /// These dimensions, at most four, each once.
    pub const fn new(of: &[(Dimension, u32)]) -> Shape {
        let (mut dimensions, mut at) = ([(Dimension::Sample, 1); MAX_DIMENSIONS], 0);
        while at < of.len() {
            dimensions[at] = of[at];
            at += 1;
        }
        Shape { dimensions, rank: at as u8 }
    }

    /// A vector of `features`.
    pub const fn flat(features: u32) -> Shape {
        Shape::new(&[(Dimension::Feature, features)])
    }

    /// An image; one of a single row and column is the vector of its channels.
    pub const fn of_image(channels: u32, height: u32, width: u32) -> Shape {
        match (height, width) {
            (1, 1) => Shape::flat(channels),
            _ => Shape::new(&[(Dimension::Feature, channels), (Dimension::Row, height), (Dimension::Column, width)]),
        }
    }

    /// Its dimensions and their sizes, outermost first.
    pub fn dimensions(&self) -> &[(Dimension, u32)] {
        &self.dimensions[..self.rank.into()]
    }

    /// The sizes of its dimensions, outermost first.
    pub fn sizes(&self) -> impl Iterator<Item = u32> {
        self.dimensions().iter().map(|(_, size)| *size)
    }

    /// Whether it has a dimension.
    pub fn has(&self, dimension: Dimension) -> bool {
        self.dimensions().iter().any(|(own, _)| *own == dimension)
    }

    /// The size of a dimension; 1 where it lacks it.
    pub fn size(&self, of: Dimension) -> u32 {
        self.dimensions().iter().find(|(dimension, _)| *dimension == of).map_or(1, |(_, size)| *size)
    }

    /// The size of its dimension `feature`: the channels of an image, the elements of a vector.
    pub fn features(&self) -> u32 {
        self.size(Dimension::Feature)
    }

    /// How often it has each feature: pixels of an image, positions of a sequence.
    pub fn places(&self) -> u64 {
        let others = self.dimensions().iter().filter(|(dimension, _)| *dimension != Dimension::Feature);
        others.map(|(_, size)| u64::from(*size)).fold(1, u64::saturating_mul)
    }

    /// How often it has all of its features together: the product of the sizes before them; positions of a sequence, 1 of an
    /// image.
    pub fn rows(&self) -> u64 {
        let before = self.dimensions().iter().take_while(|(dimension, _)| *dimension != Dimension::Feature);
        before.map(|(_, size)| u64::from(*size)).fold(1, u64::saturating_mul)
    }

    /// Elements from one index of a dimension to the next: the product of the sizes behind it.
    pub fn inner(&self, of: Dimension) -> u64 {
        let behind = self.dimensions().iter().rev().take_while(|(dimension, _)| *dimension != of);
        behind.map(|(_, size)| u64::from(*size)).fold(1, u64::saturating_mul)
    }

    /// Elements of a row: from one row to the next.
    pub fn row_elements(&self) -> u64 {
        self.elements() / self.rows().max(1)
    }

    /// The same with one of `parts` equal parts of its rows, which the positions of a sequence are; `None` where it has other
    /// rows or `parts` do not divide them.
    pub fn part_of_rows(mut self, parts: u32) -> Option<Shape> {
        let [(Dimension::Position, positions), (Dimension::Feature, _)] = &mut self.dimensions[..self.rank.into()]
        else {
            return (parts == 1).then_some(self);
        };
        let divides = positions.is_multiple_of(parts);
        *positions /= parts;
        divides.then_some(self)
    }

    /// The same with another number of features.
    pub fn with_features(mut self, features: u32) -> Shape {
        let own = self.dimensions.iter_mut().find(|(dimension, _)| *dimension == Dimension::Feature);
        own.expect("a layer that changes features has some").1 = features;
        self
    }

    /// The same without its features: what it has at each place.
    pub fn without_features(&self) -> Shape {
        let mut kept = [(Dimension::Sample, 1); MAX_DIMENSIONS];
        let others = self.dimensions().iter().filter(|(dimension, _)| *dimension != Dimension::Feature);
        let rank = others.zip(&mut kept).map(|(own, place)| *place = *own).count();
        Shape { dimensions: kept, rank: rank as u8 }
    }

    /// Elements of the parameter or of one sample (`u64::MAX` where that does not fit).
    pub fn elements(&self) -> u64 {
        self.sizes().map(u64::from).fold(1, u64::saturating_mul)
    }

    /// The image that it is: a vector is one of a single row and column. `None` where it has other dimensions.
    pub fn as_image(&self) -> Option<ImageShape> {
        let [channels, height, width] = match self.dimensions() {
            [(Dimension::Feature, channels)] => [*channels, 1, 1],
            [(Dimension::Feature, channels), (Dimension::Row, height), (Dimension::Column, width)] => {
                [*channels, *height, *width]
            }
            _ => return None,
        };
        Some(ImageShape { channels, height, width })
    }

    /// The image that the input of a layer on images is, since the layer's rule has refused all else.
    pub fn image(&self) -> ImageShape {
        self.as_image().expect("an image")
    }

    /// The shape, unless a size is zero or a sample does not fit into memory that can be indexed.
    pub(crate) fn checked(self) -> Result<Shape, String> {
        if self.elements() == 0 {
            return Err(format!("its output is {self}: every size must be at least 1"));
        }
        if self.elements() > MAX_ELEMENTS {
            return Err(format!(
                "its output of {self} has more than {MAX_ELEMENTS} elements per sample: make it smaller"
            ));
        }
        Ok(self)
    }
}

impl ImageShape {
    /// Channels, rows and columns.
    pub fn sizes(&self) -> [u32; 3] {
        [self.channels, self.height, self.width]
    }

    /// Whether a patch of these sizes can be cut out of it.
    pub fn has_patches(&self, of: ImageShape) -> bool {
        self.channels == of.channels && self.height >= of.height && self.width >= of.width
    }

    /// Rows and columns.
    pub fn sides(&self) -> (u32, u32) {
        (self.height, self.width)
    }

    /// Pixels of a channel, rows times columns.
    pub fn pixels(&self) -> u64 {
        u64::from(self.height) * u64::from(self.width)
    }

    /// Elements of all channels.
    pub fn elements(&self) -> u64 {
        u64::from(self.channels).saturating_mul(self.pixels())
    }

    /// Its dimensions, as all layers see them.
    pub fn shape(self) -> Shape {
        Shape::of_image(self.channels, self.height, self.width)
    }
}

impl fmt::Display for Shape {
    /// `3×224×224` of images and vectors (`10×1×1`), else with names: `position 128 × feature 768`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(image) = self.as_image() {
            return write!(f, "{}×{}×{}", image.channels, image.height, image.width);
        }
        let named: Vec<String> = self.dimensions().iter().map(|(name, size)| format!("{name} {size}")).collect();
        f.write_str(&named.join(" × "))
    }
}
