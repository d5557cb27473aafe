//! Translates ONNX operators, one by one: to a layer, or to the result for constants.

use super::attributes::{Placed, Window};
use super::proto::Node;
use super::{Constant, Import, Value, constant};
use lockstep_models::layer::{Arity, KINDS};
use lockstep_models::{BatchNorm, Conv2d, Dense, Dropout, Layer, Pool2d, PoolKind, Scale, Shape};

/// Operators that are read besides those that are a layer for any tensors, for the message about unknown ones.
const KNOWN: &str = "Conv, Gemm, MatMul, BatchNormalization, Dropout, MaxPool, AveragePool, Add, Sum, Mul, Reshape, Identity, \
                     Softmax, constants";

/// Most dimensions of a constant.
const MAX_RANK: usize = 16;

impl<'a> Import<'a> {
    /// Adds a node.
    ///
    /// # Errors
    /// What is wrong with it and how to fix it, without its place.
    pub(super) fn node(&mut self, node: &Node<'a>, place: &str) -> Result<(), String> {
        if !matches!(node.domain, "" | "ai.onnx") {
            return Err(format!("is of the domain \"{}\": only ONNX's own operators are known", node.domain));
        }
        let Some(output) = node.outputs.first() else { return Err("has no output: remove it".to_owned()) };
        let value = match self.constant_of(node)? {
            Some(constant) => Value::Constant(constant),
            None => Value::Draft(self.draft_of(node, place)?),
        };
        self.values.insert(*output, value);
        Ok(())
    }

    /// The constant that a node computes from constants, if it does.
    fn constant_of(&self, node: &Node<'a>) -> Result<Option<Constant>, String> {
        let source = node.inputs.first().and_then(|name| self.values.get(name));
        let known = match source {
            Some(Value::Constant(constant)) => Some(constant),
            _ => None,
        };
        let integers = |place: usize| self.constant(node, place).and_then(|constant| constant.integers.clone());
        Ok(match (node.op, known) {
            ("Constant", _) => match node.tensor("value") {
                Some(tensor) => Some(constant(tensor)),
                None => return Err("has no tensor as its value: export it with one".to_owned()),
            },
            ("ConstantOfShape", _) => match integers(0) {
                Some(dims) => Some(Constant { dims, ..Constant::default() }),
                None => return Err("its shape is not a constant of this file: export with fixed shapes".to_owned()),
            },
            ("Identity", Some(constant)) => Some(constant.clone()),
            ("Reshape", Some(constant)) => match integers(1) {
                Some(dims) if dims.iter().all(|size| *size > 0) => Some(Constant { dims, ..constant.clone() }),
                _ => {
                    return Err(
                        "reshapes a constant to a shape that is not stated: export with fixed shapes".to_owned()
                    );
                }
            },
            ("Unsqueeze", Some(constant)) => {
                let axes = node.integers("axes").map(<[i64]>::to_vec).or_else(|| integers(1)).unwrap_or_default();
                Some(Constant { dims: unsqueezed(&constant.dims, &axes)?, ..constant.clone() })
            }
            _ => None,
        })
    }

