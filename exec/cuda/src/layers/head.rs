//! A chain's first layer that computes, which holds what of the rest it does.

use lockstep_exec::device::{ChainLayer, output_of};
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
use crate::Activation;

/// The layer with the ReLU and the pooling behind it.
pub(super) enum Head<A> {
    Convolution(Box<Convolution<A>>),
    Dense(Dense<A>),
    BatchNorm(BatchNorm),
    Pooling(Pooling),
    LocalResponse(LocalResponse),
    Dropout(Box<Dropout>),
    Curve(Curve),
    Scale(Scale),
    Sum(Sum),
    Concat(Concat),
}

impl<A: Activation> Head<A> {
    /// That of layers of which none is a flattening.
    pub(super) fn new(computing: &[&ChainLayer<'_>], samples: u32, form: Form, space: &mut dyn Space) -> Head<A> {
        let Some((first, rest)) = computing.split_first() else { return Head::Sum(Sum { relu: false }) };
        let relu = rest.iter().any(|member| *member.layer == Layer::Relu);
        let (inputs, output, last) = (first.inputs, output_of(first), form.channels_last);
        match (first.layer, inputs) {
            (Layer::Conv2d(layer), [input, ..]) => {
                let mut head = Convolution::new(layer, (*input, output), relu, samples, form, space);
                if let Some((pool, Layer::Pool2d(layer))) = rest.last().map(|member| (member, member.layer)) {
                    head.pool(layer, output_of(pool), space);
                }
                Head::Convolution(Box::new(head))
            }
            (Layer::Dense(layer), [input, ..]) => {
                Head::Dense(Dense::new(layer, count(size(*input)), relu, form.precision, space))
            }
            (Layer::BatchNorm(layer), [input, ..]) => {
                Head::BatchNorm(BatchNorm::new(layer, Image::new(*input, last), relu, space))
            }
            (Layer::LocalResponseNorm(layer), [input, ..]) => {
                Head::LocalResponse(LocalResponse::new(layer, *input, last))
            }
            (Layer::Dropout(layer), [input, ..]) => {
                Head::Dropout(Box::new(Dropout::new(layer.rate, count(size(*input)), samples, space)))
            }
            (Layer::Pool2d(layer), [input, ..]) => {
                Head::Pooling(Pooling::new(layer, (*input, output), last, samples, space))
            }
            (Layer::GlobalPool, [input, ..]) => Head::Pooling(Pooling::global(*input, last)),
            (Layer::Scale(layer), [input, ..]) => Head::Scale(Scale::new(layer, Image::new(*input, last))),
            (Layer::Sigmoid, _) => Head::Curve(Curve { hyperbolic: false }),
            (Layer::Tanh, _) => Head::Curve(Curve { hyperbolic: true }),
            (Layer::Concat, [input, ..]) if last => {
                let sizes = inputs.iter().map(|input| input.channels.into()).collect();
                Head::Concat(Concat { sizes, rows: Image::new(*input, last).plane() })
            }
            (Layer::Concat, _) => Head::Concat(Concat { sizes: inputs.iter().copied().map(size).collect(), rows: 1 }),
            (layer, _) => Head::Sum(Sum { relu: relu || *layer == Layer::Relu }),
        }
    }

    pub(super) fn forward(&self, of: &Forward<'_, A>, samples: u32, script: &mut Script<'_>) {
        match self {
            Head::Convolution(head) => head.forward(of, samples, script),
            Head::Dense(head) => head.forward(of, samples, script),
            Head::BatchNorm(head) => head.forward(of, samples, script),
            Head::Pooling(head) => head.forward(of, samples, script),
            Head::LocalResponse(head) => head.forward(of, script),
            Head::Dropout(head) => head.forward(of, samples, script),
            Head::Curve(head) => head.forward(of, script),
            Head::Scale(head) => head.forward(of, samples, script),
            Head::Sum(head) => head.forward(of, script),
            Head::Concat(head) => head.forward(of, samples, script),
        }
    }

    pub(super) fn backward(&self, of: &Gradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        match self {
            Head::Convolution(head) => head.backward(of, samples, script),
            Head::Dense(head) => head.backward(of, samples, script),
            Head::BatchNorm(head) => head.backward(of, samples, script),
            Head::Pooling(head) => head.backward(of, samples, script),
            Head::LocalResponse(head) => head.backward(of, script),
            Head::Dropout(head) => head.backward(of, samples, script),
            Head::Curve(head) => head.backward(of, script),
            Head::Scale(head) => head.backward(of, samples, script),
            Head::Sum(head) => head.backward(of, script),
            Head::Concat(head) => head.backward(of, samples, script),
        }
    }

    /// Learnable parameters, and running statistics.
    pub(super) fn parameters(&self) -> (u64, u64) {
        match self {
            Head::Convolution(head) => (head.parameters(), 0),
            Head::Dense(head) => (head.parameters(), 0),
            Head::BatchNorm(head) => (head.parameters(), head.parameters()),
            Head::Scale(head) => (head.parameters(), 0),
            _ => (0, 0),
        }
    }
}
