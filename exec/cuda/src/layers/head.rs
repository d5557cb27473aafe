//! A chain's first layer that computes, which holds what of the rest it does.

use lockstep_exec::device::{ChainLayer, Draw, output_of};
use lockstep_models::Layer;

use super::batch_norm::BatchNorm;
use super::convolution::Convolution;
use super::dense::Dense;
use super::dropout::Dropout;
use super::elementwise::{Concat, Curve, Sum};
use super::image::Image;
use super::local_response::LocalResponse;
use super::pooling::Pooling;
use super::scale::Scale;
use super::script::{Script, count};
use super::{Form, Forward, Gradients, Space, size};
use crate::table::BatchNormForward;
use crate::{Activation, View};

/// The layer with the ReLU and the pooling behind it.
pub(super) trait Head<A>: Send {
    fn forward(&self, of: &Forward<'_, A>, samples: u32, script: &mut Script<'_>);

    fn backward(&self, of: &Gradients<'_, A>, samples: u32, script: &mut Script<'_>);

    /// Learnable parameters, and running statistics.
    fn parameters(&self) -> (u64, u64) {
        (0, 0)
    }

    /// As [`super::Kernel::draw`].
    fn draw(&mut self, _: Draw, _: View<u64>) {}

    /// Whether it draws random numbers in training.
    fn draws(&self) -> bool {
        false
    }

    /// A forward pass but for the normalisation that ends it; nothing was done where that is not what ends it.
    fn begin(&self, _: &Forward<'_, A>, _: u32, _: &mut Script<'_>) -> Option<BatchNormForward<A>> {
        None
    }

    /// The sum that it is, if it is one.
    fn sum(&self) -> Option<&Sum> {
        None
    }
}

/// That of layers of which none is a view: a line for each kind that computes.
pub(super) fn made<A: Activation>(
    computing: &[&ChainLayer<'_>],
    samples: u32,
    form: Form,
    space: &mut dyn Space,
) -> Box<dyn Head<A>> {
    let Some((first, rest)) = computing.split_first() else { return Box::new(Sum { relu: false }) };
    let pool = rest.iter().find_map(|member| match member.layer {
        Layer::Pool2d(layer) => Some((layer, output_of(member))),
        _ => None,
    });
    let relu = rest.len() > usize::from(pool.is_some());
    let (inputs, input, output, last) = (first.inputs, first.inputs[0], output_of(first), form.channels_last);
    match first.layer {
        Layer::Conv2d(layer) => {
            let mut head = Convolution::new(layer, (input, output), relu, samples, form, space);
            if let Some((layer, output)) = pool {
                head.pool(layer, output, space);
            }
            Box::new(head)
        }
        Layer::Dense(layer) => Box::new(Dense::new(layer, count(size(input)), relu, form.precision, space)),
        Layer::BatchNorm(layer) => Box::new(BatchNorm::new(layer, Image::new(input, last), relu, space)),
        Layer::LocalResponseNorm(layer) => Box::new(LocalResponse::new(layer, input, last)),
        Layer::Dropout(layer) => Box::new(Dropout::new(layer.rate, count(size(input)), samples, space)),
        Layer::Pool2d(layer) => Box::new(Pooling::new(layer, (input, output), last, samples, space)),
        Layer::GlobalPool => Box::new(Pooling::global(input, last)),
        Layer::Scale(layer) => Box::new(Scale::new(layer, Image::new(input, last))),
        Layer::Sigmoid => Box::new(Curve { hyperbolic: false }),
        Layer::Tanh => Box::new(Curve { hyperbolic: true }),
        Layer::Gelu => Box::new(super::gelu::Gelu),
        Layer::Concat if last => {
            let sizes = inputs.iter().map(|input| input.channels.into()).collect();
            Box::new(Concat { sizes, rows: Image::new(input, last).plane() })
        }
        Layer::Concat => Box::new(Concat { sizes: inputs.iter().copied().map(size).collect(), rows: 1 }),
        Layer::Relu => Box::new(Sum { relu: true }),
        Layer::Add | Layer::Gather(_) => Box::new(Sum { relu }),
        other => panic!("{} computes nothing", other.kind()),
    }
}
