//! Translates Caffe's layers, one by one.

pub(super) mod data;
mod fields;
mod ignored;
mod more;

use lockstep_topology::InputError;

use super::text::{Field, Message};
use fields::{FILLER, FORKS, OTHERS};
pub(super) use ignored::ignored;
use lockstep_models::layer::{Attributes, Init, Inits, KINDS};
use lockstep_models::{Layer, LeakyRelu, Select, Shape};

/// Fields that every layer may have; those that name no blob, phase or message of numbers do not affect the network.
const COMMON: &[&str] =
    &["name", "type", "bottom", "top", "include", "exclude", "param", "blobs_lr", "weight_decay", "propagate_down"];

/// Layers that are read although they have no kind here, for the message about unknown ones.
const KNOWN: &str = "Input, Data and its kin, Split, Slice, Reshape to a vector, Axpy, ShuffleChannel, PReLU, Softmax, Accuracy, Silence";

/// The meaning of a layer.
pub(super) enum Meaning {
    /// It takes no part in training.
    Nothing,
    /// The samples, of these sizes with the batch first.
    Samples(Vec<u32>),
    /// Its outputs are copies of its input.
    Copies,
    /// Probabilities.
    Softmax,
    /// The product of the first two inputs plus the third.
    Axpy,
    /// The sum of the inputs, each times a number.
    Sum(Vec<f32>),
    /// Each output has these channels: the first and their number.
    Parts(Vec<(u32, u32)>),
    /// A layer.
    Layer(Layer, Inits),
}

/// The attributes of a layer.
struct Fields<'a, 'b> {
    of: &'b Message<'a>,
    input: Option<Shape>,
}

impl Attributes for Fields<'_, '_> {
    fn size(&self, key: &str) -> Result<Option<u32>, InputError> {
        self.of.get(key).map(Field::size).transpose()
    }

