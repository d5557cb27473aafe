//! What Caffe's layers mean here, one after the other.

use lockstep_topology::InputError;

use super::text::Message;
use crate::model::Init;
use crate::model::build::Inits;
use crate::{BatchNorm, Conv2d, Dense, Dropout, Layer, LocalResponseNorm, Pool2d, PoolKind, Shape};

/// Fields that every layer may have; those that name no blob, phase or message of numbers say nothing of the network.
const COMMON: &[&str] =
    &["name", "type", "bottom", "top", "include", "exclude", "param", "blobs_lr", "weight_decay", "propagate_down"];

/// What is read, for the message about what is not.
const KNOWN: &str = "Input, Data and its kin, Convolution, InnerProduct, Pooling, ReLU, Sigmoid, TanH, LRN, Dropout, BatchNorm with \
                     Scale, Scale, Concat, Eltwise (SUM), Flatten, Split, Softmax, SoftmaxWithLoss, SigmoidCrossEntropyLoss, \
                     Accuracy and Silence";

/// What a layer is.
pub(super) enum Meaning {
    /// It does not train.
    Nothing,
    /// The samples, of these sizes with the batch first.
    Samples(Vec<u32>),
    /// Its outputs are its input.
    Copies,
    /// Probabilities.
    Softmax,
    /// A factor and perhaps a summand per channel: of a batch norm, or a layer of its own.
    ScaleOf { bias: bool },
    /// A layer.
    Layer(Layer, Inits),
    /// A loss.
    Loss(Layer),
}

