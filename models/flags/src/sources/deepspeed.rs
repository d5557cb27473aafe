//! DeepSpeed's JSON alone (`deepspeed/runtime/config.py`).

use lockstep_topology::InputError;

use crate::read::Read;
use crate::source::Does::Is;
use crate::source::Source;
use crate::values::Values;
use crate::zero::deepspeed;

pub(crate) const DEEPSPEED: Source = Source {
    name: "deepspeed",
    marks: &["zero_optimization.*", "train_micro_batch_size_per_gpu"],
    keys: &[&[
        ("train_micro_batch_size_per_gpu", Is("micro-batch-size")),
        ("gradient_accumulation_steps", Is("accumulate")),
    ]],
    nothing: &[&[]],
    together,
};

fn together(values: &Values, _: bool, read: &mut Read) -> Result<(), InputError> {
    // Where both are stated, they agree, or DeepSpeed refuses them.
    let batch = values.get("train_batch_size").filter(|batch| *batch != "auto");
    match (batch, read.get("micro-batch-size"), read.get("accumulate")) {
        (Some(batch), None, _) => {
            read.not_read.push(format!("train_batch_size {batch} without train_micro_batch_size_per_gpu"));
        }
        (Some(batch), Some(_), None) => read.set("global-batch-size", batch),
        _ => {}
    }
    read.set("precision", "fp32");
    deepspeed(values, "", read);
    Ok(())
}
