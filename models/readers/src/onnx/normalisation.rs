//! Makes normalisations of samples: over groups of channels, and by channels' norms.

use super::constant::place_of;
use super::fold::axes;
use super::pattern::Found;
use super::view::{Atom, Axis, View};
use super::{Data, Import, Step, Value};
use lockstep_models::{GroupNorm, Layer, ResponseNorm};

/// What a normalisation that has no factors and biases of its own has taken from operators after it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bare {
    factors: bool,
    biases: bool,
}

impl<'a> Import<'_, 'a> {
    /// A normalisation of each sample: over each of the second dimension's indices, which are groups of channels.
    pub(super) fn instance_norm(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let shape = self.shape(&data);
        let groups = groups_of(&data.view, self.whole(&data)).filter(|groups| shape.features().is_multiple_of(*groups));
        let Some(groups) = groups else {
            return Err(format!(
                "normalises samples of {shape}, arranged as {:?}, over other parts than whole groups of channels: only those are \
                 a layer here; a prediction cannot do without it, so take GroupNorm or BatchNorm",
                data.view.sizes()
            ));
        };
        for input in 1..3 {
            self.per_channel(step, input, groups)?;
        }
        let epsilon = step.float("epsilon", 1e-5);
        let learned = step.inputs[1..].iter().any(|name| self.constant_of_input(name).is_some_and(|of| of.learned));
        if learned && groups != shape.features() {
            return Err("has factors of groups, not of channels: only the latter are a layer here".to_owned());
        }
        let Value::Data(made) = self.each(step, Layer::GroupNorm(GroupNorm { groups, epsilon }), &data)? else {
            return Err("makes nothing".to_owned());
        };
        if !learned {
            self.bare.insert(made.draft, Bare::default());
        }
        Ok(Value::Data(made))
    }

    /// A group normalisation by its own operator, with a factor and a bias for each channel.
    pub(super) fn group_norm(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let draft = self.natural(step, &data)?;
        let channels = self.sketch.shape(draft).features();
        for input in 1..3 {
            self.per_channel(step, input, channels)?;
            self.count_surplus(step, input);
        }
        let groups = step.integer("num_groups", 1);
        let groups = u32::try_from(groups).map_err(|_| format!("num_groups is {groups}: it is not a size"))?;
        let layer = Layer::GroupNorm(GroupNorm { groups, epsilon: step.float("epsilon", 1e-5) });
        let draft = self.add(step, layer, vec![draft])?;
        Ok(self.ordered(draft, &data))
    }

    /// Whether a factor, or else a bias, of each channel is the own one of the normalisation that made `data`, which
    /// nothing else takes.
    pub(super) fn belongs(&mut self, data: &Data, name: &str, is_factor: bool) -> bool {
        let alone = self.uses.get(name) == Some(&1);
        let Some(bare) = self.bare.get_mut(&data.draft).filter(|_| alone) else { return false };
        let taken = if is_factor { &mut bare.factors } else { &mut bare.biases };
        !std::mem::replace(taken, true)
    }

    /// Counts the factors or biases of a normalisation that the file has as constants: the layer learns them.
    pub(super) fn count_surplus(&mut self, step: &Step<'a>, input: usize) {
        let constant = step.input(input).and_then(|name| self.constant_of_input(name));
        if let Some(constant) = constant.filter(|constant| !constant.learned) {
            self.left_out.surplus += constant.elements() as u64;
        }
    }

    /// Notes normalisations whose factors and biases the file lacks.
    pub(super) fn note_surplus(&mut self) {
        let lacking = self.bare.iter().map(|(draft, bare)| {
            let channels = u64::from(self.sketch.shape(*draft).features());
            channels * (u64::from(!bare.factors) + u64::from(!bare.biases))
        });
        let lacking = lacking.sum::<u64>() + self.left_out.surplus;
        if lacking > 0 {
            self.note(&format!(
                "normalisations without factors and biases are read with them: {lacking} parameters more than the file has"
            ));
        }
    }

    /// The scaling of channels by their norms; `None` where the expression is over other dimensions.
    pub(super) fn response_norm(
        &mut self,
        step: &Step<'a>,
        data: &Data,
        found: &Found,
    ) -> Result<Option<Value>, String> {
        let shape = self.shape(data);
        let named = |letter: char| found.0.get(&letter).map_or("", String::as_str);
        let Some(place) = data.view.channels(shape) else { return Ok(None) };
        let varies = |name: &str| {
            let constant = self.constant_of_input(name).unwrap_or_default();
            let behind = data.view.0.len() - place;
            let at = constant.dims.len().checked_sub(behind).and_then(|at| constant.dims.get(at));
            constant.elements() == i64::from(shape.features()) && at == Some(&i64::from(shape.features()))
        };
        let rest: Vec<usize> = (1..data.view.0.len()).filter(|at| *at != place).collect();
        let fits = self.reduces(named('g'), data, &rest) && self.reduces(named('m'), data, &[place]);
        let epsilon = self.constant_of_input(named('e')).and_then(|epsilon| epsilon.scalar());
        let (true, true, true, Some(epsilon)) = (fits, varies(named('w')), varies(named('b')), epsilon) else {
            return Ok(None);
        };
        self.each(step, Layer::ResponseNorm(ResponseNorm { epsilon: epsilon as f32 }), data).map(Some)
    }

    /// Whether the step that makes a tensor reduces exactly these dimensions and keeps them.
    fn reduces(&self, tensor: &str, data: &Data, places: &[usize]) -> bool {
        let Some(step) = self.makers.get(tensor).map(|at| &self.steps[*at]) else { return false };
        let constant = step.input(1).and_then(|name| self.constant_of_input(name));
        let wanted = axes(step, constant.as_ref());
        let wanted: Option<Vec<usize>> =
            wanted.and_then(|axes| axes.iter().map(|axis| place_of(*axis, data.view.0.len())).collect());
        let sorted = wanted.map(|mut wanted| {
            wanted.sort_unstable();
            wanted
        });
        sorted.as_deref() == Some(places) && step.integer("keepdims", 1) != 0
    }

    /// The parts of all dimensions of samples in the usual order.
    pub(super) fn whole(&self, data: &Data) -> Vec<Atom> {
        let usual = View::new(data.view.batch(), self.shape(data), 4);
        View(vec![usual.0.into_iter().skip(1).flatten().collect()]).features(0)
    }
}

/// The groups of channels that the second dimension counts, if all dimensions are in the usual order.
fn groups_of(view: &View, whole: Vec<Atom>) -> Option<u32> {
    let all = View(vec![view.0.iter().skip(1).flatten().copied().collect()]).features(0);
    let second = view.0.get(1).map(|_| view.features(1))?;
    match second[..] {
        [] if all == whole => Some(1),
        [Atom { axis: Axis::Channel, size, .. }] if all == whole => u32::try_from(size).ok(),
        _ => None,
    }
}