/// The meaning of a layer of that type, whose inputs have these shapes.
pub(super) fn meaning(kind: &str, layer: &Message<'_>, shapes: &[Shape]) -> Result<Meaning, InputError> {
    let allow = |own: &[&'static str]| layer.allow(&[COMMON, own]);
    let plain = |made: Layer| Ok(Meaning::Layer(made, Inits::default()));
    match kind {
        "Accuracy" | "ACCURACY" | "Silence" | "SILENCE" => Ok(Meaning::Nothing),
        "Input" => {
            allow(&["input_param"])?;
            let shape = layer.message("input_param")?.message("shape")?;
            Ok(Meaning::Samples(shape.all("dim").map(|dim| dim.size()).collect::<Result<_, _>>()?))
        }
        "Data" | "DATA" | "ImageData" | "IMAGE_DATA" | "MemoryData" | "MEMORY_DATA" => {
            data(layer).map(Meaning::Samples)
        }
        "Convolution" | "CONVOLUTION" => {
            allow(&["convolution_param"])?;
            convolution(&layer.message("convolution_param")?)
        }
        "InnerProduct" | "INNER_PRODUCT" => {
            allow(&["inner_product_param"])?;
            let of = layer.message("inner_product_param")?;
            of.allow(&[&["num_output", "bias_term", "weight_filler", "bias_filler"]])?;
            let (out_features, bias) = (of.size("num_output", 0)?, of.boolean("bias_term", true)?);
            Ok(Meaning::Layer(Layer::Dense(Dense { out_features, bias }), inits(&of)?))
        }
        "Pooling" | "POOLING" => {
            allow(&["pooling_param"])?;
            plain(pooling(&layer.message("pooling_param")?, shapes.first())?)
        }
        "ReLU" | "RELU" => {
            allow(&["relu_param"])?;
            let of = layer.message("relu_param")?;
            of.allow(&[&["negative_slope", "engine"]])?;
            match of.get("negative_slope") {
                Some(slope) if slope.number()? != 0.0 => {
                    Err(slope.error("a ReLU is flat below zero here: leave it out"))
                }
                _ => plain(Layer::Relu),
            }
        }
        "Sigmoid" | "SIGMOID" => allow(&["sigmoid_param"]).and_then(|()| plain(Layer::Sigmoid)),
        "TanH" | "TANH" => allow(&["tanh_param"]).and_then(|()| plain(Layer::Tanh)),
        "LRN" => {
            allow(&["lrn_param"])?;
            let of = layer.message("lrn_param")?;
            of.allow(&[&["local_size", "alpha", "beta", "k", "norm_region", "engine"]])?;
            if let Some(region) = of.get("norm_region").filter(|region| region.word() != Ok("ACROSS_CHANNELS")) {
                return Err(region.error("only ACROSS_CHANNELS is known here"));
            }
            // Caffe divides α by the number of channels that are summed.
            let size = of.size("local_size", 5)?;
            let alpha = of.number("alpha", 1.0)? / size.max(1) as f32;
            let (beta, k) = (of.number("beta", 0.75)?, of.number("k", 1.0)?);
            plain(Layer::LocalResponseNorm(LocalResponseNorm { size, alpha, beta, k }))
        }
        "Dropout" | "DROPOUT" => {
            allow(&["dropout_param"])?;
            let of = layer.message("dropout_param")?;
            of.allow(&[&["dropout_ratio"]])?;
            plain(Layer::Dropout(Dropout { rate: of.number("dropout_ratio", 0.5)? }))
        }
        "BatchNorm" => {
            allow(&["batch_norm_param"])?;
            let of = layer.message("batch_norm_param")?;
            of.allow(&[&["use_global_stats", "moving_average_fraction", "eps"]])?;
            let (epsilon, momentum) = (of.number("eps", 1e-5)?, of.number("moving_average_fraction", 0.999)?);
            plain(Layer::BatchNorm(BatchNorm { epsilon, momentum }))
        }
        "Scale" => {
            allow(&["scale_param"])?;
            let of = layer.message("scale_param")?;
            of.allow(&[&["bias_term", "filler", "bias_filler"]])?;
            Ok(Meaning::ScaleOf { bias: of.boolean("bias_term", false)? })
        }
        "Concat" | "CONCAT" => {
            allow(&["concat_param"])?;
            let of = layer.message("concat_param")?;
            of.allow(&[&["axis", "concat_dim"]])?;
            match ["axis", "concat_dim"].iter().find_map(|name| of.get(name)) {
                Some(axis) if axis.size()? != 1 => Err(axis.error("only channels, axis 1, are known here")),
                _ => plain(Layer::Concat),
            }
        }
        "Eltwise" | "ELTWISE" => {
            allow(&["eltwise_param"])?;
            let of = layer.message("eltwise_param")?;
            of.allow(&[&["operation"]])?;
            match of.get("operation") {
                Some(other) if other.word() != Ok("SUM") => Err(other.error("only SUM is known here")),
                _ => plain(Layer::Add),
            }
        }
        "Flatten" | "FLATTEN" => allow(&[]).and_then(|()| plain(Layer::Flatten)),
        "Split" | "SPLIT" => Ok(Meaning::Copies),
        "Softmax" | "SOFTMAX" => Ok(Meaning::Softmax),
        "SoftmaxWithLoss" | "SOFTMAX_LOSS" => {
            allow(&["loss_weight", "loss_param", "softmax_param"])?;
            Ok(Meaning::Loss(Layer::SoftmaxCrossEntropy))
        }
        "SigmoidCrossEntropyLoss" | "SIGMOID_CROSS_ENTROPY_LOSS" => {
            allow(&["loss_weight", "loss_param"])?;
            Ok(Meaning::Loss(Layer::LogisticCrossEntropy))
        }
        other => Err(layer.error(format!("type \"{other}\""), format!("there is no such layer: known are {KNOWN}"))),
    }
}

/// The sizes of what a data layer gives: the file states them only as far as it crops.
fn data(layer: &Message<'_>) -> Result<Vec<u32>, InputError> {
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
        None => layer.message("data_param")?.size("crop_size", 0)?,
    };
    if side == 0 {
        let message = "its data lie elsewhere and no crop_size says their shape: put layer { type: \"Input\" top: \"data\" \
                       input_param { shape { dim: 1 dim: 3 dim: 224 dim: 224 } } } in its place";
        return Err(layer.error("Data", message));
    }
    let channels = if transform.boolean("force_gray", false)? { 1 } else { 3 };
    Ok(vec![1, channels, side, side])
}

