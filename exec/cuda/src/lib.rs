//! Implements NVIDIA GPUs as devices of ranks: the project's own kernels in CUDA C, lists of commands for layers, and
//! the libraries that execute them.
//!
//! [`Gpus`] are the devices of a run; `rank` implements the device of one rank, in fp32, TF32 or bf16
//! ([`Precision`](lockstep_models::Precision)). [`layers`] lowers a chain's passes to lists of [`Command`]s without a
//! GPU, and [`driver`] executes such lists on one with NVIDIA's libraries, which [`probe`] finds or reports as missing.
//! The folder `kernels` holds the sources, which NVRTC compiles at run time; kernels on activations are compiled once
//! per [`Scalar`]. [`table`] and the layers' files have a struct for each kernel whose fields are its arguments;
//! [`KernelLaunch::call`] makes the launch, and checks that each tensor is as long as the kernel expects. Convolutions and
//! dense layers have no kernels here: cuDNN and cuBLASLt provide them.
//!
//! ```
//! use lockstep_cuda::table::Add;
//! use lockstep_cuda::{KernelLaunch, View, ViewMut};
//!
//! // Three tensors of 1,000 elements, at addresses that a device's allocator gave.
//! let (a, b, y) = (View::<f32>::new(0x1000, 1000), View::new(0x2000, 1000), ViewMut::new(0x3000, 1000));
//! let call = Add { a, b, y, elements: 1000, rectified: true }.call();
//! assert_eq!(call.entry.function, "add_f32");
//! assert_eq!((call.geometry.blocks, call.geometry.threads), (1, 256)); // 250 groups of four, and one for an odd beginning
//! ```

mod argument;
mod command;
pub mod driver;
mod geometry;
mod kernel;
pub mod layers;
mod libraries;
mod nvrtc;
mod pictures;
mod probe;
mod program;
mod rank;
mod rates;
pub mod table;

pub use argument::{Activation, Argument, Bf16, Element, Scalar, TensorArgument, ToArgument, View, ViewMut};
pub use command::{Command, Convolution, ConvolutionPass, Convolve, Multiply};
pub use geometry::{BLOCK, BlockParts, Geometry, WARP};
pub use kernel::{KernelCall, KernelEntry, KernelLaunch, SourceUnit};
pub use libraries::{LibraryFolders, LoadedLibrary, Missing, NvidiaLibrary};
pub use nvrtc::{CompileError, Nvrtc};
pub use pictures::{picture_word_count, picture_words};
pub use probe::{Gpu, Machine, Unavailable, probe};
pub use program::PRELUDE;
pub use rank::{Direct, GpuSums, Gpus};
pub use rates::{Rates, Way, free_memory, rates};
