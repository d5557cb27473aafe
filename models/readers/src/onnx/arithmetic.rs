//! Makes layers of sums and products, of samples with each other or with constants.

use super::constant::broadcast;
use super::view::{Axis, View};
use super::{Data, Import, Step, Value};
use lockstep_models::{Affine, Layer, Resize, Scale};

/// What a constant is to samples.
enum Role {
    /// The same number for all elements.
    Number(f32),
    /// A number for each channel.
    PerChannel,
    /// A random number for each sample: stochastic depth (Huang et al. 2016).
    Random,
}

impl<'a> Import<'_, 'a> {
    /// What a constant is to samples that it is added to or multiplied by.
    fn role(&mut self, name: &str, data: &Data) -> Result<Role, String> {
        let constant = self.constant_of_input(name).unwrap_or_default();
        let shape = self.shape(data);
        let channels = i64::from(shape.features());
        if constant.elements() == channels
            && (channels > 1 || constant.learned)
            && constant.scalar().is_none_or(|_| channels == 1)
        {
            // From the right its only long dimension is that of the channels; features may also be in one row.
            let rank = data.view.0.len();
            let place = data.view.channels(shape);
            let at = constant.dims.iter().position(|size| *size > 1).map(|at| at + rank);
            let fits = place.zip(at).is_some_and(|(place, at)| at.checked_sub(constant.dims.len()) == Some(place));
            if fits || channels == 1 || shape.places() == 1 {
                return Ok(Role::PerChannel);
            }
        }
        if let Some(number) = constant.scalar() {
            // PyTorch's exporter calls constants of its own val_N.
            if constant.learned && !name.starts_with("val_") {
                self.left_out.numbers.insert(name.to_owned());
            }
            return Ok(Role::Number(number as f32));
        }
        let sizes = &constant.dims;
        let by_sample = sizes.len() == data.view.0.len() && sizes.iter().skip(1).all(|size| *size == 1);
        if by_sample && sizes.first() == Some(&data.view.batch()) && !constant.learned {
            return Ok(Role::Random);
        }
        if constant.elements() != channels {
            return Err(format!(
                "its \"{name}\" has the shape {sizes:?}, but there are {channels} channels: they must agree, or it must be one \
                 number"
            ));
        }
        Err(format!("its \"{name}\" has the shape {sizes:?}: over {shape} it must be [{channels}, 1, 1]"))
    }

    /// The sum of samples, or of samples and a constant.
    pub(super) fn sum(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let Some(shift) = (0..step.inputs.len()).find(|at| self.constant_of_input(&step.inputs[*at]).is_some()) else {
            return self.sum_of_samples(step);
        };
        if step.inputs.len() != 2 {
            return Err("adds a constant to several inputs: add them one after the other".to_owned());
        }
        let data = self.data(step, 1 - shift)?;
        match self.role(&step.inputs[shift], &data)? {
            Role::Number(0.0) => Ok(Value::Data(data)),
            Role::Number(shift) => self.each(step, Layer::Affine(Affine { factor: 1.0, shift }), &data),
            Role::PerChannel if self.belongs(&data, &step.inputs[1 - shift], false) => Ok(Value::Data(data)),
            Role::PerChannel => self.biased(step, &data, &step.inputs[1 - shift]),
            Role::Random => Err("adds random numbers: that is no layer here; leave it out before export".to_owned()),
        }
    }

    /// A bias per channel: that of the layer before, if it can have one and nothing else takes its output.
    fn biased(&mut self, step: &Step<'a>, data: &Data, name: &str) -> Result<Value, String> {
        let alone = self.uses.get(name) == Some(&1);
        let layer = self.sketch.layer(data.draft);
        match layer.rule().with_bias().filter(|biased| alone && biased != layer) {
            Some(biased) => {
                *self.sketch.layer_mut(data.draft) = biased;
                Ok(Value::Data(data.clone()))
            }
            None => self.each(step, Layer::Bias, data),
        }
    }

    /// Samples less others.
    fn difference(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let (one, other) = (self.data(step, 0)?, self.data(step, 1)?);
        if one.view != other.view || self.shape(&one) != self.shape(&other) {
            return Err("subtracts samples in other dimensions: reshape one to the other's".to_owned());
        }
        let negative = Layer::Affine(Affine { factor: -1.0, shift: 0.0 });
        let negative = self.add(step, negative, vec![other.draft])?;
        let draft = self.add(step, Layer::Add, vec![one.draft, negative])?;
        Ok(Value::Data(Data { draft, ..one }))
    }

    /// The samples that a step takes, which may be repeated, and the sizes that it sees.
    fn spread(&self, step: &Step<'a>, place: usize) -> Result<(Data, Vec<i64>), String> {
        match step.input(place).and_then(|name| self.values.get(name)) {
            Some(Value::Repeated(data, sizes)) => Ok((data.clone(), sizes.clone())),
            _ => self.data(step, place).map(|data| (data.clone(), data.view.sizes())),
        }
    }

    /// Samples whose dimensions of one element are repeated: no layer until one takes them so.
    pub(super) fn repeated(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let sizes = data.view.sizes();
        let target = step.input(1).and_then(|name| self.constant_of_input(name)).and_then(|shape| shape.integers());
        let Some(target) = target.and_then(|target| broadcast(&sizes, &target)) else {
            return Err(format!(
                "repeats samples of {sizes:?} to sizes that are not constants of this file, or do not fit"
            ));
        };
        if target == sizes {
            return Ok(Value::Data(data));
        }
        let added = target.len() - sizes.len();
        let data = if added == 0 {
            data
        } else {
            let grown: Vec<i64> = std::iter::repeat_n(1, added).chain(sizes.iter().copied()).collect();
            let view = data.view.reshaped(&grown).ok_or("repeats samples in more dimensions: reshape them before")?;
            Data { view, ..data }
        };
        Ok(Value::Repeated(data, target))
    }

    fn sum_of_samples(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let mut all = Vec::with_capacity(step.inputs.len());
        for place in 0..step.inputs.len() {
            all.push(self.data(step, place)?);
        }
        let first = all.first().cloned().ok_or("has no inputs: remove it")?;
        if all.len() == 1 {
            return Ok(Value::Data(first));
        }
        if all.iter().all(|data| data.draft == first.draft && data.view == first.view) {
            return self.each(step, Layer::Affine(Affine { factor: all.len() as f32, shift: 0.0 }), &first);
        }
        let alike = all.iter().all(|data| data.view == first.view && self.shape(data) == self.shape(&first));
        if alike {
            let draft = self.add(step, Layer::Add, all.iter().map(|data| data.draft).collect())?;
            return Ok(Value::Data(Data { draft, ..first }));
        }
        let mut inputs = Vec::with_capacity(all.len());
        for data in &all {
            inputs.push(self.natural(step, data)?);
        }
        let draft = self.add(step, Layer::Add, inputs)?;
        Ok(self.ordered(draft, &first))
    }

    /// A product, quotient or difference.
    pub(super) fn product(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let [one, other] = &step.inputs[..] else { return Err("takes two inputs: export it again".to_owned()) };
        let is_constant = |name: &str| self.constant_of_input(name).is_some();
        let (constant, place) = match (is_constant(one), is_constant(other)) {
            (true, _) => (one, 1),
            (_, true) => (other, 0),
            _ if step.op == "Mul" => return self.product_of_samples(step),
            _ if step.op == "Sub" => return self.difference(step),
            _ => return Err(super::refusals::no_layer(step.op)),
        };
        let data = self.data(step, place)?;
        let line = |factor: f32, shift: f32| Layer::Affine(Affine { factor, shift });
        let role = self.role(constant, &data)?;
        if step.op == "Mul" && matches!(role, Role::PerChannel) && self.belongs(&data, &step.inputs[place], true) {
            return Ok(Value::Data(data));
        }
        let layer = match (step.op, place, role) {
            ("Mul", _, Role::Number(1.0)) | ("Div", 0, Role::Number(1.0)) | ("Sub", 0, Role::Number(0.0)) => {
                return Ok(Value::Data(data));
            }
            ("Mul", _, Role::Random) => {
                self.note("stochastic depth is left out: it drops whole samples at random and takes hardly any time");
                return Ok(Value::Data(data));
            }
            ("Mul", _, Role::Number(factor)) => line(factor, 0.0),
            ("Div", 0, Role::Number(divisor)) if divisor != 0.0 => line(1.0 / divisor, 0.0),
            ("Sub", 0, Role::Number(number)) => line(1.0, -number),
            ("Sub", _, Role::Number(number)) => line(-1.0, number),
            ("Mul", _, Role::PerChannel) | ("Div", 0, Role::PerChannel) => Layer::Scale(Scale { bias: false }),
            ("Sub", 0, Role::PerChannel) => return self.biased(step, &data, one),
            _ => return Err(super::refusals::no_layer(step.op)),
        };
        self.each(step, layer, &data)
    }

    fn product_of_samples(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let ((one, one_sizes), (other, other_sizes)) = (self.spread(step, 0)?, self.spread(step, 1)?);
        if one.draft == other.draft {
            return Err(
                "multiplies a tensor by another arrangement of itself: that is no layer here; for a prediction take \
                        another activation"
                    .to_owned(),
            );
        }
        let elements = |data: &Data| self.shape(data).elements();
        let is_first = elements(&one) >= elements(&other);
        let (large, small) = if is_first { (one, other) } else { (other, one) };
        let wanted = if is_first { one_sizes } else { other_sizes };
        if large.view.sizes() != wanted {
            return Err(format!("multiplies samples that are both repeated, to {wanted:?}: only one of them may be"));
        }
        if repeats(&small.view, &large.view) {
            let draft = self.add(step, Layer::Product, vec![large.draft, small.draft])?;
            return Ok(Value::Data(Data { draft, ..large }));
        }
        let (mut first, mut second) = (self.natural(step, &large)?, self.natural(step, &small)?);
        // Channels of one place times places of one channel.
        if self.sketch.shape(first).features() == 1 && self.sketch.shape(second).features() > 1 {
            (first, second) = (second, first);
        }
        if large.view.0.len() != small.view.0.len() {
            return Err(format!(
                "multiplies samples of {} by {}, arranged in other dimensions: reshape one to the other's",
                self.sketch.shape(first),
                self.sketch.shape(second)
            ));
        }
        let first = self.grown(step, first, second)?;
        let draft = self.add(step, Layer::Product, vec![first, second])?;
        Ok(self.ordered(draft, &large))
    }

    /// The first factor, its one place repeated where the second has rows and columns.
    fn grown(&mut self, step: &Step<'a>, first: usize, second: usize) -> Result<usize, String> {
        let (one, other) = (self.sketch.shape(first), self.sketch.shape(second));
        if one.places() != 1 || other.features() != 1 || other.places() == 1 {
            return Ok(first);
        }
        let (height, width) = other.image().sides();
        let layer = Layer::Resize(Resize { height, width });
        let name = self.sketch.name("", layer.kind());
        self.layer(name, layer, vec![first], &step.place(self.file))
    }
}

/// Whether each dimension of the small tensor, from the last on, is the large one's or has one element.
fn repeats(small: &View, large: &View) -> bool {
    let features = |view: &View, from_last: usize| -> Vec<super::view::Atom> {
        let place = view.0.len().checked_sub(from_last + 1);
        let atoms = place.map(|place| view.0[place].clone()).unwrap_or_default();
        atoms.into_iter().filter(|atom| atom.axis != Axis::Batch).collect()
    };
    (0..small.0.len()).all(|place| {
        let own = features(small, place);
        own.is_empty() || own == features(large, place)
    })
}
