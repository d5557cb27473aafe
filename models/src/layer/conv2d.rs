//! Defines two-dimensional convolution.

use super::window::{check_window, image_of, places, too_large};
use super::*;

/// A 2-d convolution (cross-correlation), weight `[out_channels, in_channels / groups, kernel.0, kernel.1]`.
/// Pairs are (vertical, horizontal).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// Channels of the output.
    pub out_channels: u32,
    /// Height and width of the filter.
    pub kernel: (u32, u32),
    /// Steps of the filter.
    pub stride: (u32, u32),
    /// Zeros added on each side.
    pub padding: (u32, u32),
    /// Distance between filter taps.
    pub dilation: (u32, u32),
    /// Channel groups that are independent of each other.
    pub groups: u32,
    /// Whether each output channel has a bias.
    pub bias: bool,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::ForParameters,
    takes_relu: true,
    keys: &["out_channels", "kernel", "stride", "padding", "dilation", "groups", "bias", "weight_init", "bias_init"],
    caffe: CaffeKind::new(
        &["Convolution", "CONVOLUTION", "DepthwiseConvolution", "ConvolutionDepthwise", "DepthwiseConv"],
        &["convolution_param"],
        "num_output bias_term group dilation weight_filler bias_filler engine kernel_size \
         kernel_h kernel_w stride stride_h stride_w pad pad_h pad_w",
        |of| {
            let kernel = of.pair("kernel_size")?.unwrap_or((0, 0));
            Ok(Layer::Conv2d(Conv2d {
                out_channels: of.size("num_output")?.unwrap_or(0),
                kernel,
                stride: of.pair("stride")?.unwrap_or((1, 1)),
                padding: of.pair("pad")?.unwrap_or((0, 0)),
                dilation: of.pair("dilation")?.unwrap_or((1, 1)),
                groups: of.size("group")?.unwrap_or(1),
                bias: of.boolean("bias_term")?.unwrap_or(true),
            }))
        },
    ),
    ..LayerKind::new("conv2d", |of| {
        let missing = |key, example| of.missing(key, example);
        let kernel = of.pair("kernel");
        Ok(Layer::Conv2d(Conv2d {
            out_channels: of
                .size("out_channels")?
                .ok_or_else(|| missing("out_channels", "the output's feature maps, e.g. out_channels = 32"))?,
            kernel: kernel?.ok_or_else(|| missing("kernel", "the window's sides, e.g. kernel = 3 or [3, 5]"))?,
            stride: of.pair("stride")?.unwrap_or((1, 1)),
            padding: of.pair("padding")?.unwrap_or((0, 0)),
            dilation: of.pair("dilation")?.unwrap_or((1, 1)),
            groups: of.size("groups")?.unwrap_or(1),
            bias: of.boolean("bias")?.unwrap_or(true),
        }))
    })
};

impl Conv2d {
    /// `y[sample, g·o, row, column] = Σ x[sample, g·i, row', column'] · w[g·o, i, kernel row, kernel column] + b[g·o]`, row'
    /// and column' being places of the window; without groups there is no g. `sides`: dimension, the input's size, the
    /// output's, the filter's.
    fn products(&self, channels: u32, sides: [(Dimension, u32, u32, u32); 2]) -> Signature {
        let groups = self.groups;
        let mut of = Signature::of_samples(1);
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        if groups > 1 {
            let g = of.index(groups.into(), IndexUse::Free);
            of.inputs[0].push((g, Dimension::Feature));
            of.output.push((g, Dimension::Feature));
            weight.push((g, Dimension::Output));
            bias.push((g, Dimension::Output));
        }
        let o = of.index((self.out_channels / groups).into(), IndexUse::Free);
        let i = of.index((channels / groups).into(), IndexUse::Contracted);
        of.inputs[0].push((i, Dimension::Feature));
        of.output.push((o, Dimension::Feature));
        weight.extend([(o, Dimension::Output), (i, Dimension::Input)]);
        bias.push((o, Dimension::Output));
        for (dimension, from, to, kernel) in sides {
            let [from, to, kernel] = [from, to, kernel].map(|size| of.index(size.into(), IndexUse::Whole));
            of.inputs[0].push((from, dimension));
            of.output.push((to, dimension));
            weight.push((kernel, dimension));
        }
        of.parameters = if self.bias { vec![weight, bias] } else { vec![weight] };
        of
    }
}

