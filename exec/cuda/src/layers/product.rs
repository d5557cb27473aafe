//! Lowers products of two images, selections of channels and borders of zeros.

use lockstep_models::{Layer, Shape};

use super::head::{Head, Wanted};
use super::pass::{ForwardPass, PassGradients};
use super::script::{Script, count};
use crate::kernel::{KernelSource, kernels, source};
use crate::{Activation, Argument, Geometry, ToArgument, View, ViewMut};

pub(super) const SOURCE: KernelSource = source!("sides.cu");

/// The sides of an image and its layout; in the kernels `struct Sides`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides {
    shape: Shape,
    last: bool,
}

impl Sides {
    pub(super) fn new(shape: Shape, last: bool) -> Sides {
        Sides { shape, last }
    }

    /// Elements of a batch.
    pub(super) fn elements(self, samples: u32) -> u32 {
        count(u64::from(samples) * self.shape.elements())
    }

    /// Elements of a batch with as many samples as `elements` of the shape `other` are.
    pub(super) fn batch_of(self, elements: u32, other: Sides) -> u64 {
        u64::from(elements) / other.shape.elements() * self.shape.elements()
    }
}

impl ToArgument for Sides {
    const TYPE: &'static str = "Sides";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let [channels, height, width] = self.shape.image().sizes();
        let numbers = [channels, height, width, self.last.into()];
        Argument { name, value: numbers.into_iter().flat_map(u32::to_le_bytes).collect(), tensor: None }
    }
}

/// Which places of an image are taken, and where they go; in the kernels `struct Moves`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moves {
    first: u32,
    channels: u32,
    groups: u32,
    above: u32,
    left: u32,
}

impl ToArgument for Moves {
    const TYPE: &'static str = "Moves";

    fn argument(&self, name: &'static str, _: u64) -> Argument {
        let numbers = [self.first, self.channels, self.groups, self.above, self.left];
        Argument { name, value: numbers.into_iter().flat_map(u32::to_le_bytes).collect(), tensor: None }
    }
}

kernels! {
    /// The product, the second factor repeated.
    ProductForward<A> = SOURCE::product_forward on Geometry::threads(all), all = u64::from(elements); {
        a: View<A>[all],
        b: View<A>[second.batch_of(elements, first)],
        y: ViewMut<A>[all],
        elements: u32,
        first: Sides,
        second: Sides,
    }

    /// The gradient of the first factor.
    ProductBackwardFirst<A> = SOURCE::product_backward_first on Geometry::threads(all), all = u64::from(elements); {
        d_y: View<A>[all],
        b: View<A>[second.batch_of(elements, first)],
        d_a: ViewMut<A>[all],
        elements: u32,
        first: Sides,
        second: Sides,
        accumulate: bool,
    }

    /// The gradient of the second factor.
    ProductBackwardSecond<A> = SOURCE::product_backward_second on Geometry::threads(all),
        all = u64::from(elements), large = first.batch_of(elements, second); {
        d_y: View<A>[large],
        a: View<A>[large],
        d_b: ViewMut<A>[all],
        elements: u32,
        first: Sides,
        second: Sides,
        accumulate: bool,
    }

    /// The places that are taken, zeros elsewhere.
    MovedForward<A> = SOURCE::moved_forward on Geometry::threads(all), all = u64::from(elements); {
        x: View<A>[input.batch_of(elements, output)],
        y: ViewMut<A>[all],
        elements: u32,
        input: Sides,
        output: Sides,
        moves: Moves,
    }

    /// The gradient of the places that are taken.
    MovedBackward<A> = SOURCE::moved_backward on Geometry::threads(all), all = u64::from(elements); {
        d_y: View<A>[output.batch_of(elements, input)],
        d_x: ViewMut<A>[all],
        elements: u32,
        input: Sides,
        output: Sides,
        moves: Moves,
        accumulate: bool,
    }
}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let sides = |shape: Shape| Sides::new(shape, of.form.channels_last);
    let (input, output) = (sides(of.inputs[0]), sides(of.output));
    let moves = match of.layer {
        Layer::Product => return Some(Box::new(Product { first: input, second: sides(of.inputs[1]) })),
        Layer::Select(select) => {
            Moves { first: select.first, channels: select.channels, groups: select.groups, above: 0, left: 0 }
        }
        Layer::Border(border) if !border.reflect => {
            let channels = of.inputs[0].features();
            Moves { first: 0, channels, groups: 1, above: border.before.0, left: border.before.1 }
        }
        _ => return None,
    };
    Some(Box::new(Moved { input, output, moves }))
}

/// `y = a · b`, b repeated.
struct Product {
    first: Sides,
    second: Sides,
}

impl<A: Activation> Head<A> for Product {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (a, b, y, elements) = (of.inputs[0], of.inputs[1], of.output, self.first.elements(samples));
        script.launch(&ProductForward { a, b, y, elements, first: self.first, second: self.second });
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (d_y, first, second) = (of.d_output, self.first, self.second);
        let [d_a, d_b] = [0, 1].map(|input| of.d_inputs.get(input).copied().flatten());
        if let Some((d_a, accumulate)) = d_a {
            let (b, elements) = (of.inputs[1], first.elements(samples));
            script.launch(&ProductBackwardFirst { d_y, b, d_a, elements, first, second, accumulate });
        }
        if let Some((d_b, accumulate)) = d_b {
            let (a, elements) = (of.inputs[0], second.elements(samples));
            script.launch(&ProductBackwardSecond { d_y, a, d_b, elements, first, second, accumulate });
        }
    }
}

/// Places of the input, moved.
struct Moved {
    input: Sides,
    output: Sides,
    moves: Moves,
}

impl<A: Activation> Head<A> for Moved {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let Moved { input, output, moves } = *self;
        let (x, y, elements) = (of.inputs[0], of.output, output.elements(samples));
        script.launch(&MovedForward { x, y, elements, input, output, moves });
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let Moved { input, output, moves } = *self;
        let (d_y, elements) = (of.d_output, input.elements(samples));
        script.launch(&MovedBackward { d_y, d_x, elements, input, output, moves, accumulate });
    }
}