fn convolution(of: &Message<'_>) -> Result<Meaning, InputError> {
    of.allow(&[&["num_output", "bias_term", "group", "dilation", "weight_filler", "bias_filler", "engine"], WINDOW])?;
    let kernel = pair(of, "kernel_size", ("kernel_h", "kernel_w"), 0)?;
    let convolution = Conv2d {
        out_channels: of.size("num_output", 0)?,
        kernel,
        stride: pair(of, "stride", ("stride_h", "stride_w"), 1)?,
        padding: pair(of, "pad", ("pad_h", "pad_w"), 0)?,
        dilation: pair(of, "dilation", ("", ""), 1)?,
        groups: of.size("group", 1)?,
        bias: of.boolean("bias_term", true)?,
    };
    Ok(Meaning::Layer(Layer::Conv2d(convolution), inits(of)?))
}

/// A pooling; Caffe counts a last, partial window.
fn pooling(of: &Message<'_>, input: Option<&Shape>) -> Result<Layer, InputError> {
    of.allow(&[&["pool", "global_pooling", "round_mode", "engine"], WINDOW])?;
    let kind = match of.word("pool", "MAX")? {
        "MAX" => PoolKind::Max,
        "AVE" => PoolKind::Average,
        other => return Err(of.error(format!("pool: {other}"), "only MAX and AVE are known here")),
    };
    let padding = pair(of, "pad", ("pad_h", "pad_w"), 0)?;
    if kind == PoolKind::Average && padding != (0, 0) {
        let message = "an average counts no zeros around the image here: pool without padding";
        return Err(of.error("pad", message));
    }
    let stride = pair(of, "stride", ("stride_h", "stride_w"), 1)?;
    let plain = |kernel, ceil| Layer::Pool2d(Pool2d { kind, kernel, stride, padding, ceil });
    match (of.boolean("global_pooling", false)?, kind, input) {
        (true, PoolKind::Average, _) => Ok(Layer::GlobalPool),
        (true, PoolKind::Max, Some(input)) => Ok(plain((input.height, input.width), false)),
        _ => {
            let ceil = of.word("round_mode", "CEIL")? == "CEIL";
            Ok(plain(pair(of, "kernel_size", ("kernel_h", "kernel_w"), 0)?, ceil))
        }
    }
}

/// Fields of a window that slides over an image.
const WINDOW: &[&str] =
    &["kernel_size", "kernel_h", "kernel_w", "stride", "stride_h", "stride_w", "pad", "pad_h", "pad_w"];

/// (vertical, horizontal) of a field that is given once, twice, or under a name for each.
fn pair(of: &Message<'_>, both: &str, (down, right): (&str, &str), without: u32) -> Result<(u32, u32), InputError> {
    let given: Vec<u32> = of.all(both).map(|field| field.size()).collect::<Result<_, _>>()?;
    match given[..] {
        [] => Ok((of.size(down, without)?, of.size(right, without)?)),
        [side] => Ok((side, side)),
        [down, right] => Ok((down, right)),
        _ => Err(of.error(both, "has one or two sizes: images have two sides")),
    }
}

/// How weights and biases start. Without a filler the weights are taken to come from elsewhere and start as this project's do.
fn inits(of: &Message<'_>) -> Result<Inits, InputError> {
    let defaults = Inits::default();
    let filler = |name: &str| {
        let filler = of.message(name)?;
        filler.allow(&[&["type", "value", "std", "mean", "variance_norm"]])?;
        let value = |init: Init| Ok(Some(init));
        match (of.get(name).is_some(), filler.text("type")?) {
            (false, _) => Ok(None),
            (true, "" | "constant") => value(Init::Constant(filler.number("value", 0.0)?)),
            (true, "gaussian") => value(Init::Gaussian(filler.number("std", 1.0)?)),
            (true, "xavier") => value(Init::Xavier),
            (true, "msra") => value(Init::He),
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