impl LayerRule for Conv2d {
    /// ⌊(size + 2·padding − dilation·(kernel − 1) − 1) / stride⌋ + 1 on each side.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let input = image_of(inputs[0])?;
        check_window("kernel", self.kernel, 1)?;
        check_window("stride", self.stride, 1)?;
        check_window("padding", self.padding, 0)?;
        check_window("dilation", self.dilation, 1)?;
        let divides = |channels: u32| self.groups > 0 && channels.is_multiple_of(self.groups);
        if !divides(input.channels) || !divides(self.out_channels) {
            return Err(format!(
                "groups is {}: it must divide the {} input channels and the {} output channels",
                self.groups, input.channels, self.out_channels
            ));
        }
        let side = |name, size, kernel: u32, stride, padding, dilation: u32| {
            let extent = u64::from(dilation) * u64::from(kernel - 1) + 1;
            places(size, extent, stride, padding, false)
                .map_err(|padded| too_large(name, kernel, extent, padded, inputs[0]))
        };
        let Conv2d { kernel, stride, padding, dilation, .. } = *self;
        let height = side("height", input.height, kernel.0, stride.0, padding.0, dilation.0)?;
        let width = side("width", input.width, kernel.1, stride.1, padding.1, dilation.1)?;
        let sides =
            [(Dimension::Row, input.height, height, kernel.0), (Dimension::Column, input.width, width, kernel.1)];
        Ok(self.products(input.channels, sides))
    }

    fn settings(&self) -> String {
        let pair = |of: (u32, u32)| format!("[{}, {}]", of.0, of.1);
        format!(
            ", out_channels = {}, kernel = {}, stride = {}, padding = {}, dilation = {}, groups = {}, bias = {}",
            self.out_channels,
            pair(self.kernel),
            pair(self.stride),
            pair(self.padding),
            pair(self.dilation),
            self.groups,
            self.bias
        )
    }

    fn cost_settings(&self) -> String {
        let pair = |of: (u32, u32)| format!("{}x{}", of.0, of.1);
        format!(
            " k{} s{} p{} d{} g{}{}",
            pair(self.kernel),
            pair(self.stride),
            pair(self.padding),
            pair(self.dilation),
            self.groups,
            if self.bias { " bias" } else { "" }
        )
    }

    fn parameters(&self, inits: &Inits) -> Vec<Learned> {
        weight_and_bias(self.bias, inits)
    }

    fn weight_rule(&self, rules: &InitRules, _: bool, _: bool) -> Option<Init> {
        let pointwise = rules.convolution_1x1.filter(|_| self.kernel == (1, 1));
        pointwise.or(rules.convolution)
    }

    fn with_bias(&self) -> Option<Layer> {
        Some(Layer::Conv2d(Conv2d { bias: true, ..self.clone() }))
    }

    fn without_bias(&self) -> Option<(Layer, bool)> {
        Some((Layer::Conv2d(Conv2d { bias: false, ..self.clone() }), self.bias))
    }

    fn share(&self, _: Dimension, ranks: u32) -> Option<Layer> {
        Some(Layer::Conv2d(Conv2d { out_channels: self.out_channels.div_ceil(ranks), ..self.clone() }))
    }
}

/// A weight and perhaps a bias for each of its outputs.
pub(super) fn weight_and_bias(bias: bool, inits: &Inits) -> Vec<Learned> {
    let of_bias = Learned { name: "bias", init: Init::Constant(inits.bias), decay: true };
    let weight = Learned { name: "weight", init: inits.weight, decay: true };
    if bias { vec![weight, of_bias] } else { vec![weight] }
}
