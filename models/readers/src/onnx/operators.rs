//! Translates ONNX operators, one by one, to layers.

use super::attributes::Placed;
use super::refusals::no_layer;
use super::{Constant, Import, Step, Value};
use lockstep_models::layer::KINDS;
use lockstep_models::{BatchNorm, Dropout, Layer, PoolKind};

impl<'a> Import<'_, 'a> {
    /// What a step makes of samples.
    ///
    /// # Errors
    /// What is wrong with it and how to fix it, without its place.
    pub(super) fn operator(&mut self, step: &Step<'a>) -> Result<Vec<Value>, String> {
        let is_contrib = step.domain == "com.microsoft" && matches!(step.op, "Gelu" | "FastGelu" | "QuickGelu");
        if !matches!(step.domain, "" | "ai.onnx") && !is_contrib {
            return Err(format!("is of the domain \"{}\": only ONNX's own operators are known", step.domain));
        }
        let one = match step.op {
            "Conv" => self.convolution(step)?,
            "MaxPool" => self.pool(step, PoolKind::Max)?,
            "AveragePool" => self.pool(step, PoolKind::Average)?,
            "GlobalMaxPool" => self.largest(step)?,
            "Pad" => self.border(step)?,
            "Gemm" => {
                step.demand(&[("transA", 0)])?;
                if (step.float("alpha", 1.0), step.float("beta", 1.0)) != (1.0, 1.0) {
                    return Err("alpha and beta must be 1: fold them into the weights".to_owned());
                }
                let bias = step.input(2).is_some();
                self.dense(step, step.integer("transB", 0) != 0, bias)?
            }
            "MatMul" => self.dense(step, false, false)?,
            "BatchNormalization" => self.batch_norm(step)?,
            "LayerNormalization" => self.layer_norm(step)?,
            "InstanceNormalization" => self.instance_norm(step)?,
            "GroupNormalization" => self.group_norm(step)?,
            "Resize" | "Upsample" => self.resized(step)?,
            "ReduceSum" => self.reduced_sum(step)?,
            "Expand" => self.repeated(step)?,
            "Dropout" => {
                let rate = match step.input(1) {
                    Some(name) => self.constant_of_input(name).and_then(|ratio| ratio.scalar()),
                    None => Some(step.float("ratio", 0.5).into()),
                };
                let Some(rate) = rate else {
                    return Err("its ratio is not a constant of this file: export it as one".to_owned());
                };
                let data = self.data(step, 0)?;
                self.each(step, Layer::Dropout(Dropout { rate: rate as f32 }), &data)?
            }
            "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Transpose" => self.rearranged(step)?,
            "ReduceMean" => self.mean(step)?,
            "Identity" | "Cast" | "CastLike" => Value::Data(self.data(step, 0)?),
            "Slice" => self.sliced(step)?,
            "Gather" => self.gathered(step)?,
            "Split" => return self.split(step),
            "Concat" => self.concat(step)?,
            "Add" | "Sum" => self.sum(step)?,
            "Sub" | "Mul" | "Div" => self.product(step)?,
            "Clip" => self.clip(step)?,
            "Softmax" | "LogSoftmax" => {
                let ends = |output: &String| {
                    let uses = self.uses.get(output.as_str());
                    uses.is_none_or(|uses| *uses == 1 && self.outputs.contains(&output.as_str()))
                };
                match step.outputs.iter().all(ends) {
                    true => Value::Data(self.data(step, 0)?),
                    false => self.softmax_of_parts(step)?.filter(|_| step.op == "Softmax").ok_or(
                        "only over parts of the channels, or as the graph's last operator, which becomes the loss, is it a layer: \
                         over places it belongs to attention, which is not supported yet; a prediction cannot do without it",
                    )?,
                }
            }
            "LRN" | "GlobalAveragePool" => {
                let data = self.data(step, 0)?;
                let (draft, layer) = (self.natural(step, &data)?, self.kind(step)?);
                let draft = self.add(step, layer, vec![draft])?;
                self.ordered(draft, &data)
            }
            "FastGelu" => {
                let data = self.data(step, 0)?;
                self.each(step, Layer::Gelu, &data)?
            }
            _ => {
                let (layer, data) = (self.kind(step)?, self.data(step, 0)?);
                self.each(step, layer, &data)?
            }
        };
        Ok(vec![one])
    }

    /// The layer whose operator it is, whatever it takes.
    fn kind(&self, step: &Step<'a>) -> Result<Layer, String> {
        let mut operators = KINDS.iter().flat_map(|kind| kind.onnx);
        let Some((_, make)) = operators.find(|(name, _)| *name == step.op) else { return Err(no_layer(step.op)) };
        make(&Placed { node: step, file: self.file }).map_err(|error| error.message)
    }

    fn batch_norm(&mut self, step: &Step<'a>) -> Result<Value, String> {
        step.demand(&[("spatial", 1)])?;
        let data = self.data(step, 0)?;
        let channels = self.shape(&data).features();
        for input in 1..5 {
            self.per_channel(step, input, channels)?;
        }
        (1..3).for_each(|input| self.count_surplus(step, input));
        let (epsilon, momentum) = (step.float("epsilon", 1e-5), step.float("momentum", 0.9));
        let layer = Layer::BatchNorm(BatchNorm { epsilon, momentum });
        if data.view.channels(self.shape(&data)) == Some(1) {
            return self.each(step, layer, &data);
        }
        let draft = self.natural(step, &data)?;
        let draft = self.add(step, layer, vec![draft])?;
        Ok(self.ordered(draft, &data))
    }

    /// Max(0, x) in the form of bounds.
    fn clip(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let bound = |place: usize, name: &str, default: f32| match step.input(place) {
            Some(input) => self.constant_of_input(input).and_then(|bound| bound.scalar()).unwrap_or(f64::NAN),
            None => step.float(name, default).into(),
        };
        let (least, most) = (bound(1, "min", f32::MIN), bound(2, "max", f32::MAX));
        let data = self.data(step, 0)?;
        if least == 0.0 && most >= 1e30 {
            return self.each(step, Layer::Relu, &data);
        }
        Err(format!("clips to {least} and {most}: only 0 and 6, ReLU6, and 0 and infinity, ReLU, are layers"))
    }

    /// The constant of that name.
    pub(super) fn constant_of_input(&self, name: &str) -> Option<Constant> {
        match self.values.get(name) {
            Some(Value::Constant(constant)) => Some(constant.clone()),
            _ => None,
        }
    }

    /// The sizes of a weight.
    pub(super) fn weight(&self, step: &Step<'a>, input: usize) -> Result<Vec<i64>, String> {
        let name = step.inputs.get(input).map_or("", String::as_str);
        match self.constant_of_input(name) {
            Some(constant) if constant.dims.iter().all(|size| *size > 0) => Ok(constant.dims),
            Some(constant) => Err(format!("its weight \"{name}\" has the shape {:?}", constant.dims)),
            None => Err(format!("its weight \"{name}\" is not an initializer: export with constants folded")),
        }
    }

    /// Refuses a constant without exactly one value for each channel.
    pub(super) fn per_channel(&self, step: &Step<'a>, input: usize, channels: u32) -> Result<(), String> {
        let sizes = self.weight(step, input)?;
        let elements = sizes.iter().fold(1i64, |product, size| product.saturating_mul(*size));
        if elements == i64::from(channels) {
            return Ok(());
        }
        let name = &step.inputs[input];
        Err(format!("its \"{name}\" has the shape {sizes:?}, but there are {channels} channels: they must agree"))
    }
}
