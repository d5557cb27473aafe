//! Lists the frameworks: one file and one line here each.

mod accelerate;
mod axolotl;
mod deepspeed;
mod llama_factory;
mod megatron;
mod torchtitan;
mod trainer;

use crate::source::Source;

/// Megatron-LM's arguments.
pub(crate) use megatron::MEGATRON;

/// All of them; a file is of the first whose keys it has.
pub(crate) const SOURCES: &[&Source] = &[
    &MEGATRON,
    &torchtitan::TORCHTITAN,
    &axolotl::AXOLOTL,
    &llama_factory::LLAMA_FACTORY,
    &accelerate::ACCELERATE,
    &trainer::TRAINER,
    &deepspeed::DEEPSPEED,
];
