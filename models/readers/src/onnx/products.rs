//! Makes layers of products with matrices of weights, and normalisations over channels.

use super::constant::place_of;
use super::pattern::Found;
use super::view::View;
use super::{Data, Import, Step, Value};
use lockstep_models::{Conv2d, Dense, Layer, LayerNorm};

impl<'a> Import<'_, 'a> {
    /// A product of the last dimension: a dense layer, or, where there are rows and columns, a convolution of 1×1.
    pub(super) fn dense(&mut self, step: &Step<'a>, transposed: bool, bias: bool) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        if step.input(1).is_some_and(|name| matches!(self.values.get(name), Some(Value::Data(_)))) {
            return Err(
                "multiplies samples by samples: that belongs to attention, which is not supported yet".to_owned()
            );
        }
        let weight = self.weight(step, 1)?;
        let [rows, columns] = weight[..] else {
            return Err(format!("its weight has the shape {weight:?}: only matrices are supported"));
        };
        let (out, features) = if transposed { (rows, columns) } else { (columns, rows) };
        let shape = self.shape(&data);
        let out_features = u32::try_from(out).map_err(|_| format!("{out} is not a size"))?;
        let last = data.view.0.len().saturating_sub(1);
        let of_places = data.view.channels(shape) == Some(last) && shape.places() > 1;
        if of_places && i64::from(shape.features()) == features {
            if bias {
                self.per_channel(step, 2, out_features)?;
            }
            let sides = ((1, 1), (0, 0));
            let ((kernel, stride, dilation), padding) = ((sides.0, sides.0, sides.0), sides.1);
            let (out_channels, groups) = (out_features, 1);
            let layer = Layer::Conv2d(Conv2d { out_channels, kernel, stride, padding, dilation, groups, bias });
            let draft = self.add(step, layer, vec![data.draft])?;
            let view = data.view.with_channels(last, out_features);
            return Ok(Value::Data(Data { draft, view, named: String::new() }));
        }
        let is_vector = data.view.channels(shape) == Some(last) && shape.places() == 1;
        let input = if is_vector { data.draft } else { self.natural(step, &data)? };
        let shape = self.sketch.shape(input);
        if shape.places() != 1 || i64::from(shape.features()) != features {
            return Err(format!("its weight takes {features} features, but its input is {shape}: they must agree"));
        }
        if bias {
            self.per_channel(step, 2, out_features)?;
        }
        let draft = self.add(step, Layer::Dense(Dense { out_features, bias }), vec![input])?;
        let view = View::new(data.view.batch(), self.sketch.shape(draft), 2);
        // A product keeps the dimensions before the last one.
        let view = if data.view.0.len() > 2 && data.view.channels(shape) == Some(last) {
            data.view.with_channels(last, out_features)
        } else {
            view
        };
        Ok(Value::Data(Data { draft, view, named: String::new() }))
    }

    /// A normalisation over channels, which must be the dimensions behind `axis`.
    pub(super) fn layer_norm(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let axis = place_of(step.integer("axis", -1), data.view.0.len());
        let epsilon = step.float("epsilon", 1e-5);
        if step.input(2).is_none() {
            return Err("has no bias: only a normalisation with factors and biases is a layer here".to_owned());
        }
        for input in 1..3 {
            self.per_channel(step, input, self.shape(&data).features())?;
            self.count_surplus(step, input);
        }
        self.over_channels(step, &data, axis, epsilon)
    }

    /// A normalisation spelled out; `None` where it is over other dimensions.
    pub(super) fn spelled_norm(
        &mut self,
        step: &Step<'a>,
        data: &Data,
        found: &Found,
    ) -> Result<Option<Value>, String> {
        let constant = |letter: char| found.0.get(&letter).and_then(|name| self.constant_of_input(name));
        let (Some(factors), Some(biases), Some(epsilon)) = (constant('w'), constant('b'), constant('e')) else {
            return Ok(None);
        };
        let shape = self.shape(data);
        let channels = i64::from(shape.features());
        let Some(place) = data.view.channels(shape) else { return Ok(None) };
        // The mean is over the dimension in which factors and biases vary.
        let (last, rank) = (data.view.0.len() - 1, factors.dims.len());
        let varies =
            |dims: &[i64]| (place + dims.len()).checked_sub(last + 1).and_then(|at| dims.get(at)) == Some(&channels);
        let fits = [&factors, &biases].iter().all(|one| one.elements() == channels && varies(&one.dims));
        let (true, true, Some(epsilon)) = (fits, rank <= last + 1, epsilon.scalar()) else { return Ok(None) };
        self.over_channels(step, data, Some(place), epsilon as f32).map(Some)
    }

    fn over_channels(
        &mut self,
        step: &Step<'a>,
        data: &Data,
        place: Option<usize>,
        epsilon: f32,
    ) -> Result<Value, String> {
        let shape = self.shape(data);
        if place.is_none() || data.view.channels(shape) != place {
            return Err(format!(
                "normalises samples of {shape}, arranged as {:?}, over more or other dimensions than their channels: only those \
                 are a layer here; a prediction cannot do without it, so take LayerNorm over channels or BatchNorm",
                data.view.sizes()
            ));
        }
        self.each(step, Layer::LayerNorm(LayerNorm { epsilon }), data)
    }
}
