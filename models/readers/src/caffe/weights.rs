//! Reads weights from Caffe's `.caffemodel` files (`NetParameter` of `caffe.proto`): each layer's blobs, by its name,
//! as parameters and running statistics of a model.
//!
//! Layers are read in the present form (field 100) and in the first one (field 2), shapes as `BlobShape` or as num,
//! channels, height and width. The order of elements is the same as here: filters are `[out, in / groups, height,
//! width]`, rows of a dense layer go over `[channels, height, width]`.

use std::collections::BTreeMap;

use lockstep_models::{Model, NamedValues, Node, Shape};
use lockstep_topology::InputError;

use crate::sketch::clean;
use crate::wire::{Field, Malformed, Piece};

/// A tensor of a layer.
#[derive(Debug, Default)]
struct Blob {
    shape: Vec<i64>,
    values: Vec<f32>,
}

/// A layer of the file.
#[derive(Debug, Default)]
struct Stored<'a> {
    name: &'a str,
    kind: &'a str,
    bottoms: Vec<&'a str>,
    tops: Vec<&'a str>,
    blobs: Vec<Blob>,
}

/// The values in `bytes`, the content of `file`, for `model`, and a text that lists the layers that only one of
/// the two has.
pub(crate) fn read(file: &str, bytes: &[u8], model: &Model) -> Result<(NamedValues, String), InputError> {
    if bytes.starts_with(b"\x89HDF") {
        let message = "is an HDF5 file, which is not read: write it with snapshot_format: BINARYPROTO";
        return Err(InputError::new(file, "", message));
    }
    let stored = layers(bytes).map_err(|error| {
        let message = format!("{}: this is not a whole .caffemodel; copy it again", error.message);
        InputError::new(format!("{file}: byte {}", error.offset), "", message)
    })?;
    let mut values = NamedValues::default();
    let norms = norms(&stored);
    let (mut taken, mut strange) = (Vec::new(), Vec::new());
    for (layer, norm) in stored.iter().zip(norms).filter(|(layer, _)| !layer.blobs.is_empty()) {
        let name = clean(norm.unwrap_or(layer.name));
        let Some(node) = model.layers().iter().find(|node| node.name == name && learns(node)) else {
            strange.push(layer.name);
            continue;
        };
        let refuse =
            |at: usize, message: String| InputError::new(file, format!("layer \"{}\", blob {at}", layer.name), message);
        if layer.kind == "BatchNorm" {
            values.statistics.insert(name.clone(), statistics(layer, node, &refuse)?);
        } else {
            let (given, wanted) = (layer.blobs.len(), node.parameters.len());
            if given != wanted {
                let message =
                    format!("is the last of the layer, and {} \"{name}\" of the model has {wanted}", node.layer.kind());
                return Err(refuse(given - 1, message));
            }
            for (at, (blob, parameter)) in layer.blobs.iter().zip(&node.parameters).enumerate() {
                blob.check(parameter.shape, &parameter.name).map_err(|message| refuse(at, message))?;
                values.parameters.insert(parameter.name.clone(), blob.values.clone());
            }
        }
        taken.push(name);
    }
    let fresh: Vec<&str> = model
        .layers()
        .iter()
        .filter(|node| learns(node) && !taken.contains(&node.name))
        .map(|node| &*node.name)
        .collect();
    if taken.is_empty() {
        let message = format!(
            "no layer of the model has its name in the file: the model's are {}, the file's {}",
            listed(&fresh),
            listed(&strange)
        );
        return Err(InputError::new(file, "", message));
    }
    taken.dedup();
    let mut summary = format!("weights of {file}: {} layers", taken.len());
    for (what, names) in [("only in the model, which begin as it says", fresh), ("only in the file", strange)] {
        if !names.is_empty() {
            summary += &format!("; {what}: {}", listed(&names));
        }
    }
    Ok((values, summary))
}

/// Whether a file may have values for a layer.
fn learns(node: &Node) -> bool {
    !node.parameters.is_empty()
}

/// The first of some names.
fn listed(names: &[&str]) -> String {
    const MOST: usize = 20;
    let more = if names.len() > MOST { ", …" } else { "" };
    if names.is_empty() { "none".to_owned() } else { names[..names.len().min(MOST)].join(", ") + more }
}

/// For each layer that is the scale of a batch norm the latter's name: its input is that layer's output.
fn norms<'a>(stored: &[Stored<'a>]) -> Vec<Option<&'a str>> {
    let mut made: BTreeMap<&str, &str> = BTreeMap::new();
    let of = |layer: &Stored<'a>| {
        let before = layer.bottoms.first().and_then(|blob| made.get(blob).copied());
        let behind = match layer.kind {
            "BatchNorm" => Some(layer.name),
            "Split" => before,
            _ => None,
        };
        for top in &layer.tops {
            match behind {
                Some(name) => made.insert(top, name),
                None => made.remove(top),
            };
        }
        before.filter(|_| layer.kind == "Scale")
    };
    stored.iter().map(of).collect()
}

