//! axolotl's YAML.

use lockstep_topology::InputError;

use crate::hugging_face::{adapters, deepspeed, drop_nothing, fsdp, model, optimizer, precision};
use crate::read::Read;
use crate::source::Does::{Is, Nothing, NothingIf, Together};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const AXOLOTL: Source = Source {
    name: "axolotl",
    marks: &["base_model", "sequence_len"],
    keys: &[
        ("base_model", Together),
        ("base_model_config", Nothing),
        ("model_type", Nothing),
        ("tokenizer_*", Nothing),
        ("sequence_len", Is("seq-length")),
        ("micro_batch_size", Is("micro-batch-size")),
        ("gradient_accumulation_steps", Is("accumulate")),
        ("tensor_parallel_size", Is("tp")),
        ("context_parallel_size", Is("cp")),
        ("sequence_parallel_degree", Is("cp")),
        ("adapter", Together),
        ("lora_r", Together),
        ("lora_alpha", Nothing),
        ("lora_dropout", Together),
        ("lora_target_modules", Together),
        ("lora_target_linear", Together),
        ("lora_fan_in_fan_out", Nothing),
        ("lora_model_dir", Nothing),
        ("load_in_8bit", Together),
        ("load_in_4bit", Together),
        ("bf16", Together),
        ("fp16", Together),
        ("float16", Together),
        ("tf32", Nothing),
        ("optimizer", Together),
        ("gradient_checkpointing", Together),
        ("flash_attention", Together),
        ("sdp_attention", Together),
        ("eager_attention", Together),
        ("deepspeed.*", Together),
        ("fsdp", Together),
        ("fsdp_version", Nothing),
        ("fsdp_config.*", Together),
        ("plugins", NothingIf(&["axolotl.integrations.liger.LigerPlugin"])),
        ("liger_fused_linear_cross_entropy", Together),
        ("liger_rms_norm", NothingIf(&[])),
        ("sample_packing", Nothing),
        ("eval_sample_packing", Nothing),
        ("pad_to_sequence_len", Nothing),
        ("train_on_inputs", Nothing),
        ("group_by_length", Nothing),
        ("val_set_size", Nothing),
        ("chat_template*", Nothing),
        ("special_tokens*", Nothing),
        ("tokens", Nothing),
        ("wandb_*", Nothing),
        ("mlflow_*", Nothing),
        ("strict", Nothing),
        ("early_stopping_patience", Nothing),
        ("debug", Nothing),
        ("lr_*", Nothing),
        ("cosine_*", Nothing),
        ("auto_resume_from_checkpoints", Nothing),
        ("local_rank", Nothing),
        ("shuffle_merged_datasets", Nothing),
    ],
    together,
};

fn together(values: &Values, has_model: bool, read: &mut Read) -> Result<(), InputError> {
    drop_nothing(read);
    let on = |key: &str| values.is_on(key);
    read.set("stack", "trl");
    read.set("strategy", "ddp");
    model(values, &["base_model"], has_model, read)?;
    precision(values, read);
    optimizer(values.get("optimizer").unwrap_or("adamw_torch"), read);
    read.set_if(on("gradient_checkpointing"), "recompute", "full");
    // Without flash or SDP attention, its models take transformers' default, which is SDP.
    read.set_if(on("eager_attention"), "attention", "unfused");
    read.set_if(on("liger_fused_linear_cross_entropy"), "loss", "chunked");
    if let Some(words) = values.get("fsdp") {
        fsdp(words, read);
    } else if values.iter().any(|(key, _)| key.starts_with("fsdp_config.")) {
        read.set("strategy", "fsdp");
    }
    for key in ["fsdp_config.fsdp_offload_params", "fsdp_config.offload_params"] {
        if on(key) {
            read.not_read.push(shown(key, "true"));
        }
    }
    if values.iter().any(|(key, _)| key.starts_with("deepspeed.")) {
        deepspeed(values, "deepspeed.", read);
    }
    match values.get("adapter") {
        None => {}
        Some("lora" | "qlora") => {
            let all = if on("lora_target_linear") { "all" } else { "q_proj,v_proj" };
            let targets = values.get("lora_target_modules").unwrap_or(all);
            adapters(values.get("lora_r").unwrap_or("8"), targets, values.get("lora_dropout"), read);
        }
        Some(other) => read.not_read.push(shown("adapter", other)),
    }
    read.set_if(on("load_in_8bit"), "quantize", "int8");
    read.set_if(on("load_in_4bit") || values.get("adapter") == Some("qlora"), "quantize", "nf4-dq");
    Ok(())
}
