//! Prepares weights for products: in the activations' type, and with channels last where images have them last.

use super::pass::{Allocator, own};
use super::script::Script;
use crate::{Activation, Scalar, View, ViewMut};

/// The parameters as `[outer, rows, columns]`, transposed to `[outer, columns, rows]` if needed.
pub(super) struct Weights<A> {
    sizes: (u32, u32, u32),
    turned: bool,
    /// A converted copy of the last forward pass, where the parameters cannot be used in place.
    kept: Option<ViewMut<A>>,
}

impl<A: Activation> Weights<A> {
    pub(super) fn new(sizes: (u32, u32, u32), turned: bool, space: &mut dyn Allocator) -> Weights<A> {
        let (outer, rows, columns) = sizes;
        let turned = turned && rows > 1 && columns > 1;
        let elements = u64::from(outer) * u64::from(rows) * u64::from(columns);
        let kept = (turned || A::SCALAR != Scalar::F32).then(|| own(space, elements));
        Weights { sizes, turned, kept }
    }

    /// Number of weights.
    pub(super) fn elements(&self) -> u64 {
        let (outer, rows, columns) = self.sizes;
        u64::from(outer) * u64::from(rows) * u64::from(columns)
    }

    /// Address of the weights for products in a forward pass.
    pub(super) fn forward(&self, parameters: View<f32>, script: &mut Script<'_>) -> u64 {
        match self.kept {
            Some(kept) if self.turned => script.turn(parameters, kept, self.sizes, false),
            Some(kept) => script.merge(parameters, kept, false),
            None => {}
        }
        self.backward(parameters)
    }

    /// The same in the backward pass that follows.
    pub(super) fn backward(&self, parameters: View<f32>) -> u64 {
        self.kept.map_or(parameters.address(), |kept| kept.address())
    }

    /// Their gradient, which `product` writes as numbers of type `G` to the address that it receives.
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
        // The library may accumulate otherwise than with one addition per element. It chooses the same algorithm for a
        // tensor of the same alignment.
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
