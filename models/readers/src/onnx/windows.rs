//! Makes layers of windows that move over an image or a row: convolutions and poolings.

use super::attributes::pair;
use super::{Import, Step, Value};
use lockstep_models::{Border, Conv2d, Layer, Pool2d, PoolKind, Shape};

type Pair = (u32, u32);

/// A node's window: (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    kernel: Pair,
    stride: Pair,
    dilation: Pair,
    /// Above and left.
    before: Pair,
    /// Below and right.
    after: Pair,
}

impl Window {
    /// The window of a step on an image; `kernel` is the weight's if the step gives none.
    fn of(step: &Step<'_>, input: Shape, kernel: Option<&[i64]>) -> Result<Window, String> {
        let Some(kernel) = step.integers("kernel_shape").filter(|kernel| !kernel.is_empty()).or(kernel) else {
            return Err("has no kernel_shape: export it with one".to_owned());
        };
        let ones = [1, 1];
        let list = |name| step.integers(name).filter(|list| !list.is_empty());
        let pads = list("pads").unwrap_or(&[0, 0, 0, 0]);
        // A window over a row is one over an image of one row.
        let (first, pads) = match (kernel.len(), pads) {
            (1, [before, after]) => (1, &[0, *before, 0, *after][..]),
            (1, _) => (1, &[0, 0, 0, 0][..]),
            _ => (0, pads),
        };
        if pads.len() != 4 {
            return Err(format!("pads are {pads:?}: only windows over height and width are supported"));
        }
        let sides = |name, sizes: &[i64]| match (first, sizes) {
            (1, [_, side] | [side]) => pair(name, &[1, *side]),
            _ => pair(name, sizes),
        };
        let mut window = Window {
            kernel: sides("kernel_shape", kernel)?,
            stride: sides("strides", list("strides").unwrap_or(&ones))?,
            dilation: sides("dilations", list("dilations").unwrap_or(&ones))?,
            before: pair("pads", &pads[..2])?,
            after: pair("pads", &pads[2..])?,
        };
        match step.attribute("auto_pad").map(|attribute| attribute.text) {
            None | Some(b"NOTSET" | b"") => {}
            Some(b"VALID") => (window.before, window.after) = ((0, 0), (0, 0)),
            Some(b"SAME_UPPER") => window.pad_alike(input, false),
            Some(b"SAME_LOWER") => window.pad_alike(input, true),
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                return Err(format!("auto_pad is {other}: export with explicit pads"));
            }
        }
        Ok(window)
    }

    /// Padding with which ⌈size / stride⌉ windows fit; an odd one is at the end, or with `lower` at the start.
    fn pad_alike(&mut self, input: Shape, lower: bool) {
        let side = |size: u32, kernel: u32, stride: u32, dilation: u32| {
            let extent = u64::from(dilation) * u64::from(kernel.max(1) - 1) + 1;
            let stride = u64::from(stride.max(1));
            let needed = (u64::from(size).div_ceil(stride) - 1) * stride + extent;
            let all = u32::try_from(needed.saturating_sub(size.into())).unwrap_or(u32::MAX);
            let (less, more) = (all / 2, all.div_ceil(2));
            if lower { (more, less) } else { (less, more) }
        };
        let (rows, columns) = input.image().sides();
        let down = side(rows, self.kernel.0, self.stride.0, self.dilation.0);
        let along = side(columns, self.kernel.1, self.stride.1, self.dilation.1);
        (self.before, self.after) = ((down.0, along.0), (down.1, along.1));
    }

    /// The number of places: ⌊(size + padding − kernel) / stride⌋ + 1.
    fn places(&self, input: Shape) -> Option<Pair> {
        let side = |size: u32, before: u32, after: u32, kernel: u32, stride: u32| {
            let room = (u64::from(size) + u64::from(before) + u64::from(after)).checked_sub(u64::from(kernel))?;
            u32::try_from(room.checked_div(u64::from(stride))? + 1).ok()
        };
        let Window { kernel, stride, before, after, .. } = *self;
        let (rows, columns) = input.image().sides();
        let height = side(rows, before.0, after.0, kernel.0, stride.0)?;
        Some((height, side(columns, before.1, after.1, kernel.1, stride.1)?))
    }
}

