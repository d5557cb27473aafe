//! `View`: how the dimensions of an ONNX tensor are made of a layer's channels, rows and columns.
//!
//! Reshapes and transposes only change the view, so that pairs of them vanish, and what is left of them becomes a layer
//! where another layer needs its input in order: a flatten, a shuffle of channels.

use lockstep_models::{Dimension, Shape};

/// What an index counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    Batch,
    Channel,
    Height,
    Width,
}

/// A part of an axis: `size` indices, `stride` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Atom {
    pub(super) axis: Axis,
    pub(super) size: i64,
    pub(super) stride: i64,
}

/// The parts of each dimension, outermost first; a dimension of size 1 has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View(pub(super) Vec<Vec<Atom>>);

/// How a layer gets the tensor of a view in the order of its own axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// It is in order.
    Natural,
    /// Channels, rows and columns are one dimension.
    Flat,
    /// Channels of so many groups are interleaved.
    Shuffled(u32),
}

fn whole(axis: Axis, size: i64) -> Vec<Atom> {
    if size == 1 && axis != Axis::Batch { Vec::new() } else { vec![Atom { axis, size, stride: 1 }] }
}

/// Neighbouring parts of an axis as one part.
fn merged(atoms: impl IntoIterator<Item = Atom>) -> Vec<Atom> {
    let mut all: Vec<Atom> = Vec::new();
    for atom in atoms {
        match all.last_mut() {
            Some(last) if last.axis == atom.axis && last.stride == atom.size * atom.stride => {
                *last = Atom { size: last.size * atom.size, ..atom };
            }
            _ => all.push(atom),
        }
    }
    all
}

impl View {
    /// Samples of a shape in `rank` dimensions, 2 to 4.
    pub(super) fn new(batch: i64, shape: Shape, rank: usize) -> View {
        let sides = [
            (Axis::Channel, shape.features()),
            (Axis::Height, shape.size(Dimension::Row)),
            (Axis::Width, shape.size(Dimension::Column)),
        ];
        let sides = sides.into_iter().take(rank - 1).map(|(axis, size)| whole(axis, size.into()));
        View([whole(Axis::Batch, batch)].into_iter().chain(sides).collect())
    }

    /// The sizes of the dimensions.
    pub(super) fn sizes(&self) -> Vec<i64> {
        self.0.iter().map(|atoms| atoms.iter().map(|atom| atom.size).product()).collect()
    }

    /// The batch's size.
    pub(super) fn batch(&self) -> i64 {
        self.0.iter().flatten().find(|atom| atom.axis == Axis::Batch).map_or(1, |atom| atom.size)
    }

    /// The parts of a dimension but the batch's.
    pub(super) fn features(&self, place: usize) -> Vec<Atom> {
        merged(self.0[place].iter().copied().filter(|atom| atom.axis != Axis::Batch))
    }

    /// Whether a dimension is exactly that axis of so many indices.
    pub(super) fn is(&self, place: usize, axis: Axis, size: u32) -> bool {
        place < self.0.len() && self.features(place) == whole(axis, size.into())
    }

    /// The dimension that has channels alone, all in order.
    pub(super) fn channels(&self, shape: Shape) -> Option<usize> {
        let place = self.0.iter().position(|atoms| atoms.iter().any(|atom| atom.axis == Axis::Channel))?;
        self.is(place, Axis::Channel, shape.features()).then_some(place)
    }

    /// The same tensor with other channels in a dimension.
    pub(super) fn with_channels(&self, place: usize, channels: u32) -> View {
        let mut view = self.clone();
        view.0[place] = whole(Axis::Channel, channels.into());
        view
    }

