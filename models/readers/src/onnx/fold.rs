//! Computes what steps make of constants alone: shapes, indices and factors by their numbers, weights by their sizes.

use super::constant::{Constant, MAX_RANK, broadcast, combined, elements, place_of, reshape_target};
use super::graph::Step;

/// What a step makes of constants (`None` where an input is left out); `None` if it is not known.
pub(super) fn fold(step: &Step<'_>, inputs: &[Option<&Constant>]) -> Option<Constant> {
    let given = |place: usize| inputs.get(place).copied().flatten();
    if let Some(number) = binary(step.op) {
        let (one, other) = (given(0)?, given(1)?);
        let both = combined(one, other, number)?;
        return Some(if step.op == "Div" && both.whole { mapped(&both, f64::trunc) } else { both });
    }
    if let Some(number) = unary(step.op) {
        return Some(mapped(given(0)?, number));
    }
    let first = given(0);
    match step.op {
        "Identity" | "Dropout" | "CastLike" => first.cloned(),
        "Cast" => {
            let whole = matches!(step.integer("to", 1), 2..=7 | 9 | 12 | 13);
            let cast = if whole { mapped(first?, f64::trunc) } else { first?.clone() };
            Some(Constant { whole, learned: cast.learned && !whole, ..cast })
        }
        "Shape" => {
            let (dims, end) = (&first?.dims, step.integer("end", i64::MAX));
            let (start, end) = range_of(dims.len(), step.integer("start", 0), end);
            Some(Constant::row(dims.get(start..end)?.to_vec()))
        }
        "Size" => Some(Constant { dims: Vec::new(), ..Constant::row(vec![first?.elements()]) }),
        "ConstantOfShape" => {
            let dims = first?.integers()?;
            let value = step.tensor("value");
            let number = value.and_then(|value| value.numbers()?.first().copied()).unwrap_or(0.0);
            let whole = value.is_some_and(super::tensor::Tensor::is_whole);
            let few = (0..=4096).contains(&elements(&dims));
            let numbers = few.then(|| vec![number; elements(&dims) as usize]);
            let made = Constant { dims, numbers, whole, learned: !whole, filter: None };
            (made.dims.len() <= MAX_RANK).then_some(made)
        }
        "Range" => {
            let (start, end, step) = (given(0)?.scalar()?, given(1)?.scalar()?, given(2)?.scalar()?);
            let count = ((end - start) / step).ceil().clamp(0.0, 4096.0) as i64;
            Some(Constant::row((0..count).map(|at| (start + at as f64 * step) as i64).collect()))
        }
        "Reshape" => {
            let zero = step.integer("allowzero", 0) != 0;
            let dims = reshape_target(&first?.dims, &given(1)?.integers()?, zero)?;
            Some(Constant { dims, filter: None, ..first?.clone() })
        }
        "Flatten" => {
            let axis = usize::try_from(step.integer("axis", 1)).ok()?;
            let dims = &first?.dims;
            Some(Constant { dims: vec![elements(dims.get(..axis)?), elements(&dims[axis..])], ..first?.clone() })
        }
        "Unsqueeze" => {
            let dims = unsqueezed(&first?.dims, &axes(step, given(1))?)?;
            Some(Constant { dims, ..first?.clone() })
        }
        "Squeeze" => {
            let dims = &first?.dims;
            let places = squeezed(dims, axes(step, given(1)).as_deref())?;
            let dims = dims.iter().enumerate().filter(|(at, _)| !places.contains(at)).map(|(_, size)| *size).collect();
            Some(Constant { dims, ..first?.clone() })
        }
        "Transpose" => {
            let order = permutation(step, first?.dims.len())?;
            let dims = order.iter().map(|at| first?.dims.get(*at).copied()).collect::<Option<Vec<_>>>()?;
            Some(first?.picked(dims, |index| {
                let mut from = vec![0; order.len()];
                order.iter().zip(index).for_each(|(at, i)| from[*at] = *i);
                from
            }))
        }
        "Gather" => gather(first?, given(1)?, step.integer("axis", 0)),
        "Slice" => {
            let (starts, counts, steps) = slice(step, &first?.dims, inputs)?;
            let at = |index: &[i64]| (0..index.len()).map(|axis| starts[axis] + index[axis] * steps[axis]).collect();
            Some(first?.picked(counts, at))
        }
        "Concat" => {
            let all: Vec<&Constant> = inputs.iter().copied().collect::<Option<_>>()?;
            concat(&all, step.integer("axis", 0))
        }
        "Expand" => {
            let dims = broadcast(&first?.dims, &given(1)?.integers()?)?;
            // One filter for each channel, e.g. of a blur.
            let filter = first?.numbers.clone().filter(|_| first.is_some_and(|first| is_repeated(&first.dims, &dims)));
            Some(Constant { filter, ..combined(first?, &Constant { dims, ..Constant::default() }, |a, _| a)? })
        }
        "Where" => {
            let chosen = combined(given(1)?, given(2)?, |a, _| a)?;
            let condition = given(0)?.scalar();
            match condition {
                Some(condition) if condition != 0.0 => Some(Constant { dims: chosen.dims, ..given(1)?.clone() }),
                Some(_) => Some(Constant { dims: chosen.dims, ..given(2)?.clone() }),
                None => Some(chosen.sized(broadcast(&chosen.dims, &given(0)?.dims)?)),
            }
        }
        "Clip" if first?.numbers.is_some() && !first?.learned => {
            let bound = |place, name, default| match step.input(place) {
                Some(_) => given(place).and_then(Constant::scalar),
                None => Some(f64::from(step.float(name, default))),
            };
            let (least, most) = (bound(1, "min", f32::MIN)?, bound(2, "max", f32::MAX)?);
            Some(mapped(first?, |x| x.max(least).min(most)))
        }
        "ReduceProd" => {
            let product = first?.numbers.as_ref()?.iter().product();
            Some(Constant { numbers: Some(vec![product]), whole: first?.whole, ..Constant::default() })
        }
        "RandomUniformLike" | "RandomNormalLike" | "Bernoulli" => {
            Some(Constant { learned: false, ..first?.sized(first?.dims.clone()) })
        }
        // Arithmetic on weights, of which only sizes count.
        "Clip" | "Erf" | "Exp" | "Log" | "Pow" | "Relu" | "Sigmoid" | "Softmax" | "Tanh" => {
            Some(first?.sized(first?.dims.clone()))
        }
        "DequantizeLinear" | "QuantizeLinear" | "BatchNormalization" | "InstanceNormalization" => {
            Some(first?.sized(first?.dims.clone()))
        }
        "ReduceMean" | "ReduceSum" | "ReduceL2" => {
            let (dims, keep) = (&first?.dims, step.integer("keepdims", 1) != 0);
            let wanted = axes(step, given(1)).unwrap_or_else(|| (0..dims.len() as i64).collect());
            let places: Vec<usize> = wanted.iter().filter_map(|axis| place_of(*axis, dims.len())).collect();
            let sizes = dims.iter().enumerate().filter(|(at, _)| keep || !places.contains(at));
            Some(first?.sized(sizes.map(|(at, size)| if places.contains(&at) { 1 } else { *size }).collect()))
        }
        _ => None,
    }
}