    /// A field that is given once, twice, or under a name for each side.
    fn pair(&self, key: &str) -> Result<Option<(u32, u32)>, InputError> {
        let given: Vec<u32> = self.of.all(key).map(Field::size).collect::<Result<_, _>>()?;
        match given[..] {
            [] => {
                let side = |side| self.size(&format!("{}_{side}", key.trim_end_matches("_size")));
                let without = u32::from(key == "stride");
                Ok(match (side("h")?, side("w")?) {
                    (None, None) => None,
                    (down, right) => Some((down.unwrap_or(without), right.unwrap_or(without))),
                })
            }
            [side] => Ok(Some((side, side))),
            [down, right] => Ok(Some((down, right))),
            _ => Err(self.of.error(key, "has one or two sizes: images have two sides")),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f32>, InputError> {
        self.of.get(key).map(Field::number).transpose()
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, InputError> {
        self.of.get(key).map(Field::boolean).transpose()
    }

    fn word(&self, key: &str) -> Result<Option<&str>, InputError> {
        self.of.get(key).map(Field::word).transpose()
    }

    fn input(&self) -> Option<Shape> {
        self.input
    }

    fn refuse(&self, key: &str, message: &str) -> InputError {
        self.of.get(key).map_or_else(|| self.of.error(key, message), |field| field.error(message))
    }
}

/// Whether layers of that type read samples from elsewhere.
pub(super) fn is_data(kind: &str) -> bool {
    let of_files = matches!(kind, "Data" | "DATA" | "ImageData" | "IMAGE_DATA" | "HDF5Data" | "HDF5_DATA");
    of_files || matches!(kind, "MemoryData" | "MEMORY_DATA")
}

/// The meaning of a layer of that type, whose inputs have these shapes.
pub(super) fn meaning(kind: &str, layer: &Message<'_>, shapes: &[Shape]) -> Result<Meaning, InputError> {
    match kind {
        "Accuracy" | "ACCURACY" | "Silence" | "SILENCE" => Ok(Meaning::Nothing),
        "Input" => {
            layer.allow(&[COMMON, OTHERS])?;
            layer.message("input_param")?.allow(&[&["shape"]])?;
            if layer.message("input_param")?.all("shape").count() > 1 {
                return Err(layer.error("shape", "is given twice: a model has one input"));
            }
            let shape = layer.message("input_param")?.message("shape")?;
            shape.allow(&[&["dim"]])?;
            Ok(Meaning::Samples(shape.all("dim").map(|dim| dim.size()).collect::<Result<_, _>>()?))
        }
        data_kind if is_data(data_kind) => data(layer).map(Meaning::Samples),
        "DummyData" | "DUMMY_DATA" => more::dummy(layer).map(Meaning::Samples),
        "Axpy" => layer.allow(&[COMMON, OTHERS, FORKS]).map(|()| Meaning::Axpy),
        "Reshape" | "RESHAPE" => more::reshaped(layer, shapes),
        "Eltwise" | "ELTWISE" if more::weighs(layer)? => more::weighted(layer),
        "Scale" if shapes.len() == 2 => more::product(layer),
        "Slice" | "SLICE" => parts(layer, shapes),
        "ShuffleChannel" => {
            layer.allow(&[COMMON, &["shuffle_channel_param"], OTHERS, FORKS])?;
            let of = layer.message("shuffle_channel_param")?;
            of.allow(&[&["group"]])?;
            let (groups, channels) = (of.size("group", 1)?, shapes.first().map_or(0, |shape| shape.features()));
            Ok(Meaning::Layer(Layer::Select(Select { first: 0, channels, groups }), Inits::default()))
        }
        "PReLU" | "PRELU" => {
            layer.allow(&[COMMON, &["prelu_param"], OTHERS, FORKS])?;
            Ok(Meaning::Layer(Layer::LeakyRelu(LeakyRelu { slope: 0.25 }), Inits::default()))
        }
        "Split" | "SPLIT" => layer.allow(&[COMMON, OTHERS]).map(|()| Meaning::Copies),
        "Softmax" | "SOFTMAX" => {
            layer.allow(&[COMMON, &["softmax_param"], OTHERS])?;
            layer.message("softmax_param")?.allow(&[&["engine"]])?;
            Ok(Meaning::Softmax)
        }
        other => {
            let mut kinds = KINDS.iter().filter_map(|kind| kind.caffe.as_ref());
            let Some(known) = kinds.clone().find(|known| known.types.contains(&other)) else {
                let names: Vec<&str> = kinds.by_ref().map(|known| known.types[0]).collect();
                let message = format!("there is no such layer: known are {}, {KNOWN}", names.join(", "));
                return Err(layer.error(format!("type \"{other}\""), message));
            };
            layer.allow(&[COMMON, known.own, OTHERS, FORKS])?;
            let of = layer.message(known.own.first().unwrap_or(&""))?;
            if !known.fields.is_empty() {
                of.allow(&[&known.fields.split(' ').collect::<Vec<_>>()])?;
            }
            let mut made = (known.read)(&Fields { of: &of, input: shapes.first().copied() })?;
            // A depthwise convolution has a group for each channel, whatever its field says.
            if let (Layer::Conv2d(conv), Some(input), true) = (&mut made, shapes.first(), other.contains("Depthwise")) {
                conv.groups = input.features();
            }
            let fills = known.fields.contains("weight_filler");
            Ok(Meaning::Layer(made, if fills { inits(&of)? } else { Inits::default() }))
        }
    }
}

/// Neighbouring channels for each output: between the points that the layer states, or of equal number.
fn parts(layer: &Message<'_>, shapes: &[Shape]) -> Result<Meaning, InputError> {
    layer.allow(&[COMMON, &["slice_param"], OTHERS, FORKS])?;
    let of = layer.message("slice_param")?;
    of.allow(&[&["axis", "slice_dim", "slice_point"]])?;
    let axis = if of.get("axis").is_some() { of.size("axis", 1)? } else { of.size("slice_dim", 1)? };
    if axis != 1 {
        return Err(of.error("axis", "only channels, axis 1, can be taken apart"));
    }
    let channels = shapes.first().map_or(0, |shape| shape.features());
    let mut points: Vec<u32> = of.all("slice_point").map(Field::size).collect::<Result<_, _>>()?;
    let tops = layer.all("top").count() as u32;
    if points.is_empty() && tops > 0 && channels.is_multiple_of(tops) {
        points = (1..tops).map(|at| at * (channels / tops)).collect();
    }
    points.push(channels);
    let starts = std::iter::once(0).chain(points.iter().copied());
    let parts: Option<Vec<_>> = starts.zip(&points).map(|(from, to)| Some((from, to.checked_sub(from)?))).collect();
    match parts {
        Some(parts) if parts.len() == tops as usize => Ok(Meaning::Parts(parts)),
        _ => Err(of.error(
            "slice_point",
            format!("does not divide {channels} channels among {tops} tops: give a point between each"),
        )),
    }
}

/// The sizes of a data layer's samples: the file states them only as far as it crops.
fn data(layer: &Message<'_>) -> Result<Vec<u32>, InputError> {
    data::check(layer)?;
    if let Some(memory) = layer.get("memory_data_param") {
        let of = memory.message()?;
        return Ok(vec![
            of.size("batch_size", 1)?,
            of.size("channels", 1)?,
            of.size("height", 1)?,
            of.size("width", 1)?,
        ]);
    }
    let transform = layer.message("transform_param")?;
    // The original form of the file has the same fields among those of its source.
    let side = match transform.get("crop_size") {
        Some(side) => side.size()?,
        None => match layer.message("data_param")?.size("crop_size", 0)? {
            0 => layer.message("image_data_param")?.size("crop_size", 0)?,
            side => side,
        },
    };
    if side == 0 {
        let message = "its data are in another file and no crop_size gives their shape: append it to the file's name, as in \
                       net.prototxt:input=3x224x224";
        return Err(layer.error("Data", message));
    }
    let channels = if transform.boolean("force_gray", false)? { 1 } else { 3 };
    Ok(vec![1, channels, side, side])
}

/// The fields that a filler of this type reads, each with its only supported value where there is one; `None` for an
/// unknown type.
fn read_by(filler: &str) -> Option<&'static [(&'static str, Option<&'static str>)]> {
    Some(match filler {
        "" | "constant" => &[("value", None)],
        "gaussian" => &[("std", None), ("mean", Some("0")), ("sparse", Some("-1"))],
        "xavier" => &[("variance_norm", Some("AVERAGE"))],
        "msra" => &[("variance_norm", None)],
        _ => return None,
    })
}

/// Refuses values that a filler of its type reads and that are not supported.
fn filler_reads(filler: &Message<'_>) -> Result<(), InputError> {
    let read = read_by(filler.text("type")?).unwrap_or(&[]);
    for field in filler.fields() {
        let Some((_, Some(only))) = read.iter().find(|(name, _)| *name == field.name) else { continue };
        let is_it = match only.parse::<f32>() {
            Ok(only) => field.number()? == only,
            Err(_) => field.word()? == *only,
        };
        if !is_it {
            return Err(field.error(format!("must be {only} for this type here")));
        }
    }
    Ok(())
}

/// The outputs that one input contributes to: channels times the places of the filter.
fn fan_out(of: &Message<'_>) -> Result<f32, InputError> {
    let fields = Fields { of, input: None };
    let (down, along) = fields.pair("kernel_size")?.unwrap_or((1, 1));
    Ok(of.size("num_output", 1)? as f32 * down as f32 * along as f32)
}

/// How weights and biases start. Without a filler the weights are assumed to come from elsewhere and start by this
/// project's default.
fn inits(of: &Message<'_>) -> Result<Inits, InputError> {
    let defaults = Inits::default();
    let filler = |name: &str| {
        let filler = of.message(name)?;
        filler.allow(&[FILLER])?;
        let value = |init: Init| Ok(Some(init));
        filler_reads(&filler)?;
        match (of.get(name).is_some(), filler.text("type")?) {
            (false, _) => Ok(None),
            (true, "" | "constant") => value(Init::Constant(filler.number("value", 0.0)?)),
            (true, "gaussian") => match (filler.number("std", 1.0)?, filler.get("std")) {
                (negative, Some(field)) if negative < 0.0 => Err(field.error("must be at least 0")),
                (deviation, _) => value(Init::Gaussian(deviation)),
            },
            (true, "xavier") => value(Init::Xavier),
            (true, "msra") => match filler.word("variance_norm", "FAN_IN")? {
                "FAN_IN" | "0" => value(Init::He),
                "FAN_OUT" | "1" => value(Init::Gaussian((2.0 / fan_out(of)?).sqrt())),
                _ => Err(filler.error("variance_norm", "must be FAN_IN or FAN_OUT for this type")),
            },
            (true, other) => {
                Err(filler.error(format!("type: \"{other}\""), "known fillers are constant, gaussian, xavier and msra"))
            }
        }
    };
    let bias = match filler("bias_filler")? {
        Some(Init::Constant(value)) => value,
        None => defaults.bias,
        Some(_) => return Err(of.error("bias_filler", "biases start at a constant here")),
    };
    Ok(Inits { weight: filler("weight_filler")?.unwrap_or(defaults.weight), bias, ..defaults })
}