    /// The draft whose output is the node's.
    fn draft_of(&mut self, node: &Node<'a>, place: &str) -> Result<usize, String> {
        let layer = match node.op {
            "Conv" => self.convolution(node)?,
            "Gemm" => {
                node.demand(&[("transA", 0)])?;
                if (node.float("alpha", 1.0), node.float("beta", 1.0)) != (1.0, 1.0) {
                    return Err("alpha and beta must be 1: fold them into the weights".to_owned());
                }
                self.dense(node, node.integer("transB", 0) != 0, self.given(node, 2))?
            }
            "MatMul" => self.dense(node, false, false)?,
            "BatchNormalization" => {
                node.demand(&[("spatial", 1)])?;
                let channels = self.shape(node, 0)?.channels;
                for input in 1..5 {
                    self.per_channel(node, input, channels)?;
                }
                let (epsilon, momentum) = (node.float("epsilon", 1e-5), node.float("momentum", 0.9));
                Layer::BatchNorm(BatchNorm { epsilon, momentum })
            }
            "Dropout" => {
                let rate = match self.given(node, 1) {
                    true => self.constant(node, 1).and_then(|ratio| ratio.scalar),
                    false => Some(node.float("ratio", 0.5)),
                };
                match rate {
                    Some(rate) => Layer::Dropout(Dropout { rate }),
                    None => return Err("its ratio is not a constant of this file: export it as one".to_owned()),
                }
            }
            "MaxPool" => self.pool(node, PoolKind::Max)?,
            "AveragePool" => self.pool(node, PoolKind::Average)?,
            "Reshape" => self.flatten(node)?,
            "Add" | "Sum" => match self.bias_of(node)? {
                Some(draft) => return Ok(draft),
                None => Layer::Add,
            },
            "Mul" => {
                let (data, factor) = if self.constant(node, 0).is_some() { (1, 0) } else { (0, 1) };
                let shape = self.shape(node, data)?;
                self.broadcasts(node, factor, shape)?;
                let name = self.sketch.name(node.name, "scale");
                let input = self.draft(node, data)?;
                return self.layer(name, Layer::Scale(Scale { bias: false }), vec![input], place);
            }
            "Identity" => return self.draft(node, 0),
            "Softmax" | "LogSoftmax" => {
                let last = node
                    .outputs
                    .iter()
                    .all(|output| self.uses.get(output).is_none_or(|uses| *uses == 1 && self.outputs.contains(output)));
                if !last {
                    return Err("only the graph's last operator may be one: it becomes the loss".to_owned());
                }
                return self.draft(node, 0);
            }
            other => {
                let mut operators = KINDS.iter().flat_map(|kind| kind.onnx);
                let Some((_, make)) = operators.clone().find(|(name, _)| *name == other) else {
                    let names: Vec<&str> = operators.by_ref().map(|(name, _)| *name).collect();
                    return Err(format!("there is no layer for {other}: known are {KNOWN}, {}", names.join(", ")));
                };
                make(&Placed { node, place }).map_err(|error| error.message)?
            }
        };
        let inputs = if layer.rule().kind().arity == Arity::Several { node.inputs.len() } else { 1 };
        let inputs = (0..inputs).map(|input| self.draft(node, input)).collect::<Result<Vec<_>, _>>()?;
        let name = self.sketch.name(node.name, layer.kind());
        self.layer(name, layer, inputs, place)
    }

    fn convolution(&self, node: &Node<'a>) -> Result<Layer, String> {
        let weight = self.weight(node, 1)?;
        let [out, per_group, ..] = weight[..] else { return Err(format!("its weight has the shape {weight:?}")) };
        let (window, input) = (node.window(weight.get(2..))?, self.shape(node, 0)?);
        let groups = node.integer("group", 1);
        if i64::from(input.channels) != per_group.saturating_mul(groups) {
            return Err(format!(
                "its weight of shape {weight:?} takes {per_group} channels in each of {groups} groups, but its input is \
                 {input}: they must agree"
            ));
        }
        let size = |number: i64| u32::try_from(number).map_err(|_| format!("{number} is not a size"));
        let bias = self.given(node, 2);
        if bias {
            self.per_channel(node, 2, size(out)?)?;
        }
        let Window { kernel, stride, dilation, .. } = window;
        if weight[2..] != [i64::from(kernel.0), i64::from(kernel.1)] {
            return Err(format!("its weight of shape {weight:?} does not fit a kernel of {kernel:?}: they must agree"));
        }
        let (out_channels, groups, padding) = (size(out)?, size(groups)?, window.padding()?);
        Ok(Layer::Conv2d(Conv2d { out_channels, kernel, stride, padding, dilation, groups, bias }))
    }

