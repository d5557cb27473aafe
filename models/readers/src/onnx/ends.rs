//! Reads the input of a graph, and ends it with a loss for each output that has scores.

use lockstep_topology::InputError;

use super::proto::Graph;
use super::view::View;
use super::{Data, Import, Step, Value};
use lockstep_models::{Draft, Layer, Shape};

/// The batch where the file gives it a name: a prime, so that sizes computed with it can be told apart.
const ANY_BATCH: i64 = 1_000_003;

/// The weight of a loss that only helps training (Szegedy et al. 2015, §5).
const SIDE_LOSS: f32 = 0.3;

impl<'a> Import<'_, 'a> {
    /// The one input that is not an initializer becomes the first draft.
    pub(super) fn input(&mut self, graph: &Graph<'a>) -> Result<(), InputError> {
        let mut inputs = graph.inputs.iter().filter(|input| !self.values.contains_key(input.name));
        let place = format!("{}: inputs", self.file);
        let refuse = |name: &str, message: String| Err(InputError::new(&place, format!("input \"{name}\""), message));
        let input = match (inputs.next(), inputs.next()) {
            (Some(input), None) => input,
            (None, _) => return refuse("", "the graph has none: a model has one input of samples".to_owned()),
            (Some(first), Some(second)) => {
                let message = format!(
                    "\"{}\" is an input too: a model has one; export weights as initializers and fix what else varies",
                    second.name
                );
                return refuse(first.name, message);
            }
        };
        let Some(dims) = &input.dims else {
            return refuse(input.name, "has no shape: export with one, e.g. [1, 3, 224, 224]".to_owned());
        };
        let side = |place: usize| match dims.get(place) {
            None => Some(1),
            Some(size) => size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0),
        };
        let (2..=4, Some(channels), Some(height), Some(width)) = (dims.len(), side(1), side(2), side(3)) else {
            let shown: Vec<String> =
                dims.iter().map(|size| size.map_or("?".to_owned(), |size| size.to_string())).collect();
            let message = format!(
                "has the shape [{}]: export with fixed sizes behind the batch, e.g. [1, 3, 224, 224] or [1, 784]",
                shown.join(", ")
            );
            return refuse(input.name, message);
        };
        // Three channels behind rows and columns: images with channels last, as TensorFlow has them.
        let is_last = dims.len() == 4 && matches!(width, 1 | 3) && height > 4 && channels > 4;
        let shape =
            if is_last { Shape::of_image(width, channels, height) } else { Shape::of_image(channels, height, width) };
        let index = match self.layer("input".to_owned(), Layer::input(shape), Vec::new(), &place) {
            Ok(index) => index,
            Err(message) => return refuse(input.name, message),
        };
        let batch = dims[0].filter(|size| *size > 0).unwrap_or(ANY_BATCH);
        let view = View::new(batch, shape, dims.len());
        let view = if is_last { view.permuted(&[0, 2, 3, 1]).unwrap_or(view) } else { view };
        self.values.insert(input.name.to_owned(), Value::Data(Data { draft: index, view, named: String::new() }));
        Ok(())
    }

    /// Appends a loss to each output that has scores, the first last, and leaves out layers that lead to none.
    pub(super) fn end(mut self, graph: &Graph<'a>, unfold: bool) -> Result<(Vec<Draft>, Vec<String>), InputError> {
        let place = format!("{}: outputs", self.file);
        let refused = |name: &str, message: String| InputError::new(&place, format!("output \"{name}\""), message);
        let mut scores: Vec<(&str, usize)> = Vec::new();
        let mut left_out = Vec::new();
        for output in &graph.outputs {
            let step = Step { name: (*output).to_owned(), ..Step::default() };
            let draft = match self.values.get(*output).cloned() {
                Some(Value::Data(data)) => self.natural(&step, &data).map_err(|message| refused(output, message)),
                Some(Value::Refused(error)) => Err(error),
                _ => Err(refused(output, "no layer makes it: name a node's output as the graph's".to_owned())),
            };
            let fits = |draft: usize| Layer::SoftmaxCrossEntropy.output_shape(&[self.sketch.shape(draft)]);
            match draft.and_then(|draft| fits(draft).map(|_| draft).map_err(|message| refused(output, message))) {
                Ok(draft) if scores.iter().any(|(_, other)| *other == draft) => {}
                Ok(draft) => scores.push((output, draft)),
                Err(error) => left_out.push((*output, error)),
            }
        }
        let Some(((main, last), sides)) = scores.split_first().map(|((name, draft), sides)| ((*name, *draft), sides))
        else {
            return Err(left_out.into_iter().next().map_or_else(
                || InputError::new(&place, "outputs []", "a model has one output, the scores of the classes"),
                |(_, error)| error,
            ));
        };
        for (name, error) in left_out {
            self.notes.push(format!("{place}: \"{name}\" is left out, it is no output of scores: {}", error.message));
        }
        for (name, draft) in sides {
            let same = self.sketch.shape(*draft) == self.sketch.shape(last);
            if !same {
                self.notes.push(format!("{place}: \"{name}\" is left out: it has other classes than \"{main}\""));
                continue;
            }
            self.notes.push(format!("{place}: \"{name}\" has a loss of weight {SIDE_LOSS} beside that of \"{main}\""));
            let name = self.sketch.name("side_loss", "loss");
            let index = self.layer(name, Layer::SoftmaxCrossEntropy, vec![*draft], &place);
            let index = index.map_err(|message| refused(main, message))?;
            self.sketch.weigh(index, SIDE_LOSS);
        }
        let loss = self.layer("loss".to_owned(), Layer::SoftmaxCrossEntropy, vec![last], &place);
        loss.map_err(|message| refused(main, message))?;
        self.note_surplus();
        self.note_left_out();
        let (drafts, places) = std::mem::take(&mut self.sketch).finish_used();
        let drafts = self.unfolded(drafts, &places, unfold)?;
        Ok((drafts, self.notes))
    }
}
