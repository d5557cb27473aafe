//! Follows reshapes and transposes of samples, which are no layers, and makes means of whole planes.

use super::constant::{elements, place_of, reshape_target};
use super::fold::{axes, permutation, squeezed, unsqueezed};
use super::view::{Axis, View};
use super::{Data, Import, Step, Value};
use lockstep_models::{Dimension, Layer};

impl<'a> Import<'_, 'a> {
    /// The same samples in other dimensions.
    pub(super) fn rearranged(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let (sizes, shape) = (data.view.sizes(), self.shape(&data));
        let constant = step.input(1).and_then(|name| self.constant_of_input(name));
        let given = step.input(1).is_some();
        let view = match step.op {
            "Transpose" => permutation(step, sizes.len()).and_then(|order| data.view.permuted(&order)),
            "Squeeze" => {
                let axes = axes(step, constant.as_ref());
                if given && axes.is_none() {
                    return Err("its axes are not a constant of this file: export with fixed shapes".to_owned());
                }
                squeezed(&sizes, axes.as_deref()).map(|places| data.view.without(&places))
            }
            "Unsqueeze" => {
                let axes = axes(step, constant.as_ref());
                axes.and_then(|axes| unsqueezed(&sizes, &axes)).and_then(|target| data.view.reshaped(&target))
            }
            "Flatten" => {
                let axis = step.integer("axis", 1);
                let axis = if axis < 0 { axis + sizes.len() as i64 } else { axis };
                let axis = usize::try_from(axis).ok().filter(|axis| *axis <= sizes.len());
                axis.and_then(|axis| data.view.reshaped(&[elements(&sizes[..axis]), elements(&sizes[axis..])]))
            }
            _ => {
                let target = match step.integers("shape") {
                    Some(target) => Some(target.to_vec()),
                    None => constant.and_then(|constant| constant.integers()),
                };
                let Some(target) = target else {
                    return Err("its shape is not a constant of this file: export with fixed shapes".to_owned());
                };
                let zero = step.integer("allowzero", 0) != 0;
                let resolved = reshape_target(&sizes, &target, zero).or_else(|| any_batch(&sizes, &target));
                let view = resolved.and_then(|target| data.view.reshaped(&target));
                let Some(view) = view else {
                    return Err(format!(
                        "makes {target:?} of samples of {shape}, arranged as {sizes:?}: only dimensions that are joined or \
                         split whole are followed, e.g. flattening to [batch, {}]",
                        shape.elements()
                    ));
                };
                Some(view)
            }
        };
        let Some(view) = view else {
            return Err(format!("does not fit samples of {shape}, arranged as {sizes:?}: export it again"));
        };
        Ok(Value::Data(Data { view, named: step.name.clone(), ..data }))
    }

    /// A mean over rows and columns is a pooling of whole planes.
    pub(super) fn mean(&mut self, step: &Step<'a>) -> Result<Value, String> {
        let data = self.data(step, 0)?;
        let (shape, rank) = (self.shape(&data), data.view.0.len());
        let constant = step.input(1).and_then(|name| self.constant_of_input(name));
        let wanted = axes(step, constant.as_ref());
        let places: Option<Vec<usize>> =
            wanted.as_ref().and_then(|axes| axes.iter().map(|axis| place_of(*axis, rank)).collect());
        let keep = step.integer("keepdims", 1) != 0;
        let over = |places: &[usize]| -> bool {
            let atoms: Vec<_> = places.iter().flat_map(|place| data.view.0[*place].iter()).collect();
            let size =
                |axis: Axis| atoms.iter().filter(|atom| atom.axis == axis).map(|atom| atom.size).product::<i64>();
            let sides = (size(Axis::Height), size(Axis::Width));
            let no_others = atoms.iter().all(|atom| matches!(atom.axis, Axis::Height | Axis::Width));
            no_others && sides == (i64::from(shape.size(Dimension::Row)), i64::from(shape.size(Dimension::Column)))
        };
        let Some(places) = places.filter(|places| over(places)) else {
            let over = wanted.map_or("all dimensions".to_owned(), |axes| format!("the dimensions {axes:?}"));
            return Err(format!(
                "means of samples of {shape}, arranged as {:?}, over {over}: only the mean over all rows and \
                 columns is a layer, a global pooling; a prediction cannot do without it",
                data.view.sizes()
            ));
        };
        let draft = self.add(step, Layer::GlobalPool, vec![data.draft])?;
        let mut view = data.view.clone();
        places.iter().for_each(|place| view.0[*place].clear());
        let view: View = if keep { view } else { view.without(&places) };
        Ok(Value::Data(Data { draft, view, named: step.name.clone() }))
    }
}

/// A target whose first size is the batch of an export, where the samples have another: `[1, −1]` of a batch without a size.
fn any_batch(sizes: &[i64], target: &[i64]) -> Option<Vec<i64>> {
    let (first, rest) = target.split_first()?;
    let rest = reshape_target(sizes.get(1..)?, rest, false)?;
    (*first >= 1).then(|| [&sizes[..1], &rest].concat())
}
