//! DeepSpeed's JSON alone (`deepspeed/runtime/config.py`).

use lockstep_topology::InputError;

use crate::hugging_face::deepspeed;
use crate::read::Read;
use crate::source::Does::{Is, Together};
use crate::source::Source;
use crate::values::Values;

pub(crate) const DEEPSPEED: Source = Source {
    name: "deepspeed",
    marks: &["zero_optimization.*", "train_micro_batch_size_per_gpu"],
    keys: &[
        ("train_micro_batch_size_per_gpu", Is("micro-batch-size")),
        ("gradient_accumulation_steps", Is("accumulate")),
        ("*", Together),
    ],
    together,
};

fn together(values: &Values, _: bool, read: &mut Read) -> Result<(), InputError> {
    let accumulates = values.get("gradient_accumulation_steps").is_some();
    if let Some(batch) = values.get("train_batch_size").filter(|_| !accumulates) {
        read.set("global-batch-size", batch);
    }
    read.set("precision", "fp32");
    deepspeed(values, "", read);
    Ok(())
}
