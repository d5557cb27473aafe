//! Pools over windows: takes their largest value or their mean.

use lockstep_topology::InputError;

use super::window::{check_window, image_of, places, too_large};
use super::*;

/// What a pooling window computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The largest value.
    Max,
    /// The mean over the window's places inside the image, unpadded or padded.
    Average,
}

/// Pooling over windows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pool2d {
    /// Largest or mean.
    pub kind: PoolKind,
    /// Height and width of the window.
    pub kernel: (u32, u32),
    /// Steps of the window.
    pub stride: (u32, u32),
    /// Places added on each side that belong to no image.
    pub padding: (u32, u32),
    /// Whether a last, partial window counts (Caffe's rule) or is dropped.
    pub ceil: bool,
    /// Whether a mean counts the padding's places, as zeros: PyTorch's `count_include_pad`. What a last, partial window
    /// has beyond the padding never counts.
    pub count_padding: bool,
}

pub(super) const MAX: LayerKind = LayerKind {
    keys: WINDOW,
    class: KernelClass::Planes,
    family: "pooling",
    caffe: CaffeKind::new(
        &["Pooling", "POOLING"],
        &["pooling_param"],
        "pool global_pooling round_mode ceil_mode engine kernel_size kernel_h kernel_w stride stride_h \
         stride_w pad pad_h pad_w",
        read_caffe,
    ),
    ..LayerKind::new("max_pool", |of| read(of, PoolKind::Max))
};

pub(super) const AVERAGE: LayerKind = LayerKind {
    name: "average_pool",
    keys: &["kernel", "stride", "padding", "ceil", "count_padding"],
    read: |of| read(of, PoolKind::Average),
    caffe: None,
    ..MAX
};

/// The keys of a window.
const WINDOW: &[&str] = &["kernel", "stride", "padding", "ceil"];

/// A window moves by its own size unless the file says otherwise.
fn read(of: &dyn Attributes, kind: PoolKind) -> Result<Layer, InputError> {
    let example = "the window's sides, e.g. kernel = 2 or [3, 2]";
    let kernel = of.pair("kernel")?.ok_or_else(|| of.missing("kernel", example))?;
    let (stride, padding) = (of.pair("stride")?.unwrap_or(kernel), of.pair("padding")?.unwrap_or((0, 0)));
    let ceil = of.boolean("ceil")?.unwrap_or(false);
    let count_padding = kind == PoolKind::Average && of.boolean("count_padding")?.unwrap_or(false);
    Ok(Layer::Pool2d(Pool2d { kind, kernel, stride, padding, ceil, count_padding }))
}

/// Caffe counts a last, partial window.
fn read_caffe(of: &dyn Attributes) -> Result<Layer, InputError> {
    let kind = match of.word("pool")? {
        None | Some("MAX") => PoolKind::Max,
        Some("AVE") => PoolKind::Average,
        Some(_) => return Err(of.refuse("pool", "only MAX and AVE are supported")),
    };
    let padding = of.pair("pad")?.unwrap_or((0, 0));
    let stride = of.pair("stride")?.unwrap_or((1, 1));
    // Caffe's means count the padding.
    let count_padding = kind == PoolKind::Average && padding != (0, 0);
    let plain = |kernel, ceil| Layer::Pool2d(Pool2d { kind, kernel, stride, padding, ceil, count_padding });
    match (of.boolean("global_pooling")?.unwrap_or(false), kind, of.input().as_ref().and_then(Shape::as_image)) {
        (true, PoolKind::Average, _) => Ok(Layer::GlobalPool),
        (true, PoolKind::Max, Some(input)) => Ok(plain((input.height, input.width), false)),
        _ => {
            // `ceil_mode` is how forks write `round_mode`.
            let ceil = match (of.word("round_mode")?, of.boolean("ceil_mode")?) {
                (Some(mode), Some(ceil)) if (mode == "CEIL") != ceil => {
                    return Err(of.refuse("ceil_mode", "contradicts round_mode: leave one of the two out"));
                }
                (Some(mode), _) => mode == "CEIL",
                (None, ceil) => ceil.unwrap_or(true),
            };
            Ok(plain(of.pair("kernel_size")?.unwrap_or((0, 0)), ceil))
        }
    }
}

impl OfKind for Pool2d {
    fn kind(&self) -> &'static LayerKind {
        match self.kind {
            PoolKind::Max => &MAX,
            PoolKind::Average => &AVERAGE,
        }
    }
}

impl LayerRule for Pool2d {
    /// ⌊ or ⌈(size + 2·padding − kernel) / stride⌉ + 1 on each side.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let input = image_of(inputs[0])?;
        check_window("kernel", self.kernel, 1)?;
        check_window("stride", self.stride, 1)?;
        check_window("padding", self.padding, 0)?;
        let side = |name, size, kernel: u32, stride, padding| {
            if padding >= kernel {
                return Err(format!("padding is {padding}: it must be less than the kernel's {kernel}"));
            }
            places(size, u64::from(kernel), stride, padding, self.ceil)
                .map_err(|padded| too_large(name, kernel, u64::from(kernel), padded, inputs[0]))
        };
        Ok(Signature::elementwise(
            inputs,
            Shape::of_image(
                input.channels,
                side("height", input.height, self.kernel.0, self.stride.0, self.padding.0)?,
                side("width", input.width, self.kernel.1, self.stride.1, self.padding.1)?,
            ),
        )
        .with_whole(&[Dimension::Row, Dimension::Column]))
    }

    fn settings(&self) -> String {
        let pair = |of: (u32, u32)| format!("[{}, {}]", of.0, of.1);
        let [kernel, stride, padding] = [self.kernel, self.stride, self.padding].map(pair);
        let counted = if self.count_padding { ", count_padding = true" } else { "" };
        format!(", kernel = {kernel}, stride = {stride}, padding = {padding}, ceil = {}{counted}", self.ceil)
    }

    fn cost_settings(&self) -> String {
        let pair = |of: (u32, u32)| format!("{}x{}", of.0, of.1);
        let [kernel, stride, padding] = [self.kernel, self.stride, self.padding].map(pair);
        let (ceil, counted) = (if self.ceil { " ceil" } else { "" }, if self.count_padding { " counted" } else { "" });
        format!(" {:?} k{kernel} s{stride} p{padding}{ceil}{counted}", self.kind)
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        let outputs = of.output_elements();
        let flops = f64::from(self.kernel.0) * f64::from(self.kernel.1) * outputs;
        [flops, if self.kind == PoolKind::Max { outputs } else { flops }, 0.0]
    }

    /// Backward, the elements among which a maximum was are read too.
    fn adjusted_work(&self, of: &Node, pass: Pass, samples: f64, work: Work) -> Work {
        let again = self.kind == PoolKind::Max && pass == Pass::BackwardData;
        let input = if again { samples * of.input_elements() } else { 0.0 };
        Work { elements_read: work.elements_read + input, ..work }
    }

    fn keeps(&self, _: Shape, output: Shape) -> Option<KeptTensor> {
        (self.kind == PoolKind::Max).then(|| KeptTensor::of("places", output.elements(), Dtype::U32))
    }

    fn joins(&self, chain: &[&Layer]) -> bool {
        self.kind == PoolKind::Max && matches!(chain, [Layer::Conv2d(_)] | [Layer::Conv2d(_), Layer::Relu])
    }

    fn finds_overlapping_maxima(&self) -> bool {
        self.kind == PoolKind::Max && self.kernel > self.stride
    }
}