    /// With dimensions in another order.
    pub(super) fn permuted(&self, order: &[usize]) -> Option<View> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        sorted.iter().copied().eq(0..self.0.len()).then(|| View(order.iter().map(|at| self.0[*at].clone()).collect()))
    }

    /// In other dimensions of as many elements, none of them negative; `None` where a part would be cut.
    pub(super) fn reshaped(&self, target: &[i64]) -> Option<View> {
        let mut rest: Vec<Atom> = merged(self.0.iter().flatten().copied());
        rest.reverse();
        let mut view = Vec::with_capacity(target.len());
        for (place, wanted) in target.iter().enumerate() {
            let (mut left, mut atoms) = (*wanted, Vec::new());
            if place == 0 && left == 1 && rest.last().is_some_and(|atom| atom.size == 1) {
                atoms.extend(rest.pop());
            }
            while left > 1 {
                let atom = rest.pop()?;
                if left % atom.size == 0 {
                    left /= atom.size;
                    atoms.push(atom);
                } else if atom.size % left == 0 {
                    let inner = atom.size / left;
                    atoms.push(Atom { size: left, stride: atom.stride * inner, ..atom });
                    rest.push(Atom { size: inner, ..atom });
                    left = 1;
                } else {
                    return None;
                }
            }
            view.push(atoms);
        }
        rest.iter().all(|atom| atom.size == 1).then_some(View(view))
    }

    /// Without the dimensions at `places`, which have the size 1.
    pub(super) fn without(&self, places: &[usize]) -> View {
        let kept = self.0.iter().enumerate().filter(|(place, _)| !places.contains(place));
        View(kept.map(|(_, atoms)| atoms.clone()).collect())
    }

    /// How the samples of `shape` are in order, if a layer can bring them into it.
    pub(super) fn order(&self, shape: Shape) -> Option<Order> {
        let sides = (1..self.0.len().max(1)).map(|place| self.features(place)).collect::<Vec<_>>();
        let batch_is_first = self.0.first().is_none_or(|first| first.iter().all(|atom| atom.axis == Axis::Batch));
        let all = merged(sides.iter().flatten().copied());
        let (rows, columns) = (shape.size(Dimension::Row), shape.size(Dimension::Column));
        let (height, width) = (whole(Axis::Height, rows.into()), whole(Axis::Width, columns.into()));
        let channels = whole(Axis::Channel, shape.features().into());
        if !batch_is_first {
            // A tensor of one sample without its batch.
            let alone = self.batch() == 1 && self.0.len() == 1;
            return (alone && self.features(0) == channels).then_some(Order::Natural);
        }
        let image = shape.places() > 1;
        let place = |at: usize| sides.get(at).cloned().unwrap_or_default();
        let is_image = sides.len() <= 3 && place(1) == height && place(2) == width;
        let first = place(0);
        if is_image && first == channels {
            return Some(Order::Natural);
        }
        if let ([inner, outer], true) = (&first[..], is_image)
            && (inner.axis, outer.axis, inner.stride, outer.stride) == (Axis::Channel, Axis::Channel, 1, inner.size)
        {
            return u32::try_from(outer.size).ok().map(Order::Shuffled);
        }
        let is_flat = sides.iter().skip(1).all(Vec::is_empty);
        // A flattened image with channels last is the same network but for the order of the next layer's weights.
        let last = merged([height.clone(), width.clone(), channels.clone()].concat());
        let natural = merged([channels, height, width].concat());
        (image && is_flat && (all == natural || all == last)).then_some(Order::Flat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(channels: u32, height: u32, width: u32) -> Shape {
        Shape::of_image(channels, height, width)
    }

    #[test]
    fn pairs_of_transposes_vanish() {
        let (image, of) = (View::new(2, shape(3, 4, 5), 4), shape(3, 4, 5));
        let last = image.permuted(&[0, 2, 3, 1]).unwrap();
        assert_eq!((last.sizes(), last.order(of), last.channels(of)), (vec![2, 4, 5, 3], None, Some(3)));
        assert_eq!(last.permuted(&[0, 3, 1, 2]).unwrap(), image);
        assert_eq!(image.permuted(&[0, 1, 1, 2]), None);
        assert_eq!(last.reshaped(&[2, 60]).unwrap().order(of), Some(Order::Flat));
    }

    /// ShuffleNet's shuffle of 6 channels in 2 groups: `(n, 2, 3, h, w)` with the groups exchanged.
    #[test]
    fn a_shuffle_is_two_reshapes_and_a_transpose() {
        let (image, of) = (View::new(7, shape(6, 4, 5), 4), shape(6, 4, 5));
        let apart = image.reshaped(&[7, 2, 3, 4, 5]).unwrap();
        let back = apart.permuted(&[0, 2, 1, 3, 4]).unwrap().reshaped(&[7, 6, 4, 5]).unwrap();
        assert_eq!(back.order(of), Some(Order::Shuffled(2)));
        assert_eq!(apart.reshaped(&[7, 6, 4, 5]).unwrap(), image);
        assert_eq!(image.reshaped(&[7, 4, 30]), None);
    }

    #[test]
    fn one_sample_may_lose_its_batch() {
        let of = shape(8, 1, 1);
        let pooled = View::new(1, of, 4);
        assert_eq!(pooled.sizes(), [1, 8, 1, 1]);
        for target in [&[1, 8][..], &[8], &[1, 8, 1, 1]] {
            assert_eq!(pooled.reshaped(target).unwrap().order(of), Some(Order::Natural), "{target:?}");
        }
    }
}
