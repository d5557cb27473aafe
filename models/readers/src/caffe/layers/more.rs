//! Translates layers of Caffe that are no kind here: samples without data, reshapes to a vector, weighted sums, products.

use lockstep_topology::InputError;

use super::super::text::{Field, Message};
use super::fields::{FORKS, OTHERS};
use super::{COMMON, Meaning};
use lockstep_models::layer::Inits;
use lockstep_models::{Layer, Shape};

/// The sizes of the samples that a `DummyData` layer makes first; how they are filled belongs to the data.
pub(super) fn dummy(layer: &Message<'_>) -> Result<Vec<u32>, InputError> {
    layer.allow(&[COMMON, OTHERS])?;
    let of = layer.message("dummy_data_param")?;
    of.allow(&[&["shape", "data_filler", "num", "channels", "height", "width"]])?;
    let first = |name: &str| of.all(name).next();
    if let Some(shape) = first("shape") {
        let shape = shape.message()?;
        shape.allow(&[&["dim"]])?;
        return shape.all("dim").map(Field::size).collect();
    }
    ["num", "channels", "height", "width"].iter().map(|name| first(name).map_or(Ok(1), Field::size)).collect()
}

/// A reshape that leaves the samples as they are, or makes a vector of each.
pub(super) fn reshaped(layer: &Message<'_>, shapes: &[Shape]) -> Result<Meaning, InputError> {
    layer.allow(&[COMMON, &["reshape_param"], OTHERS, FORKS])?;
    let of = layer.message("reshape_param")?;
    of.allow(&[&["shape", "axis", "num_axes"]])?;
    let shape = of.message("shape")?;
    shape.allow(&[&["dim"]])?;
    let input = shapes.first().copied().unwrap_or(Shape::flat(1));
    let refuse =
        || of.error("shape", format!("makes other dimensions of {input}: only [batch, features] is a layer here"));
    let (axis, all) = (of.number("axis", 0.0)?, of.number("num_axes", -1.0)?);
    let sides = input.image().sizes();
    // `axis: 1` leaves the batch out of the dimensions.
    let skipped = match (axis, all) {
        (0.0, -1.0) => 1,
        (1.0, -1.0) => 0,
        _ => return Err(refuse()),
    };
    let mut sizes: Vec<Option<u64>> = Vec::new();
    for (place, field) in shape.all("dim").enumerate().skip(skipped) {
        let wanted = field.number()?;
        sizes.push(match wanted {
            0.0 => Some(sides.get(place - skipped).map_or(1, |side| u64::from(*side))),
            -1.0 => None,
            wanted if wanted > 0.0 => Some(wanted as u64),
            _ => return Err(refuse()),
        });
    }
    let known: u64 = sizes.iter().flatten().fold(1, |all, size| all.saturating_mul(*size));
    let left = input.elements().checked_div(known).unwrap_or(0);
    let sizes: Vec<u64> = sizes.iter().map(|size| size.unwrap_or(left)).collect();
    let trimmed = |sizes: &[u64]| sizes.iter().rev().skip_while(|size| **size == 1).copied().collect::<Vec<u64>>();
    let own = sides.map(u64::from);
    match trimmed(&sizes) {
        same if same == trimmed(&own) => Ok(Meaning::Copies),
        flat if flat == [input.elements()] => Ok(Meaning::Layer(Layer::Flatten, Inits::default())),
        _ => Err(refuse()),
    }
}

/// Whether a sum or product of inputs states numbers other than 1 for them.
pub(super) fn weighs(layer: &Message<'_>) -> Result<bool, InputError> {
    for coefficient in layer.message("eltwise_param")?.all("coeff") {
        if coefficient.number()? != 1.0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A sum of inputs, each times its number.
pub(super) fn weighted(layer: &Message<'_>) -> Result<Meaning, InputError> {
    layer.allow(&[COMMON, &["eltwise_param"], OTHERS, FORKS])?;
    let of = layer.message("eltwise_param")?;
    of.allow(&[&["operation", "coeff", "stable_prod_grad"]])?;
    if !matches!(of.word("operation", "SUM")?, "SUM" | "1") {
        return Err(of.error("coeff", "only a SUM has coefficients"));
    }
    let all = of.all("coeff").map(Field::number).collect::<Result<Vec<f32>, _>>()?;
    if all.len() != layer.all("bottom").count() {
        return Err(of.error("coeff", "there must be one for each bottom"));
    }
    Ok(Meaning::Sum(all))
}

/// A product of two inputs, of which the second has fewer dimensions: as squeeze and excitation is also written.
pub(super) fn product(layer: &Message<'_>) -> Result<Meaning, InputError> {
    layer.allow(&[COMMON, &["scale_param"], OTHERS, FORKS])?;
    let of = layer.message("scale_param")?;
    of.allow(&[&["axis", "num_axes", "bias_term"]])?;
    if of.boolean("bias_term", false)? || of.size("axis", 1)? != 0 {
        return Err(of.error("axis", "a scale by another blob is a layer with axis: 0 and without a bias alone"));
    }
    Ok(Meaning::Layer(Layer::Product, Inits::default()))
}
