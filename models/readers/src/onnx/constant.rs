//! `Constant`: a tensor that does not depend on the samples: its sizes, and its numbers where there are few.

use super::tensor::Tensor;

/// Most elements whose numbers are computed.
const MOST: i64 = 4096;

/// Most dimensions.
pub(super) const MAX_RANK: usize = 16;

/// A tensor that does not depend on the samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Constant {
    pub(super) dims: Vec<i64>,
    pub(super) numbers: Option<Vec<f64>>,
    /// Whether its elements are whole numbers.
    pub(super) whole: bool,
    /// Whether training would change it: the file has it as an initializer of real numbers.
    pub(super) learned: bool,
    /// The numbers of each index of its first dimension where they are the same for all: a filter for each channel.
    pub(super) filter: Option<Vec<f64>>,
}

impl Constant {
    /// A tensor of the file.
    pub(super) fn of(tensor: &Tensor<'_>, learned: bool) -> Constant {
        let whole = tensor.is_whole();
        let filter = (tensor.dims.len() == 4 && tensor.dims[1] == 1).then(|| tensor.repeated()).flatten();
        Constant { dims: tensor.dims.clone(), numbers: tensor.numbers(), whole, learned: learned && !whole, filter }
    }

    /// Whole numbers in a row.
    pub(super) fn row(numbers: Vec<i64>) -> Constant {
        let dims = vec![numbers.len() as i64];
        let numbers = Some(numbers.into_iter().map(|n| n as f64).collect());
        Constant { dims, numbers, whole: true, ..Constant::default() }
    }

    /// Without numbers.
    pub(super) fn sized(&self, dims: Vec<i64>) -> Constant {
        Constant { dims, numbers: None, filter: None, ..*self }
    }

    /// Its number, if it is one.
    pub(super) fn scalar(&self) -> Option<f64> {
        match self.numbers.as_deref() {
            Some([number]) => Some(*number),
            // Sixteen equal numbers are one as well.
            Some([first, rest @ ..]) if !self.learned && rest.iter().all(|number| number == first) => Some(*first),
            _ => None,
        }
    }

    /// Its whole numbers.
    pub(super) fn integers(&self) -> Option<Vec<i64>> {
        self.numbers.as_ref().map(|numbers| numbers.iter().map(|number| *number as i64).collect())
    }

    /// The number of its elements.
    pub(super) fn elements(&self) -> i64 {
        elements(&self.dims)
    }

    /// The tensor of sizes `dims` whose element at each index is this one's at the index that `from` gives.
    pub(super) fn picked(&self, dims: Vec<i64>, from: impl Fn(&[i64]) -> Vec<i64>) -> Constant {
        let numbers = self.numbers.as_ref().filter(|_| elements(&dims) <= MOST).and_then(|numbers| {
            let mut picked = Vec::new();
            for flat in 0..elements(&dims) {
                let at = from(&index_of(&dims, flat));
                let inside = at.len() == self.dims.len() && at.iter().zip(&self.dims).all(|(i, n)| (0..*n).contains(i));
                let place = at.iter().zip(&self.dims).fold(0, |place, (i, n)| place * n + i);
                picked.push(*numbers.get(usize::try_from(place).ok().filter(|_| inside)?)?);
            }
            Some(picked)
        });
        Constant { dims, numbers, filter: None, ..*self }
    }
}

/// The product of sizes.
pub(super) fn elements(dims: &[i64]) -> i64 {
    dims.iter().fold(1i64, |product, size| product.saturating_mul(*size))
}

/// The index of the element at place `flat`.
fn index_of(dims: &[i64], mut flat: i64) -> Vec<i64> {
    let mut index = vec![0; dims.len()];
    for (at, size) in index.iter_mut().zip(dims).rev() {
        (*at, flat) = (flat % size, flat / size);
    }
    index
}

/// The sizes of two tensors that are broadcast; `None` if they do not fit.
pub(super) fn broadcast(one: &[i64], other: &[i64]) -> Option<Vec<i64>> {
    let rank = one.len().max(other.len());
    let size = |dims: &[i64], place: usize| (place + dims.len()).checked_sub(rank).map_or(1, |at| dims[at]);
    let pair = |place: usize| match (size(one, place), size(other, place)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    (0..rank).map(pair).collect()
}

/// The numbers of two tensors combined, broadcast.
pub(super) fn combined(one: &Constant, other: &Constant, number: impl Fn(f64, f64) -> f64) -> Option<Constant> {
    let dims = broadcast(&one.dims, &other.dims)?;
    let spread = |of: &Constant| {
        let (skipped, sizes) = (dims.len() - of.dims.len(), of.dims.clone());
        of.picked(dims.clone(), |index| {
            index[skipped..].iter().zip(&sizes).map(|(at, size)| if *size == 1 { 0 } else { *at }).collect()
        })
    };
    let (one, other) = (spread(one), spread(other));
    let (whole, learned) = (one.whole && other.whole, one.learned || other.learned);
    let numbers =
        one.numbers.zip(other.numbers).map(|(a, b)| a.into_iter().zip(b).map(|(a, b)| number(a, b)).collect());
    Some(Constant { dims, numbers, whole, learned, filter: None })
}

/// A place from the end where it is negative.
pub(super) fn place_of(axis: i64, rank: usize) -> Option<usize> {
    let place = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(place).ok().filter(|place| *place < rank)
}

/// What a reshape's target means for a tensor of these sizes: 0 keeps a size, −1 takes what is left.
pub(super) fn reshape_target(sizes: &[i64], target: &[i64], zero_is_size: bool) -> Option<Vec<i64>> {
    if target.len() > MAX_RANK {
        return None;
    }
    let mut resolved = Vec::with_capacity(target.len());
    for (place, wanted) in target.iter().enumerate() {
        resolved.push(match wanted {
            0 if !zero_is_size => *sizes.get(place)?,
            wanted => *wanted,
        });
    }
    if let Some(open) = resolved.iter().position(|size| *size == -1) {
        let known = resolved.iter().enumerate().filter(|(place, _)| *place != open).map(|(_, size)| *size);
        let known = known.fold(1i64, i64::saturating_mul);
        resolved[open] = elements(sizes).checked_div(known)?;
    }
    (resolved.iter().all(|size| *size >= 0) && elements(&resolved) == elements(sizes)).then_some(resolved)
}