fn mapped(of: &Constant, number: impl Fn(f64) -> f64) -> Constant {
    let numbers = of.numbers.as_ref().map(|numbers| numbers.iter().map(|n| number(*n)).collect());
    Constant { numbers, filter: None, ..of.clone() }
}

fn unary(op: &str) -> Option<fn(f64) -> f64> {
    Some(match op {
        "Neg" => |x| -x,
        "Floor" => f64::floor,
        "Ceil" => f64::ceil,
        "Sqrt" => f64::sqrt,
        "Reciprocal" => |x| 1.0 / x,
        "Abs" => f64::abs,
        "Not" => |x| f64::from(x == 0.0),
        _ => return None,
    })
}

fn binary(op: &str) -> Option<fn(f64, f64) -> f64> {
    Some(match op {
        "Add" => |a, b| a + b,
        "Sub" => |a, b| a - b,
        "Mul" => |a, b| a * b,
        "Div" => |a, b| a / b,
        "Mod" => |a, b| a % b,
        "Min" => f64::min,
        "Max" => f64::max,
        "Equal" => |a, b| f64::from(a == b),
        "Less" => |a, b| f64::from(a < b),
        "Greater" => |a, b| f64::from(a > b),
        "And" => |a, b| f64::from(a != 0.0 && b != 0.0),
        "Or" => |a, b| f64::from(a != 0.0 || b != 0.0),
        _ => return None,
    })
}

/// Axes as an attribute or as an input; `None` where neither is known.
pub(super) fn axes(step: &Step<'_>, input: Option<&Constant>) -> Option<Vec<i64>> {
    step.integers("axes").map(<[i64]>::to_vec).or_else(|| input.and_then(Constant::integers))
}

/// The sizes with ones inserted at `axes` of the result.
pub(super) fn unsqueezed(dims: &[i64], axes: &[i64]) -> Option<Vec<i64>> {
    let rank = dims.len() + axes.len();
    let places: Vec<usize> = axes.iter().filter_map(|axis| place_of(*axis, rank)).collect();
    let mut rest = dims.iter().copied();
    let sizes = (0..rank).map(|place| if places.contains(&place) { 1 } else { rest.next().unwrap_or(1) });
    (rank <= MAX_RANK).then(|| sizes.collect())
}

