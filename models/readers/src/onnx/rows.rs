//! Makes rows of samples for convolutions over one dimension: `[batch, channels, places]`.

use super::view::{Axis, View};
use super::{Data, Import, Step, Value};
use lockstep_models::{Dimension, Layer, Reshape, Shape};

impl<'a> Import<'_, 'a> {
    /// The draft of a row: channels in the second dimension, places in the third. Features in the third dimension alone are a
    /// row of one channel, as in efficient channel attention (Wang et al. 2020).
    pub(super) fn row(&mut self, step: &Step<'a>, data: &Data) -> Result<usize, String> {
        let shape = self.shape(data);
        let is = |place: usize, axis: Axis, size: u32| data.view.is(place, axis, size);
        if data.view.0.len() == 3
            && shape.size(Dimension::Row) == 1
            && is(1, Axis::Channel, shape.features())
            && is(2, Axis::Width, shape.size(Dimension::Column))
        {
            return Ok(data.draft);
        }
        if data.view.0.len() == 3
            && data.view.features(1).is_empty()
            && shape.places() == 1
            && is(2, Axis::Channel, shape.features())
        {
            let layer = Layer::Reshape(Reshape { shape: Shape::of_image(1, 1, shape.features()) });
            let name = self.sketch.name(&data.named, layer.kind());
            return self.layer(name, layer, vec![data.draft], &step.place(self.file));
        }
        Err(format!(
            "moves over one dimension of samples of {shape}, arranged as {:?}: only [batch, channels, places] of a row, and \
             features as [batch, 1, features], are layers' inputs",
            data.view.sizes()
        ))
    }

    /// A draft's output as `[batch, channels, places]`.
    pub(super) fn ordered_row(&self, draft: usize, data: &Data) -> Value {
        let mut view = View::new(data.view.batch(), self.sketch.shape(draft), 4);
        view.0.remove(2);
        Value::Data(Data { draft, view, named: String::new() })
    }
}
