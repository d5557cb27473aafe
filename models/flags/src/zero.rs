//! DeepSpeed's configuration, alone or beside a trainer's: ZeRO's stage, formats, sizes of buffers.

use std::path::Path;

use lockstep_topology::InputError;

use crate::optimizer::optimizer;
use crate::read::Read;
use crate::source::{Nothing, shown};
use crate::values::{Values, is_off};

/// Adds DeepSpeed's configuration behind `deepspeed.`: the mapping that is there, or the file that is named.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn add_deepspeed(values: &mut Values, beside: &Path) -> Result<(), InputError> {
    for key in ["deepspeed", "deepspeed_config.deepspeed_config_file"] {
        let Some(name) = values.remove(key).filter(|name| !is_off(name)) else { continue };
        let near = beside.parent().unwrap_or(Path::new("")).join(&name);
        let file = if near.is_file() { near } else { name.into() };
        values.add("deepspeed.", &Values::of_file(&file)?);
    }
    Ok(())
}

/// Starts of DeepSpeed's keys that change neither memory nor time.
const NOTHING: Nothing = &[
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "zero_allow_untested_optimizer",
    "prescale_gradients",
    "scheduler.",
    "optimizer.params.lr",
    "optimizer.params.betas",
    "optimizer.params.eps",
    "optimizer.params.weight_decay",
    "optimizer.params.bias_correction",
    "optimizer.params.adam_w_mode",
    "optimizer.params.torch_adam",
    "tensorboard.",
    "wandb.",
    "csv_monitor.",
    "flops_profiler.",
    "comms_logger.",
    "fp16.enabled",
    "fp16.check_grad_overflow",
    "fp16.loss_scale",
    "fp16.initial_scale_power",
    "fp16.hysteresis",
    "fp16.consecutive_hysteresis",
    "fp16.min_loss_scale",
    "bf16.enabled",
    "bf16.check_grad_overflow",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.offload_optimizer.pin_memory",
];

/// Sizes of its buffers, each with the lowest stage that has it.
pub(crate) const SIZES: [(&str, u32); 3] =
    [("reduce-bucket-size", 0), ("stage3-prefetch-bucket-size", 3), ("stage3-max-live-parameters", 3)];

/// What else it says of buffers, which are counted with DeepSpeed's defaults.
const BUFFERS: &[&str] = &[
    "zero_optimization.overlap_comm",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.allgather_partitions",
    "zero_optimization.reduce_scatter",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.sub_group_size",
];

/// Reads DeepSpeed's keys that stand beside a trainer's, which state the step.
pub(crate) fn deepspeed_beside(values: &Values, read: &mut Read) {
    if !values.iter().any(|(key, _)| key.starts_with("deepspeed.")) {
        return;
    }
    for (key, ours) in
        [("train_micro_batch_size_per_gpu", "micro-batch-size"), ("gradient_accumulation_steps", "accumulate")]
    {
        let stated = values.get(&format!("deepspeed.{key}")).filter(|value| *value != "auto");
        match (stated, read.get(ours)) {
            (Some(value), None) => read.set(ours, value),
            (Some(value), Some(other)) if value != other => {
                read.not_read.push(shown(&format!("deepspeed.{key}"), value));
            }
            _ => {}
        }
    }
    // The trainer's batch and ranks make it.
    values.get("deepspeed.train_batch_size");
    deepspeed(values, "deepspeed.", read);
}

/// Reads DeepSpeed's other keys behind `prefix`.
pub(crate) fn deepspeed(values: &Values, prefix: &str, read: &mut Read) {
    let of = |key: &str| values.get(&format!("{prefix}{key}")).filter(|value| *value != "auto");
    let on = |key: &str| of(key).is_some_and(|value| !is_off(value));
    read.set("stack", "deepspeed");
    match of("zero_optimization.stage") {
        None | Some("0") => read.set("strategy", "ddp"),
        Some(stage) => read.set("strategy", format!("zero-{stage}")),
    }
    let stage: u32 = of("zero_optimization.stage").and_then(|stage| stage.parse().ok()).unwrap_or(0);
    for (flag, from) in SIZES {
        let key = format!("{prefix}zero_optimization.{}", flag.replace('-', "_"));
        match values.get(&key) {
            Some(size) if stage >= from => read.set(flag, size),
            Some(size) => read.nothing.push(shown(&key, size)),
            None => {}
        }
    }
    read.set_if(on("zero_optimization.offload_optimizer.device"), "offload-optimizer", "");
    read.set_if(on("bf16.enabled"), "precision", "bf16");
    read.set_if(on("fp16.enabled"), "precision", "fp16");
    if let Some(name) = of("optimizer.type") {
        optimizer(name, read);
        let keeps = of("optimizer.params.momentum").is_some_and(|rate| rate.parse() != Ok(0.0f64));
        read.set_if(keeps && read.get("optimizer") == Some("sgd"), "optimizer", "momentum");
    }
    for (whole, value) in values.unread() {
        let Some(key) = whole.strip_prefix(prefix) else { continue };
        let list = match () {
            () if NOTHING.iter().any(|start| key.starts_with(start)) => &mut read.nothing,
            () if BUFFERS.contains(&key) => &mut read.not_counted,
            () if value == "auto" => &mut read.assumed,
            () => continue,
        };
        list.push(shown(whole, value));
        values.mark(whole);
    }
}
