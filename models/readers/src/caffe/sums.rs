//! Adds layers that are several here: weighted sums of inputs, and a product plus an input.

use lockstep_topology::InputError;

use super::Import;
use super::text::Message;
use lockstep_models::layer::Inits;
use lockstep_models::{Affine, Draft, Layer};

impl<'a> Import<'a> {
    /// The sum of inputs, each times its number.
    pub(super) fn sum(
        &mut self,
        (top, name): (&'a str, &str),
        inputs: &[usize],
        factors: &[f32],
        layer: &Message<'a>,
    ) -> Result<(), InputError> {
        let mut terms = Vec::with_capacity(inputs.len());
        for (input, factor) in inputs.iter().zip(factors) {
            let affine = Layer::Affine(Affine { factor: *factor, shift: 0.0 });
            terms.push(if *factor == 1.0 { *input } else { self.inner(name, affine, vec![*input], layer)? });
        }
        self.add(top, name, Layer::Add, terms, Inits::default(), 1.0, layer)
    }

    /// The second input times the first, which has a number for each channel, plus the third.
    pub(super) fn axpy(
        &mut self,
        (top, name): (&'a str, &str),
        inputs: &[usize],
        layer: &Message<'a>,
    ) -> Result<(), InputError> {
        let [factor, of, addend] = *inputs else {
            return Err(
                layer.error(format!("Axpy \"{name}\""), "has three bottoms: a factor, what it multiplies, an addend")
            );
        };
        let product = self.inner(name, Layer::Product, vec![of, factor], layer)?;
        self.add(top, name, Layer::Add, vec![product, addend], Inits::default(), 1.0, layer)
    }

    /// A layer that no blob of the file names.
    fn inner(&mut self, name: &str, layer: Layer, inputs: Vec<usize>, of: &Message<'a>) -> Result<usize, InputError> {
        let (kind, place) = (layer.kind(), of.place());
        let name = self.sketch.name(&format!("{name}.{kind}"), kind);
        let (inits, multipliers) = Default::default();
        let draft = Draft { name: name.clone(), layer, inputs, inits, multipliers, loss_weight: 1.0, place };
        self.sketch.add(draft).map_err(|wrong| of.error(format!("{kind} \"{name}\""), wrong))
    }
}
