//! Runs chains of layers as lists of commands on the emulator and compares them with the CPU device.
//!
//! Whole numbers must give the CPU's values exactly, whatever the precision of products, since all of their sums fit
//! bf16; others must agree within 1e-5 of the magnitude of the terms. Scratch and dead memory hold NaN.

mod case;
mod chains;
mod joined;
mod laying;
mod libraries;
mod losses;
mod on_cpu;
mod rounding;

use std::cell::RefCell;

use lockstep_cuda::Bf16;
use lockstep_cuda::layers::{Allocator, TensorForm};
use lockstep_exec::device::cpu::Mode;
use proptest::prelude::*;

use crate::emulator::Emulator;
use crate::memory::Memory;
use crate::{Theme, property};
use case::Case;
use chains::Chain;
use joined::{Joined, Target};
use lockstep_models::{Precision, Shape};

/// Convolutions and dense layers, in all precisions.
pub(crate) const PRODUCTS: Theme = Theme {
    kernels: &[
        "channel_gradients",
        "channel_gradients_finish",
        "column_gradients",
        "max_pool_backward",
        "max_pool_forward",
        "move_rows",
        "permute",
        "relu_backward",
        "relu_forward",
    ],
    play: products,
};

/// All others, and the losses.
pub(crate) const OTHERS: Theme = Theme {
    kernels: &[
        "add",
        "batch_norm_backward",
        "batch_norm_forward",
        "batch_norm_inverses",
        "batch_norm_moments",
        "batch_norm_statistics",
        "channel_affine",
        "channel_gradients",
        "channel_gradients_finish",
        "column_moments",
        "column_gradients",
        "dropout_backward",
        "dropout_forward",
        "gelu_backward",
        "gelu_forward",
        "sigmoid_backward",
        "sigmoid_forward",
        "silu_backward",
        "silu_forward",
        "tanh_backward",
        "tanh_forward",
        "global_pool_backward",
        "global_pool_forward",
        "local_response_backward",
        "local_response_forward",
        "local_response_ratios",
        "logistic_forward",
        "loss_backward",
        "loss_totals",
        "max_pool_backward",
        "max_pool_forward",
        "mean_pool_backward",
        "mean_pool_forward",
        "move_rows",
        "permute",
        "relu_backward",
        "relu_forward",
        "softmax_forward",
        "exact_gelu_backward",
        "exact_gelu_forward",
        "hard_sigmoid_backward",
        "hard_sigmoid_forward",
        "hard_swish_backward",
        "hard_swish_forward",
        "layer_norm_backward",
        "layer_norm_forward",
        "layer_norm_parameters",
        "moved_backward",
        "moved_forward",
        "product_backward_first",
        "product_backward_second",
        "product_forward",
        "relu6_backward",
        "relu6_forward",
        "straight_backward",
        "straight_forward",
        "blur_backward",
        "blur_forward",
        "group_norm_backward",
        "group_norm_forward",
        "group_norm_parameters",
        "reflected_backward",
        "reflected_forward",
        "resize_backward",
        "resize_forward",
        "response_backward",
        "response_forward",
        "response_means",
        "response_norms",
        "response_parameters",
        "response_shares",
        "response_gradients",
        "softmax_sets_backward",
        "softmax_sets_forward",
        "square_backward",
        "square_forward",
    ],
    play: others,
};

/// Allocates the layers' own tensors in the emulator's memory.
struct Own<'a>(&'a mut Memory);

impl Allocator for Own<'_> {
    fn take(&mut self, bytes: u64) -> u64 {
        self.0.room(bytes)
    }
}

/// Trains one case of a strategy with the gradients of all inputs.
fn agree_once(emulator: &RefCell<Emulator>, chains: impl Strategy<Value = Chain>) {
    property((chains, any_form()), 1, |(chain, form), memory| {
        let (whole, spare, place, batch) = (false, 0, None, None);
        let case = Case { chain, form, whole, spare, place, batch, all_wanted: true };
        case.agrees(&mut emulator.borrow_mut(), memory);
    });
}

fn any_form() -> impl Strategy<Value = TensorForm> {
    let precision = prop_oneof![Just(Precision::F32), Just(Precision::Tf32), Just(Precision::Bf16)];
    (precision, any::<bool>()).prop_map(|(precision, channels_last)| TensorForm { precision, channels_last })
}

/// Runs cases of a strategy; `whole` ones have small whole numbers in their tensors.
fn agree(emulator: &RefCell<Emulator>, cases: u32, chains: impl Strategy<Value = Chain>, products: bool) {
    let rest = (0..3u32, any::<bool>(), proptest::option::of(0..2usize), 0..5u32, proptest::option::of(0..3u32));
    property((chains, any_form(), rest), cases, |(chain, form, (spare, whole, place, mode, batch)), memory| {
        let whole = products && (whole || form.precision != Precision::F32);
        let batch = batch.filter(|_| mode == 0);
        let case = Case { chain, form, whole, spare, place, batch, all_wanted: false };
        case.agrees(&mut emulator.borrow_mut(), memory);
    });
}

fn products(emulator: &RefCell<Emulator>) {
    agree(emulator, 40, chains::convolutions(), true);
    agree(emulator, 25, chains::dense(), true);
    property((chains::convolutions(), any::<bool>()), 10, |(chain, last), memory| {
        rounding::is_bounded(&mut emulator.borrow_mut(), memory, chain, last);
    });
    property(chains::dense(), 10, |chain, memory| {
        rounding::is_bounded(&mut emulator.borrow_mut(), memory, chain, false);
    });
}

fn others(emulator: &RefCell<Emulator>) {
    // Each kind, with and without its option, so that every kernel runs whatever the seed.
    for kind in 0..chains::NORMS {
        agree_once(emulator, chains::norms(Just(kind)));
    }
    agree(emulator, 20, chains::norms(0..chains::NORMS), false);
    for (kind, option) in (0..chains::KINDS).flat_map(|kind| [(kind, false), (kind, true)]) {
        agree_once(emulator, chains::others(Just(kind), Just(option)));
    }
    agree(emulator, 150, chains::others(0..chains::KINDS, any::<bool>()), false);
    agree(emulator, 25, chains::pools(), false);
    let place = prop::sample::select(vec![Target::Own, Target::Normalised, Target::Addend, Target::Input]);
    let mode = prop_oneof![Just(Mode::Train), Just(Mode::Evaluate)];
    let sizes = (1..4u32, 1..9u32, 2..6u32, 1..6u32);
    property(
        (sizes, place, mode, any::<[bool; 4]>()),
        25,
        |((samples, channels, height, width), place, mode, flags), memory| {
            let [relu, second, channels_last, halves] = flags;
            let shape = Shape::of_image(channels, height, width);
            let precision = if halves { Precision::Bf16 } else { Precision::F32 };
            let form = TensorForm { precision, channels_last };
            let joined = Joined { samples, shape, relu, place, second, mode, form };
            match halves {
                true => joined.agrees::<Bf16>(&mut emulator.borrow_mut(), memory),
                false => joined.agrees::<f32>(&mut emulator.borrow_mut(), memory),
            }
            match halves {
                true => joined.is_refused::<Bf16>(memory),
                false => joined.is_refused::<f32>(memory),
            }
        },
    );
    let sizes = (1..20u32, 1..60u32, 0..3u32, any::<[bool; 2]>());
    property(sizes, 20, |(samples, classes, spare, flags), memory| {
        losses::agree(&mut emulator.borrow_mut(), memory, samples, classes, spare, flags);
    });
}