impl<'a> Import<'_, 'a> {
    pub(super) fn convolution(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let mut weight = self.weight(step, 1)?;
        let [out, per_group, ..] = weight[..] else { return Err(format!("its weight has the shape {weight:?}")) };
        let row = weight.len() == 3;
        let mut from = if row { self.row(step, &data)? } else { self.natural(step, &data)? };
        let input = self.sketch.shape(from);
        let mut window = Window::of(step, input, weight.get(2..))?;
        if row {
            weight.insert(2, 1);
        }
        let groups = step.integer("group", 1);
        if i64::from(input.features()) != per_group.saturating_mul(groups) {
            return Err(format!(
                "its weight of shape {weight:?} takes {per_group} channels in each of {groups} groups, but its input is \
                 {input}: they must agree"
            ));
        }
        let size = |number: i64| u32::try_from(number).map_err(|_| format!("{number} is not a size"));
        let bias = step.input(2).is_some();
        if bias {
            self.per_channel(step, 2, size(out)?)?;
        }
        let kernel = window.kernel;
        if weight[2..] != [i64::from(kernel.0), i64::from(kernel.1)] {
            return Err(format!("its weight of shape {weight:?} does not fit a kernel of {kernel:?}: they must agree"));
        }
        // Zeros that the layer before puts around the image are this one's own padding where all sides get as many.
        if let (Layer::Border(border), ((0, 0), (0, 0))) = (self.sketch.layer(from), (window.before, window.after))
            && !border.reflect
        {
            (window.before, window.after) = (border.before, border.after);
            from = self.sketch.inputs(from)[0];
        }
        if window.before != window.after {
            from = self.surrounded(step, from, window)?;
            (window.before, window.after) = ((0, 0), (0, 0));
        }
        let Window { stride, dilation, before: padding, .. } = window;
        let (out_channels, groups) = (size(out)?, size(groups)?);
        if let Some(blur) = self.blur(step, &weight, padding) {
            let draft = self.add(step, blur, vec![from])?;
            return Ok(self.ordered(draft, &data));
        }
        let layer = Layer::Conv2d(Conv2d { out_channels, kernel, stride, padding, dilation, groups, bias });
        self.check_weight(step);
        let draft = self.add(step, layer, vec![from])?;
        self.remember_bias(step, draft);
        Ok(if row { self.ordered_row(draft, &data) } else { self.ordered(draft, &data) })
    }

    /// The image in a border of zeros.
    fn surrounded(&mut self, step: &Step<'a>, from: usize, window: Window) -> Result<usize, String> {
        let layer = Layer::Border(Border { before: window.before, after: window.after, reflect: false });
        let name = self.sketch.name("", layer.kind());
        self.layer(name, layer, vec![from], &step.place(self.file))
    }

    /// A pooling. Padding at the end alone is Caffe's partial last window, or a window over the whole image.
    pub(super) fn pool(&mut self, step: &Step<'a>, kind: PoolKind) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let mut from = self.natural(step, &data)?;
        let mut input = self.sketch.shape(from);
        let mut window = Window::of(step, input, None)?;
        if window.dilation != (1, 1) {
            return Err(format!("dilations are {:?}: a pooling has none here", window.dilation));
        }
        let mut counted = kind == PoolKind::Average && step.integer("count_include_pad", 0) != 0;
        let ceil = step.integer("ceil_mode", 0) != 0;
        // Zeros around the image that a mean counts are its padding.
        if let (Layer::Border(border), PoolKind::Average, ((0, 0), (0, 0)), false) =
            (self.sketch.layer(from), kind, (window.before, window.after), ceil)
            && border.before == border.after
            && !border.reflect
        {
            (window.before, window.after, counted) = (border.before, border.after, true);
            from = self.sketch.inputs(from)[0];
            input = self.sketch.shape(from);
        }
        if counted && window.before != window.after && !ceil {
            from = self.surrounded(step, from, window)?;
            input = self.sketch.shape(from);
            (window.before, window.after) = ((0, 0), (0, 0));
        }
        let Some(layer) = self.pool_of(&window, kind, (counted, ceil), input)? else {
            return Ok(Value::Data(super::Data { draft: from, ..data }));
        };
        let draft = self.add(step, layer, vec![from])?;
        Ok(self.ordered(draft, &data))
    }

    /// The layer of a pooling; `None` where it changes nothing.
    fn pool_of(
        &self,
        window: &Window,
        kind: PoolKind,
        (counted, ceil): (bool, bool),
        input: Shape,
    ) -> Result<Option<Layer>, String> {
        let Window { kernel, stride, before, after, .. } = *window;
        let plain = |padding, ceil| {
            let count_padding = counted && padding != (0, 0);
            Some(Layer::Pool2d(Pool2d { kind, kernel, stride, padding, ceil, count_padding }))
        };
        let nothing = ((0, 0), (0, 0));
        if (kernel, stride) == ((1, 1), (1, 1)) && (before, after) == nothing {
            return Ok(None);
        }
        let whole = kernel == input.image().sides() && (before, after) == nothing;
        if whole && kind == PoolKind::Average && !ceil {
            return Ok(Some(Layer::GlobalPool));
        }
        if before == after {
            return Ok(plain(before, ceil));
        }
        let (rows, columns) = input.image().sides();
        let whole = before == (0, 0) && kernel.0 >= rows && kernel.1 >= columns;
        if kind == PoolKind::Average && whole && !counted && window.places(input) == Some((1, 1)) {
            return Ok(Some(Layer::GlobalPool));
        }
        let partial = plain(before, true);
        let places = partial.as_ref().and_then(|layer| layer.output_shape(&[input]).ok());
        let places = places.map(|shape| shape.image().sides());
        if !ceil && !counted && places.is_some() && places == window.places(input) {
            return Ok(partial);
        }
        Err(format!(
            "pads are {before:?} before and {after:?} after: they must be the same on both sides, since the layer has one \
             padding, or leave one partial window at the end"
        ))
    }

    /// The largest number of each plane.
    pub(super) fn largest(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let from = self.natural(step, &data)?;
        let kernel = self.sketch.shape(from).image().sides();
        let (kind, stride, padding) = (PoolKind::Max, (1, 1), (0, 0));
        let layer = Layer::Pool2d(Pool2d { kind, kernel, stride, padding, ceil: false, count_padding: false });
        let draft = self.add(step, layer, vec![from])?;
        Ok(self.ordered(draft, &data))
    }
}
