//! Weights as products take them: in the activations' type, filters with channels last where images are.

use super::pass::{Space, own};
use super::script::Script;
use crate::{Activation, Scalar, View, ViewMut};

/// `[outer, rows, columns]` of the parameters, turned to `[outer, columns, rows]` where that is wanted.
pub(super) struct Weights<A> {
    sizes: (u32, u32, u32),
    turned: bool,
    /// What they were in the last forward pass, where they do not lie among the parameters as products take them.
    kept: Option<ViewMut<A>>,
}

impl<A: Activation> Weights<A> {
    pub(super) fn new(sizes: (u32, u32, u32), turned: bool, space: &mut dyn Space) -> Weights<A> {
        let (outer, rows, columns) = sizes;
        let turned = turned && rows > 1 && columns > 1;
        let elements = u64::from(outer) * u64::from(rows) * u64::from(columns);
        let kept = (turned || A::SCALAR != Scalar::F32).then(|| own(space, elements));
        Weights { sizes, turned, kept }
    }

    /// How many they are.
    pub(super) fn elements(&self) -> u64 {
        let (outer, rows, columns) = self.sizes;
        u64::from(outer) * u64::from(rows) * u64::from(columns)
    }

    /// Where products find them in a forward pass.
    pub(super) fn forward(&self, parameters: View<f32>, script: &mut Script<'_>) -> u64 {
        match self.kept {
            Some(kept) if self.turned => script.turn(parameters, kept, self.sizes, false),
            Some(kept) => script.merge(parameters, kept, false),
            None => {}
        }
        self.backward(parameters)
    }

    /// And in a backward pass behind it.
    pub(super) fn backward(&self, parameters: View<f32>) -> u64 {
        self.kept.map_or(parameters.address(), |kept| kept.address())
    }

    /// Their gradient, which `product` writes as numbers of type `G` to the address that it is given.
    pub(super) fn gradient<G: Activation>(
        &self,
        (target, accumulate): (ViewMut<f32>, bool),
        script: &mut Script<'_>,
        product: impl FnOnce(u64, &mut Script<'_>),
    ) {
        let apart = self.turned || G::SCALAR != Scalar::F32;
        if !apart && !accumulate {
            return product(target.address(), script);
        }
        // The library may add in another order than one addition per element. It takes the same method where a tensor lies alike.
        let found = if apart { script.take::<G>(target.elements()) } else { script.take_like(target) };
        product(found.address(), script);
        if self.turned {
            let (outer, rows, columns) = self.sizes;
            script.turn(found.view(), target, (outer, columns, rows), accumulate);
        } else {
            script.merge(found.view(), target, accumulate);
        }
    }
}
