//! What other frameworks keep in a GPU's memory while they train a decoder: the layout, the stack, the account of each rank, the boards.
//!
//! The executor of this project has a plan of its own (`lockstep_models::memory`); this account is that of PyTorch's programs.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod account;
mod boards;
mod buckets;
mod decoder;
mod fit;
mod layout;
mod lora;
mod numbers;
mod part;
mod saved;
mod stack;
#[cfg(test)]
mod tests;

pub use account::{Account, Moment, RankAccount};
pub use boards::{BOARDS, Board, Gpus};
pub use buckets::{Buckets, Elements};
pub use decoder::Decoder;
pub use fit::{Advice, Setting, Wanted, advice, find};
pub use layout::{AttentionKernel, ContextExchange, Layout, Loss, Sharding};
pub use lora::{Lora, Target};
pub use numbers::{Optimizer, Precision, Quantization};
pub use part::{Live, Part};
pub use saved::{Activations, Saved};
pub use stack::{Choices, Feature, GIB, Head, Holding, Kept, STACKS, Stack, States, stack};