    fn dense(&self, node: &Node<'a>, transposed: bool, bias: bool) -> Result<Layer, String> {
        let weight = self.weight(node, 1)?;
        let [rows, columns] = weight[..] else {
            return Err(format!("its weight has the shape {weight:?}: only matrices are supported"));
        };
        let (out, features) = if transposed { (rows, columns) } else { (columns, rows) };
        let input = self.shape(node, 0)?;
        if input.height != 1 || input.width != 1 || i64::from(input.channels) != features {
            return Err(format!("its weight takes {features} features, but its input is {input}: they must agree"));
        }
        let out_features = u32::try_from(out).map_err(|_| format!("{out} is not a size"))?;
        if bias {
            self.per_channel(node, 2, out_features)?;
        }
        Ok(Layer::Dense(Dense { out_features, bias }))
    }

    /// A pooling. Padding at the end alone is Caffe's partial last window, or a window over the whole image.
    fn pool(&self, node: &Node<'a>, kind: PoolKind) -> Result<Layer, String> {
        let (window, input) = (node.window(None)?, self.shape(node, 0)?);
        let Window { kernel, stride, before, after, .. } = window;
        if window.dilation != (1, 1) {
            return Err(format!("dilations are {:?}: a pooling has none here", window.dilation));
        }
        if kind == PoolKind::Average && (before, after) != ((0, 0), (0, 0)) {
            node.demand(&[("count_include_pad", 0)])?;
        }
        let plain = |padding, ceil| Layer::Pool2d(Pool2d { kind, kernel, stride, padding, ceil });
        let ceil = node.integer("ceil_mode", 0) != 0;
        if before == after {
            return Ok(plain(before, ceil));
        }
        let whole = before == (0, 0) && kernel.0 >= input.height && kernel.1 >= input.width;
        if kind == PoolKind::Average && whole && self.places(&window, input) == Some((1, 1)) {
            return Ok(Layer::GlobalPool);
        }
        let partial = plain(before, true);
        let places = partial.output_shape(&[input]).ok().map(|shape| (shape.height, shape.width));
        if !ceil && places.is_some() && places == self.places(&window, input) {
            return Ok(partial);
        }
        window.padding().map(|padding| plain(padding, ceil))
    }

    /// The number of places of a window: ⌊(size + padding − kernel) / stride⌋ + 1.
    fn places(&self, window: &Window, input: Shape) -> Option<(u32, u32)> {
        let side = |size: u32, before: u32, after: u32, kernel: u32, stride: u32| {
            let room = (u64::from(size) + u64::from(before) + u64::from(after)).checked_sub(u64::from(kernel))?;
            u32::try_from(room.checked_div(u64::from(stride))? + 1).ok()
        };
        let Window { kernel, stride, before, after, .. } = *window;
        let height = side(input.height, before.0, after.0, kernel.0, stride.0)?;
        Some((height, side(input.width, before.1, after.1, kernel.1, stride.1)?))
    }

    /// A reshape of samples may only flatten them.
    fn flatten(&self, node: &Node<'a>) -> Result<Layer, String> {
        let input = self.shape(node, 0)?;
        let Some(target) = self.constant(node, 1).and_then(|constant| constant.integers.as_deref()) else {
            return Err("its shape is not a constant of this file: export with fixed shapes".to_owned());
        };
        let elements = i64::try_from(input.elements()).unwrap_or(i64::MAX);
        match *target {
            [batch, features] if features == elements || (features == -1 && batch != -1) => Ok(Layer::Flatten),
            _ => Err(format!(
                "makes {target:?} of samples of {input}: only flattening to [batch, {elements}] is supported"
            )),
        }
    }

    /// The draft that takes an addition's constant as its bias: a convolution, dense layer or scale before it that has
    /// none and whose output nothing else takes.
    fn bias_of(&mut self, node: &Node<'a>) -> Result<Option<usize>, String> {
        let Some(summand) = (0..node.inputs.len()).find(|input| self.constant(node, *input).is_some()) else {
            return Ok(None);
        };
        if node.inputs.len() != 2 {
            return Err("adds a constant to several inputs: add them one after the other".to_owned());
        }
        let data = 1 - summand;
        let draft = self.draft(node, data)?;
        self.broadcasts(node, summand, self.sketch.shape(draft))?;
        let alone = node.inputs.get(data).and_then(|name| self.uses.get(name)) == Some(&1);
        let Some(biased) = self.sketch.layer(draft).rule().with_bias() else {
            return Err("adds a constant where no convolution, dense layer or scale could take it as bias".to_owned());
        };
        if biased == *self.sketch.layer(draft) || !alone {
            return Err(
                "adds a constant to a layer that has a bias or other consumers: fold it into the bias".to_owned()
            );
        }
        *self.sketch.layer_mut(draft) = biased;
        Ok(Some(draft))
    }