/// The running means and variances of a batch norm, which Caffe keeps as sums and the divisor of these.
fn statistics(
    layer: &Stored<'_>,
    node: &Node,
    refuse: &dyn Fn(usize, String) -> InputError,
) -> Result<Vec<f32>, InputError> {
    let [means, variances, weight] = &layer.blobs[..] else {
        let message = "is the last of the layer: a BatchNorm has three, its means, its variances and their weight";
        return Err(refuse(layer.blobs.len() - 1, message.to_owned()));
    };
    if node.statistics.is_none() {
        return Err(refuse(0, format!("is a batch norm's, and {} of the model is a {}", node.name, node.layer.kind())));
    }
    let channels = Shape::flat(node.output.features());
    for (at, (blob, shape, what)) in [
        (means, channels, "running mean"),
        (variances, channels, "running variance"),
        (weight, Shape::flat(1), "weight of both"),
    ]
    .into_iter()
    .enumerate()
    {
        blob.check(shape, &format!("{}'s {what}", node.name)).map_err(|message| refuse(at, message))?;
    }
    let factor = if weight.values[0] == 0.0 { 0.0 } else { 1.0 / weight.values[0] };
    Ok([means, variances].into_iter().flat_map(|blob| &blob.values).map(|sum| sum * factor).collect())
}

impl Blob {
    /// Whether it has a finite value for each element of `what`, which has these sizes; the first form of the file has
    /// ones before them.
    fn check(&self, shape: Shape, what: &str) -> Result<(), String> {
        let wanted: Vec<i64> = shape.sizes().map(i64::from).collect();
        let bare = |sizes: &[i64]| sizes.iter().copied().skip_while(|size| *size == 1).collect::<Vec<_>>();
        let shown = |sizes: &[i64]| sizes.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
        if bare(&self.shape) != bare(&wanted) {
            return Err(format!(
                "has the shape {}, and {what} of the model {}: use the weights of this network, or give the layer another name",
                shown(&self.shape),
                shown(&wanted)
            ));
        }
        let elements = wanted.iter().fold(1i64, |product, size| product.saturating_mul(*size));
        if self.values.len() as i64 != elements {
            return Err(format!(
                "has {} values for its shape {}: copy the file again",
                self.values.len(),
                shown(&self.shape)
            ));
        }
        match self.values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(format!("has {} as its value {at}: train it again", self.values[at])),
            None => Ok(()),
        }
    }

    fn read(field: Field<'_>) -> Result<Blob, Malformed> {
        let (mut blob, mut old) = (Blob::default(), [0i64; 4]);
        let mut shaped = false;
        for field in field.piece()?.fields()? {
            match field.number {
                number @ 1..=4 => old[number as usize - 1] = field.integer()?,
                5 => field.floats(&mut blob.values)?,
                7 => {
                    shaped = true;
                    for dim in field.piece()?.fields()?.iter().filter(|field| field.number == 1) {
                        dim.integers(&mut blob.shape)?;
                    }
                }
                8 => field.doubles(&mut blob.values)?,
                _ => {}
            }
        }
        if !shaped {
            blob.shape = old.to_vec();
        }
        Ok(blob)
    }
}

/// The layers of a file.
fn layers(bytes: &[u8]) -> Result<Vec<Stored<'_>>, Malformed> {
    let mut all = Vec::new();
    for field in (Piece { bytes, offset: 0 }).fields()? {
        match field.number {
            2 => all.push(Stored::first_form(field)?),
            100 => all.push(Stored::present_form(field)?),
            _ => {}
        }
    }
    Ok(all)
}

impl<'a> Stored<'a> {
    /// `LayerParameter`.
    fn present_form(field: Field<'a>) -> Result<Stored<'a>, Malformed> {
        let mut layer = Stored::default();
        for field in field.piece()?.fields()? {
            match field.number {
                1 => layer.name = field.text()?,
                2 => layer.kind = field.text()?,
                3 => layer.bottoms.push(field.text()?),
                4 => layer.tops.push(field.text()?),
                7 => layer.blobs.push(Blob::read(field)?),
                _ => {}
            }
        }
        Ok(layer)
    }

    /// `V1LayerParameter`, in which there are neither batch norms nor scales.
    fn first_form(field: Field<'a>) -> Result<Stored<'a>, Malformed> {
        let mut layer = Stored::default();
        for field in field.piece()?.fields()? {
            match field.number {
                4 => layer.name = field.text()?,
                6 => layer.blobs.push(Blob::read(field)?),
                _ => {}
            }
        }
        Ok(layer)
    }
}

#[cfg(test)]
mod tests;
