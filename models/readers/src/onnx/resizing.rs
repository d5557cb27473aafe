//! Makes layers that change an image's sides: borders, blurring, resizing.

use super::attributes::pair;
use super::{Import, Step, Value};
use lockstep_models::{BlurPool, Border, Layer, Resize};

/// Most taps of a blurring filter on a side.
const MOST_TAPS: u32 = 16;

impl<'a> Import<'_, 'a> {
    /// Zeros or a reflection around the rows and columns.
    pub(super) fn border(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let mode = step.attribute("mode").map_or("constant".into(), |mode| String::from_utf8_lossy(mode.text));
        let value = match step.input(2) {
            Some(name) => self.constant_of_input(name).and_then(|value| value.scalar()),
            None => Some(step.float("value", 0.0).into()),
        };
        let pads = match step.integers("pads").or_else(|| step.integers("paddings")) {
            Some(pads) => Some(pads.to_vec()),
            None => step.input(1).and_then(|name| self.constant_of_input(name)).and_then(|pads| pads.integers()),
        };
        let rank = data.view.0.len();
        let Some(pads) = pads.filter(|pads| pads.len() == 2 * rank && step.input(3).is_none()) else {
            return Err(
                "its pads are not constants of this file, two for each dimension: export with fixed shapes".to_owned()
            );
        };
        if pads.iter().all(|pad| *pad == 0) {
            return Ok(Value::Data(data));
        }
        let reflect = mode == "reflect";
        if !reflect && (mode != "constant" || value != Some(0.0)) {
            let with =
                value.map_or("a value that is not a constant of this file".to_owned(), |value| value.to_string());
            return Err(format!(
                "pads in mode {mode} with {with}: only zeros and reflections are layers; for a prediction zeros cost as much, \
                 so export with them"
            ));
        }
        let (before, after) = pads.split_at(rank);
        let from = self.natural(step, &data)?;
        if rank != 4 || before[..2] != [0, 0] || after[..2] != [0, 0] {
            return Err(format!("pads are {pads:?}: only rows and columns of an image can be padded"));
        }
        let (before, after) = (pair("pads", &before[2..])?, pair("pads", &after[2..])?);
        let draft = self.add(step, Layer::Border(Border { before, after, reflect }), vec![from])?;
        Ok(self.ordered(draft, &data))
    }

    /// The blurring that a convolution with one filter of binomial coefficients for all channels is: such a filter is fixed.
    pub(super) fn blur(&self, step: &Step<'a>, weight: &[i64], padding: (u32, u32)) -> Option<Layer> {
        let constant = step.input(1).and_then(|name| self.constant_of_input(name))?;
        let per_channel = step.integer("group", 1) == weight[0] && weight[1] == 1 && step.input(2).is_none();
        let ones = [1, 1];
        let list = |name| step.integers(name).filter(|list| !list.is_empty()).unwrap_or(&ones);
        if !per_channel || weight[2] == 1 || weight.len() != 4 || weight[2] != weight[3] || list("dilations") != ones {
            return None;
        }
        let kernel = u32::try_from(weight[2]).ok().filter(|kernel| *kernel <= MOST_TAPS)?;
        let blur = BlurPool { kernel, stride: pair("strides", list("strides")).ok()?, padding };
        let (taps, elements) = (blur.taps(), usize::try_from(weight[2] * weight[3]).ok()?);
        let of_all =
            constant.numbers.filter(|all| all.chunks(elements).all(|one| *one == all[..elements.min(all.len())]));
        let filter = constant.filter.or_else(|| of_all.map(|all| all.into_iter().take(elements).collect()))?;
        let wanted = taps.iter().flat_map(|down| taps.iter().map(move |along| f64::from(down * along)));
        let near = filter.len() == elements && filter.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4);
        near.then_some(Layer::BlurPool(blur))
    }

    /// The image in another size by its nearest places.
    pub(super) fn resized(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let word = |name: &str, default: &str| {
            step.attribute(name).map_or(default.to_owned(), |word| String::from_utf8_lossy(word.text).into_owned())
        };
        let mode = word("mode", "nearest");
        if mode != "nearest" {
            return Err(format!(
                "resizes in mode {mode}: only nearest is a layer; for a prediction it costs nearly as much, so export with it"
            ));
        }
        let from = self.natural(step, &data)?;
        let input = self.sketch.shape(from);
        let numbers = |place: usize| step.input(place).and_then(|name| self.constant_of_input(name)?.numbers);
        let image = input.image();
        let old = [1, image.channels, image.height, image.width].map(f64::from);
        let scales = match step.op {
            "Upsample" => step.attribute("scales").map(|scales| scales.floats.iter().map(|n| f64::from(*n)).collect()),
            _ => None,
        };
        // Opset 10 has the factors as the second input, later ones as the third, or sizes as the fourth.
        let at = if step.inputs.len() == 2 { 1 } else { 2 };
        let scales: Option<Vec<f64>> = scales.or_else(|| numbers(at)).filter(|scales| !scales.is_empty());
        let sizes = match (scales, numbers(3)) {
            (Some(scales), _) => Some(scales.iter().zip(old).map(|(scale, old)| (scale * old).floor()).collect()),
            (None, sizes) => sizes,
        };
        let batch = data.view.batch() as f64;
        let Some([n, channels, height, width]) = sizes.as_deref().and_then(|sizes| <[f64; 4]>::try_from(sizes).ok())
        else {
            return Err(
                "its sizes are not constants of this file, one for each of four dimensions: export with fixed \
                        shapes"
                    .to_owned(),
            );
        };
        let side = |size: f64| (1.0..=f64::from(u32::MAX)).contains(&size).then_some(size as u32);
        let (true, true, Some(height), Some(width)) =
            ((n == 1.0 || n == batch), channels == old[1], side(height), side(width))
        else {
            let sizes = [n, channels, height, width];
            return Err(format!("makes {sizes:?} of samples of {input}: only rows and columns can be resized"));
        };
        let (place, nearest) =
            (word("coordinate_transformation_mode", "half_pixel"), word("nearest_mode", "round_prefer_floor"));
        let floors = step.op == "Upsample" || at == 1 || place == "asymmetric" && nearest == "floor";
        let whole = height.is_multiple_of(image.height) && width.is_multiple_of(image.width);
        let is_known = floors || whole && place == "half_pixel";
        if !is_known {
            return Err(format!(
                "takes the nearest place by {place} and {nearest}: only asymmetric and floor are a layer, or half_pixel where sides \
                 become a whole multiple; for a prediction they cost as much, so export with them"
            ));
        }
        let draft = self.add(step, Layer::Resize(Resize { height, width }), vec![from])?;
        Ok(self.ordered(draft, &data))
    }
}
