//! Makes layers that take channels apart and put them side by side.

use super::constant::{Constant, place_of};
use super::fold::slice;
use super::{Data, Import, Step, Value};
use lockstep_models::{Layer, Select};

impl<'a> Import<'_, 'a> {
    /// Channels `first` and those after it, where `place` is the dimension of the channels.
    fn selected(
        &mut self,
        step: &Step<'a>,
        data: &Data,
        place: usize,
        (first, count): (i64, i64),
    ) -> Result<Value, String> {
        let mut data = data.clone();
        if data.view.channels(self.shape(&data)).is_none() {
            let draft = self.natural(step, &data)?;
            let Value::Data(ordered) = self.ordered(draft, &data) else { return Err("is empty".to_owned()) };
            data = ordered;
        }
        let shape = self.shape(&data);
        let size = |number: i64| u32::try_from(number).map_err(|_| format!("{number} is not a size"));
        let (first, channels) = (size(first)?, size(count)?);
        if data.view.channels(shape) != Some(place) {
            return Err(format!(
                "takes a part of dimension {place} of samples of {shape}, arranged as {:?}: only parts of the channels are a \
                 layer",
                data.view.sizes()
            ));
        }
        if (first, channels) == (0, shape.features()) {
            return Ok(Value::Data(data));
        }
        let draft = self.add(step, Layer::Select(Select { first, channels, groups: 1 }), vec![data.draft])?;
        let view = data.view.with_channels(place, channels);
        Ok(Value::Data(Data { draft, view, named: String::new() }))
    }

    /// A part of one dimension, or all of it.
    pub(super) fn sliced(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let sizes = data.view.sizes();
        let constants: Vec<Option<Constant>> = step.inputs.iter().map(|name| self.constant_of_input(name)).collect();
        let inputs: Vec<Option<&Constant>> = constants.iter().map(Option::as_ref).collect();
        let Some((starts, counts, steps)) = slice(step, &sizes, &inputs) else {
            return Err("its bounds are not constants of this file: export with fixed shapes".to_owned());
        };
        let changed: Vec<usize> = (0..sizes.len()).filter(|at| counts[*at] != sizes[*at] || steps[*at] != 1).collect();
        match changed[..] {
            [] => Ok(Value::Data(data)),
            [at] if steps[at] == 1 => self.selected(step, &data, at, (starts[at], counts[at])),
            _ => Err(format!(
                "takes {counts:?} of {sizes:?} in steps of {steps:?}: only neighbouring channels are a layer"
            )),
        }
    }

    /// One channel.
    pub(super) fn gathered(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let index = step.input(1).and_then(|name| self.constant_of_input(name));
        let place = place_of(step.integer("axis", 0), data.view.0.len());
        // All elements of a row in their order are the row in other dimensions.
        if let (Some(all), 1) = (&index, data.view.0.len())
            && all.integers().is_some_and(|indices| indices.iter().copied().eq(0..data.view.sizes()[0]))
            && let Some(view) = data.view.reshaped(&all.dims)
        {
            return Ok(Value::Data(Data { view, ..data }));
        }
        let (Some(index), Some(place)) = (index.filter(|index| index.dims.is_empty()), place) else {
            return Err("picks by several or unknown indices: only one constant index is a layer".to_owned());
        };
        let index = index.scalar().unwrap_or(0.0) as i64;
        let index = if index < 0 { index + data.view.sizes()[place] } else { index };
        match self.selected(step, &data, place, (index, 1))? {
            Value::Data(data) => Ok(Value::Data(Data { view: data.view.without(&[place]), ..data })),
            other => Ok(other),
        }
    }

    /// Neighbouring parts of the channels.
    pub(super) fn split(&mut self, step: &Step<'a>) -> Result<Vec<Value>, String> {
        let data = self.data(step, 0)?;
        let place = place_of(step.integer("axis", 0), data.view.0.len()).ok_or("its axis is none of the tensor's")?;
        let (all, count) = (data.view.sizes()[place], step.outputs.len() as i64);
        let given = step.input(1).map(|name| self.constant_of_input(name));
        let sizes = match (step.integers("split"), given) {
            (Some(sizes), _) => sizes.to_vec(),
            (None, Some(sizes)) => {
                let sizes = sizes.and_then(|sizes| sizes.integers());
                sizes.ok_or("its sizes are not constants of this file: export with fixed shapes")?
            }
            (None, None) => {
                let each = (all as u64).div_ceil(count.max(1) as u64) as i64;
                (0..count).map(|at| each.min(all - at * each)).collect()
            }
        };
        let mut first = 0i64;
        let mut parts = Vec::new();
        for size in sizes {
            parts.push(self.selected(step, &data, place, (first, size))?);
            first = first.saturating_add(size);
        }
        Ok(parts)
    }

    /// Inputs side by side along channels.
    pub(super) fn concat(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let mut all = Vec::with_capacity(step.inputs.len());
        for place in 0..step.inputs.len() {
            all.push(self.data(step, place)?);
        }
        if let [one] = &all[..] {
            return Ok(Value::Data(one.clone()));
        }
        let first = all.first().cloned().ok_or("has no inputs: remove it")?;
        let axis = step.attribute("axis").map_or(1, |axis| axis.integer);
        let axis = place_of(axis, first.view.0.len());
        if let Some(stacked) = axis.map(|axis| self.stacked(step, &all, axis)).transpose()?.flatten() {
            return Ok(stacked);
        }
        let along = |data: &Data, this: &Self| axis.is_some() && data.view.channels(this.shape(data)) == axis;
        if !all.iter().all(|data| along(data, self)) {
            for data in &mut all {
                let draft = self.natural(step, data)?;
                if let Value::Data(ordered) = self.ordered(draft, data) {
                    *data = ordered;
                }
            }
        }
        let rest = |data: &Data| axis.map(|axis| data.view.without(&[axis]));
        if !all.iter().all(|data| along(data, self) && rest(data) == rest(&all[0])) {
            let sizes: Vec<Vec<i64>> = all.iter().map(|data| data.view.sizes()).collect();
            let along = axis.map_or("a dimension that they lack".to_owned(), |axis| format!("dimension {axis}"));
            return Err(format!("joins {sizes:?} along {along}: only channels, axis 1, are supported"));
        }
        let draft = self.add(step, Layer::Concat, all.iter().map(|data| data.draft).collect())?;
        let channels = self.sketch.shape(draft).features();
        let view = all[0].view.with_channels(axis.unwrap_or(1), channels);
        Ok(Value::Data(Data { draft, view, named: String::new() }))
    }
}
