//! accelerate's `default_config.yaml`.

use lockstep_topology::InputError;

use crate::hugging_face::{FSDP_NOTHING, fsdp_config};
use crate::read::Read;
use crate::source::Does::{NothingIf, Off};
use crate::source::{Source, shown};
use crate::values::Values;
use crate::zero::deepspeed_beside;

pub(crate) const ACCELERATE: Source = Source {
    name: "accelerate",
    marks: &["distributed_type", "compute_environment"],
    keys: &[&[
        ("use_cpu", Off),
        ("downcast_bf16", NothingIf(&["no"])),
        ("dynamo_config.*", NothingIf(&["NO", "no"])),
        ("deepspeed_config.offload_param_device", NothingIf(&["none"])),
    ]],
    nothing: &[
        FSDP_NOTHING,
        &[
            "compute_environment",
            "debug",
            "num_machines",
            "num_processes",
            "machine_rank",
            "main_*",
            "rdzv_backend",
            "same_network",
            "gpu_ids",
            "enable_cpu_affinity",
            "tpu_*",
            "deepspeed_config.gradient_clipping",
            "deepspeed_config.zero3_*",
            "deepspeed_config.deepspeed_multinode_launcher",
        ],
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
    read.set("stack", "trl");
    read.set("strategy", "ddp");
    match values.get("distributed_type") {
        None | Some("NO" | "MULTI_GPU" | "no" | "false") => {}
        Some("FSDP") => {
            read.set("strategy", "fsdp");
            fsdp_config(values, read);
        }
        Some("DEEPSPEED") => {
            read.set("stack", "deepspeed");
            let of = |key: &str| values.get(&format!("deepspeed_config.{key}"));
            let is_file = values.iter().any(|(key, _)| key.starts_with("deepspeed."));
            match of("zero_stage") {
                Some("0") => {}
                Some(stage) => read.set("strategy", format!("zero-{stage}")),
                None if is_file => {}
                None => read.assume("strategy", "zero-2"),
            }
            let offloads = of("offload_optimizer_device").is_some_and(|device| device != "none");
            read.set_if(offloads, "offload-optimizer", "");
            if let Some(steps) = of("gradient_accumulation_steps") {
                read.set("accumulate", steps);
            }
            deepspeed_beside(values, read);
        }
        Some(other) => read.not_read.push(shown("distributed_type", other)),
    }
    Ok(())
}
