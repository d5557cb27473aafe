//! Makes layers over parts of the channels that a dimension counts: sums of them, softmax over them.

use super::constant::place_of;
use super::fold::axes;
use super::view::{Atom, Axis};
use super::{Data, Import, Step, Value};
use lockstep_models::{Affine, Layer, Select, Softmax};

impl<'a> Import<'_, 'a> {
    /// How many parts of the channels a dimension counts, each of neighbouring ones, first of all.
    fn parts(&self, data: &Data, place: usize) -> Option<(u32, u32)> {
        let [Atom { axis: Axis::Channel, size, stride }] = data.view.features(place)[..] else { return None };
        let channels = i64::from(self.shape(data).features());
        let (parts, each) = (u32::try_from(size).ok()?, u32::try_from(stride).ok()?);
        (size.checked_mul(stride) == Some(channels)).then_some((parts, each))
    }

    /// A sum over one dimension: of parts of the channels; over rows and columns a mean times their number.
    pub(super) fn reduced_sum(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let rank = data.view.0.len();
        let constant = step.input(1).and_then(|name| self.constant_of_input(name));
        let wanted = axes(step, constant.as_ref()).unwrap_or_default();
        let places: Option<Vec<usize>> = wanted.iter().map(|axis| place_of(*axis, rank)).collect();
        let keep = step.integer("keepdims", 1) != 0;
        let [place] = places.as_deref().unwrap_or(&[])[..] else {
            let shape = self.shape(&data);
            let mean = self.mean(step)?;
            let Value::Data(mean) = mean else { return Ok(mean) };
            let factor = shape.places() as f32;
            return self.each(step, Layer::Affine(Affine { factor, shift: 0.0 }), &mean);
        };
        let mut view = data.view.clone();
        let empty = data.view.features(place).is_empty();
        let draft = match self.parts(&data, place) {
            _ if empty => data.draft,
            Some((parts, channels)) => {
                let part = |at: u32| Layer::Select(Select { first: at * channels, channels, groups: 1 });
                let all = (0..parts).map(|at| self.add(step, part(at), vec![data.draft]));
                let all = all.collect::<Result<Vec<usize>, String>>()?;
                self.add(step, Layer::Add, all)?
            }
            None => {
                return Err(format!(
                    "sums dimension {place} of samples of {}, arranged as {:?}: only sums of parts of the channels, and of all rows \
                     and columns, are layers; a prediction cannot do without it",
                    self.shape(&data),
                    data.view.sizes()
                ));
            }
        };
        view.0[place].retain(|atom| atom.axis == Axis::Batch);
        let view = if keep { view } else { view.without(&[place]) };
        Ok(Value::Data(Data { draft, view, named: step.name.clone() }))
    }

    /// Softmax over parts of the channels inside a network; `None` where it is over something else.
    pub(super) fn softmax_of_parts(&mut self, step: &Step<'a>) -> Result<Option<Value>, String> {
        let data = self.data(step, 0)?;
        let rank = data.view.0.len();
        // Before opset 13 the dimensions from the axis on are one.
        let (default, joined) = if self.opset < 13 { (1, true) } else { (-1, false) };
        let Some(place) = place_of(step.integer("axis", default), rank) else { return Ok(None) };
        let alone = (place + 1..rank).all(|at| data.view.features(at).is_empty());
        match self.parts(&data, place).filter(|_| alone || !joined) {
            Some((parts, _)) => self.each(step, Layer::Softmax(Softmax { parts }), &data).map(Some),
            None => Ok(None),
        }
    }

    /// Tensors of one shape side by side along a new dimension: their channels follow one another.
    pub(super) fn stacked(&mut self, step: &Step<'a>, all: &[Data], place: usize) -> Result<Option<Value>, String> {
        let Some(first) = all.first().filter(|first| place < first.view.0.len()) else { return Ok(None) };
        let shape = self.shape(first);
        let alike = all.iter().all(|data| data.view == first.view && self.shape(data) == shape);
        let channels = first.view.0.iter().flatten().filter(|atom| atom.axis == Axis::Channel);
        let in_order = shape.features() == 1
            || channels.eq([&Atom { axis: Axis::Channel, size: shape.features().into(), stride: 1 }]);
        if !alike || !in_order || !first.view.features(place).is_empty() || place == 0 {
            return Ok(None);
        }
        let draft = self.add(step, Layer::Concat, all.iter().map(|data| data.draft).collect())?;
        let mut view = first.view.clone();
        view.0[place] = vec![Atom { axis: Axis::Channel, size: all.len() as i64, stride: shape.features().into() }];
        Ok(Some(Value::Data(Data { draft, view, named: step.name.clone() })))
    }
}
