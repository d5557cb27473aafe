//! Lowers a fused chain of layers to lists of commands for a GPU: pure data, made without a GPU.
//!
//! [`ChainKernel`] is the counterpart of the CPU's kernel: it accepts the same chains, and its passes compute the same
//! values within rounding. State kept from a forward to a backward pass (places of maxima, a dropout's mask, a batch's
//! statistics) has memory of its own, allocated once from an [`Allocator`]; temporaries of a pass are in scratch, which all
//! kernels of a stream share.
//!
//! ```
//! use lockstep_exec::device::cpu::{ChainLayer, Mode};
//! use lockstep_cuda::layers::{ChainKernel, ForwardPass, PassGradients, Allocator, TensorForm};
//! use lockstep_cuda::{Command, View, ViewMut};
//! use lockstep_models::{Dense, Layer, Shape};
//!
//! struct Bump(u64);
//! impl Allocator for Bump {
//!     fn take(&mut self, bytes: u64) -> u64 {
//!         let address = self.0;
//!         self.0 += bytes.next_multiple_of(256);
//!         address
//!     }
//! }
//!
//! // Two samples of three features, a dense layer to four with a ReLU.
//! let dense = Layer::Dense(Dense { out_features: 4, bias: true });
//! let (three, four) = ([Shape::flat(3)], [Shape::flat(4)]);
//! let chain = [ChainLayer { layer: &dense, inputs: &three }, ChainLayer { layer: &Layer::Relu, inputs: &four }];
//! let kernel = ChainKernel::<f32>::new(&chain, 2, TensorForm::default(), &mut Bump(0x10_0000));
//! let (x, w, y, d_y) = (View::new(0x1000, 6), View::new(0x2000, 16), ViewMut::new(0x3000, 8), View::new(0x4000, 8));
//! let mut commands = Vec::new();
//! let (mode, statistics) = (Mode::Train, ViewMut::new(0, 0));
//! kernel.forward(&ForwardPass { mode, inputs: &[x], parameters: w, statistics, output: y }, 0x9000, &mut commands);
//! // cuBLASLt adds the bias and rectifies.
//! assert!(matches!(&commands[..], [Command::Multiply(product)] if product.rectified && product.a == 0x1000));
//! let d_parameters = Some((ViewMut::new(0x5000, 16), false));
//! let (inputs, output) = (&[x], y.view());
//! let of = PassGradients { inputs, output, parameters: w, d_output: d_y, d_inputs: &[None], d_parameters };
//! kernel.backward(&of, 0x9000, &mut commands);
//! assert_eq!(commands.len(), 5); // the ReLU, dW, two kernels for the bias
//! ```

mod curve;
mod gradients;
mod head;
mod image;
mod joining;
mod kernel;
mod loss;
mod pass;
mod script;
mod transposition;
mod weights;

use super::Activation;
use super::kernel::KernelEntry;
use head::{Head, Wanted};

pub use joining::Pending;
pub use kernel::ChainKernel;
pub use loss::CrossEntropyKernels;
pub use pass::{Allocator, ForwardPass, PassGradients, TensorForm};
pub use transposition::arrange;

/// Declares the modules of layers, each with a function that makes its head and with its own kernels.
macro_rules! layers {
    ($($layer:ident)*) => {
        $(mod $layer;)*

        /// The layers' own kernels, as structs of their arguments.
        pub mod kernels {
            $(
                #[allow(unused_imports, unreachable_pub, reason = "a layer may have none")]
                pub use super::$layer::*;
            )*
        }

        /// These kernels, each for all its scalars.
        pub(super) fn entries() -> Vec<KernelEntry> {
            [$($layer::entries()),*].concat()
        }

        /// The head of the layer; `None` where no file makes one.
        fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
            None$(.or_else(|| $layer::made(of)))*
        }
    };
}

// One file per layer in the folder beside; adding one needs only its line. `cargo fmt` does not see them,
// `bash tests/run format` does.
layers! {
    batch_norm
    bias
    concat
    convolution
    dense
    dropout
    exact_gelu
    gelu
    group_norm
    hard_sigmoid
    hard_swish
    layer_norm
    local_response
    pooling
    product
    relu6
    resampling
    response_norm
    scale
    sigmoid
    silu
    softmax
    square
    straight
    sum
    tanh
}
