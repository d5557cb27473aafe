//! accelerate's `default_config.yaml`.

use lockstep_topology::InputError;

use crate::hugging_face::{deepspeed, fsdp};
use crate::read::Read;
use crate::source::Does::{Nothing, NothingIf, Together};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const ACCELERATE: Source = Source {
    name: "accelerate",
    marks: &["distributed_type", "compute_environment"],
    keys: &[
        ("distributed_type", Together),
        ("mixed_precision", Together),
        ("compute_environment", Nothing),
        ("debug", Nothing),
        ("num_machines", Nothing),
        ("num_processes", Nothing),
        ("machine_rank", Nothing),
        ("main_*", Nothing),
        ("rdzv_backend", Nothing),
        ("same_network", Nothing),
        ("gpu_ids", Nothing),
        ("enable_cpu_affinity", Nothing),
        ("tpu_*", Nothing),
        ("use_cpu", NothingIf(&[])),
        ("downcast_bf16", NothingIf(&["no"])),
        ("dynamo_config.*", NothingIf(&["NO", "no"])),
        ("fsdp_config.fsdp_sharding_strategy", Together),
        ("fsdp_config.fsdp_reshard_after_forward", Together),
        ("fsdp_config.fsdp_activation_checkpointing", Together),
        ("fsdp_config.fsdp_auto_wrap_policy", NothingIf(&["TRANSFORMER_BASED_WRAP"])),
        ("fsdp_config.fsdp_backward_prefetch*", NothingIf(&["BACKWARD_PRE"])),
        ("fsdp_config.fsdp_offload_params", NothingIf(&[])),
        ("fsdp_config.fsdp_*", Nothing),
        ("deepspeed_config.zero_stage", Together),
        ("deepspeed_config.offload_optimizer_device", Together),
        ("deepspeed_config.offload_param_device", NothingIf(&["none"])),
        ("deepspeed_config.gradient_accumulation_steps", Together),
        ("deepspeed_config.gradient_clipping", Nothing),
        ("deepspeed_config.zero3_*", Nothing),
        ("deepspeed_config.deepspeed_multinode_launcher", Nothing),
        ("deepspeed.*", Together),
    ],
    together,
};

fn together(values: &Values, _: bool, read: &mut Read) -> Result<(), InputError> {
    match values.get("mixed_precision") {
        None | Some("no" | "false") => read.set("precision", "fp32"),
        Some("bf16") => read.set("precision", "bf16"),
        Some("fp16") => read.set("precision", "fp16"),
        Some("fp8") => read.set("precision", "fp8"),
        Some(other) => read.not_read.push(shown("mixed_precision", other)),
    }
    match values.get("distributed_type") {
        None | Some("NO" | "MULTI_GPU" | "no" | "false") => {
            read.set("stack", "trl");
            read.set("strategy", "ddp");
        }
        Some("FSDP") => {
            read.set("stack", "trl");
            match values.get("fsdp_config.fsdp_sharding_strategy") {
                Some(words) => fsdp(words, read),
                // FSDP2 has a switch in its place.
                None if values.get("fsdp_config.fsdp_reshard_after_forward") == Some("false") => {
                    read.not_read.push("fsdp_reshard_after_forward false".to_owned());
                }
                None => read.set("strategy", "fsdp"),
            }
            let again = values.is_on("fsdp_config.fsdp_activation_checkpointing");
            read.set_if(again, "recompute", "full");
        }
        Some("DEEPSPEED") => {
            read.set("stack", "deepspeed");
            match values.get("deepspeed_config.zero_stage") {
                Some("0") | None => read.set("strategy", "ddp"),
                Some(stage) => read.set("strategy", format!("zero-{stage}")),
            }
            let device = values.get("deepspeed_config.offload_optimizer_device");
            read.set_if(device.is_some_and(|device| device != "none"), "offload-optimizer", "");
            if let Some(steps) = values.get("deepspeed_config.gradient_accumulation_steps") {
                read.set("accumulate", steps);
            }
            if values.iter().any(|(key, _)| key.starts_with("deepspeed.")) {
                deepspeed(values, "deepspeed.", read);
            }
        }
        Some(other) => read.not_read.push(shown("distributed_type", other)),
    }
    Ok(())
}