/// The places that a squeeze removes: those of `axes`, or all of size 1.
pub(super) fn squeezed(dims: &[i64], axes: Option<&[i64]>) -> Option<Vec<usize>> {
    match axes {
        Some(axes) => {
            let places: Option<Vec<usize>> = axes.iter().map(|axis| place_of(*axis, dims.len())).collect();
            places.filter(|places| places.iter().all(|place| dims[*place] == 1))
        }
        None => Some((0..dims.len()).filter(|place| dims[*place] == 1).collect()),
    }
}

/// A transpose's order of dimensions; reversed unless it is given.
pub(super) fn permutation(step: &Step<'_>, rank: usize) -> Option<Vec<usize>> {
    match step.integers("perm") {
        Some(order) => order.iter().map(|at| usize::try_from(*at).ok()).collect(),
        None => Some((0..rank).rev().collect()),
    }
}

/// From and to within `length`, places from the end where they are negative.
fn range_of(length: usize, start: i64, end: i64) -> (usize, usize) {
    let length = length as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at }.clamp(0, length);
    (place(start) as usize, place(end).max(place(start)) as usize)
}

/// For each dimension where a slice starts, how many it takes, and its step.
pub(super) fn slice(
    step: &Step<'_>,
    dims: &[i64],
    inputs: &[Option<&Constant>],
) -> Option<(Vec<i64>, Vec<i64>, Vec<i64>)> {
    let list = |name: &str, place: usize| {
        let input = inputs.get(place).copied().flatten().and_then(Constant::integers);
        step.integers(name).map(<[i64]>::to_vec).or(input)
    };
    let (starts, ends) = (list("starts", 1)?, list("ends", 2)?);
    let axes = list("axes", 3).unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = list("steps", 4).unwrap_or_else(|| vec![1; starts.len()]);
    let (mut from, mut counts, mut by) = (vec![0; dims.len()], dims.to_vec(), vec![1; dims.len()]);
    for (place, axis) in axes.iter().enumerate() {
        let at = place_of(*axis, dims.len())?;
        let (size, stride) = (dims[at], *steps.get(place)?);
        let (start, end) = (*starts.get(place)?, *ends.get(place)?);
        let inside = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
        let (start, end) = match stride {
            0 => return None,
            _ if size == 0 => return None,
            1.. => (inside(start).clamp(0, size), inside(end).clamp(0, size)),
            _ => (inside(start).clamp(0, size - 1), inside(end).clamp(-1, size - 1)),
        };
        (from[at], by[at]) = (start, stride);
        counts[at] = ((end - start) as f64 / stride as f64).ceil().max(0.0) as i64;
    }
    Some((from, counts, by))
}

fn gather(of: &Constant, indices: &Constant, axis: i64) -> Option<Constant> {
    let axis = place_of(axis, of.dims.len())?;
    let dims = [&of.dims[..axis], &indices.dims, &of.dims[axis + 1..]].concat();
    if dims.len() > MAX_RANK {
        return None;
    }
    let (taken, size) = (indices.integers()?, of.dims[axis]);
    let (sizes, after) = (indices.dims.clone(), axis + indices.dims.len());
    Some(of.picked(dims, |index| {
        let flat = index[axis..after].iter().zip(&sizes).fold(0, |place, (at, size)| place * size + at);
        let at = taken.get(flat as usize).copied().unwrap_or(-1);
        let at = if at < 0 { at + size } else { at };
        [&index[..axis], &[at], &index[after..]].concat()
    }))
}

fn concat(all: &[&Constant], axis: i64) -> Option<Constant> {
    let first = all.first()?;
    let axis = place_of(axis, first.dims.len())?;
    if all.iter().any(|one| one.dims.len() != first.dims.len()) {
        return None;
    }
    let mut dims = first.dims.clone();
    dims[axis] = all.iter().map(|one| one.dims[axis]).fold(0, i64::saturating_add);
    // Only rows are joined number by number.
    let numbers = (dims.len() == 1).then(|| all.iter().map(|one| one.numbers.clone()).collect::<Option<Vec<_>>>());
    let learned = all.iter().any(|one| one.learned);
    let numbers = numbers.flatten().map(|parts| parts.concat());
    Some(Constant { dims, numbers, whole: first.whole, learned, filter: None })
}

/// Whether a tensor of sizes `to` is one of sizes `from` repeated along its first dimension alone.
fn is_repeated(from: &[i64], to: &[i64]) -> bool {
    from.len() == to.len() && from.first() == Some(&1) && from[1..] == to[1..]
}