    /// Whether a node has the optional input.
    fn given(&self, node: &Node<'a>, input: usize) -> bool {
        node.inputs.get(input).is_some_and(|name| !name.is_empty())
    }

    fn constant(&self, node: &Node<'a>, input: usize) -> Option<&Constant> {
        match node.inputs.get(input).and_then(|name| self.values.get(name)) {
            Some(Value::Constant(constant)) => Some(constant),
            _ => None,
        }
    }

    /// The sizes of a weight.
    fn weight(&self, node: &Node<'a>, input: usize) -> Result<Vec<i64>, String> {
        let name = node.inputs.get(input).copied().unwrap_or("");
        match self.constant(node, input) {
            Some(constant) if constant.dims.iter().all(|size| *size > 0) => Ok(constant.dims.clone()),
            Some(constant) => Err(format!("its weight \"{name}\" has the shape {:?}", constant.dims)),
            None => Err(format!("its weight \"{name}\" is not an initializer: export with constants folded")),
        }
    }

    /// Refuses a constant without exactly one value for each channel.
    fn per_channel(&self, node: &Node<'a>, input: usize, channels: u32) -> Result<(), String> {
        let sizes = self.weight(node, input)?;
        let elements = sizes.iter().fold(1i64, |product, size| product.saturating_mul(*size));
        if elements == i64::from(channels) {
            return Ok(());
        }
        let name = node.inputs[input];
        Err(format!("its \"{name}\" has the shape {sizes:?}, but there are {channels} channels: they must agree"))
    }

    /// Refuses a constant that is not one value a channel when it is broadcast over samples: C, or C×1×1 over images.
    fn broadcasts(&self, node: &Node<'a>, input: usize, shape: Shape) -> Result<(), String> {
        self.per_channel(node, input, shape.channels)?;
        let sizes = self.weight(node, input)?;
        if shape.height * shape.width == 1 || matches!(sizes[..], [.., _, 1, 1]) {
            return Ok(());
        }
        let wanted = format!("[{}, 1, 1]", shape.channels);
        Err(format!("its \"{}\" has the shape {sizes:?}: over {shape} it must be {wanted}", node.inputs[input]))
    }

    fn draft(&self, node: &Node<'a>, input: usize) -> Result<usize, String> {
        let name = node.inputs.get(input).copied().unwrap_or("");
        match self.values.get(name) {
            Some(Value::Draft(draft)) => Ok(*draft),
            Some(Value::Constant(_)) => Err(format!("takes the constant \"{name}\" where samples are wanted")),
            None => Err(format!("its input \"{name}\" is made by no node before it")),
        }
    }

    fn shape(&self, node: &Node<'a>, input: usize) -> Result<Shape, String> {
        Ok(self.sketch.shape(self.draft(node, input)?))
    }
}

/// The sizes with ones inserted at `axes` of the result.
fn unsqueezed(dims: &[i64], axes: &[i64]) -> Result<Vec<i64>, String> {
    let rank = dims.len() + axes.len();
    if rank > MAX_RANK {
        return Err(format!("makes a constant of {rank} dimensions: at most {MAX_RANK} are supported"));
    }
    let is_one = |place: usize| axes.contains(&(place as i64)) || axes.contains(&(place as i64 - rank as i64));
    let mut rest = dims.iter().copied();
    Ok((0..rank).map(|place| if is_one(place) { 1 } else { rest.next().unwrap_or(1) }).collect())
}
