//! axolotl's YAML.

use lockstep_topology::InputError;

use crate::hugging_face::{
    FSDP_NOTHING, NOTHING, adapters, attention, bf16_by_default, checkpointing, fsdp, fsdp_config, training,
};
use crate::read::Read;
use crate::source::Does::{Is, Model, NotCounted};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const AXOLOTL: Source = Source {
    name: "axolotl",
    marks: &["base_model", "sequence_len"],
    keys: &[&[
        ("base_model", Model),
        ("sequence_len", Is("seq-length")),
        ("micro_batch_size", Is("micro-batch-size")),
        ("gradient_accumulation_steps", Is("accumulate")),
        ("tensor_parallel_size", Is("tp")),
        ("context_parallel_size", Is("cp")),
        ("sequence_parallel_degree", Is("cp")),
        ("liger_rope", NotCounted),
        ("liger_rms_norm", NotCounted),
        ("liger_layer_norm", NotCounted),
        ("liger_glu_activation", NotCounted),
        ("lora_mlp_kernel", NotCounted),
        ("lora_qkv_kernel", NotCounted),
        ("lora_o_kernel", NotCounted),
    ]],
    nothing: &[
        NOTHING,
        FSDP_NOTHING,
        &[
            "base_model_config",
            "model_type",
            "tokenizer_*",
            "lora_alpha",
            "lora_fan_in_fan_out",
            "lora_model_dir",
            "tf32",
            "sample_packing",
            "sample_packing_*",
            "loss_watchdog_*",
            "peft_use_rslora",
            "loraplus_lr_*",
            "eval_sample_packing",
            "pad_to_sequence_len",
            "train_on_inputs",
            "group_by_length",
            "val_set_size",
            "chat_template*",
            "special_tokens*",
            "tokens",
            "wandb_*",
            "mlflow_*",
            "strict",
            "early_stopping_patience",
            "debug",
            "lr_*",
            "cosine_*",
            "auto_resume_from_checkpoints",
            "local_rank",
            "shuffle_merged_datasets",
        ],
    ],
    together,
};

fn together(values: &Values, has_model: bool, read: &mut Read) -> Result<(), InputError> {
    let on = |key: &str| values.is_on(key);
    training(values, has_model, ("base_model", "optimizer"), read)?;
    checkpointing(values, read);
    // Without any of them transformers takes PyTorch's own kernel, which stores no scores either.
    let [eager, ..] = ["eager_attention", "flash_attention", "sdp_attention"].map(on);
    read.set_if(eager, "attention", "unfused");
    attention(values, read);
    read.set_if(on("liger_fused_linear_cross_entropy"), "loss", "chunked");
    for plugin in values.get("plugins").into_iter().flat_map(|all| all.split(',')) {
        match plugin.trim() {
            "axolotl.integrations.liger.LigerPlugin" => read.nothing.push(shown("plugins", plugin)),
            "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin" => {
                let is_off = values.get("cut_cross_entropy").is_some_and(|value| value == "false");
                read.set_if(!is_off, "loss", "chunked");
            }
            other => read.not_read.push(shown("plugins", other)),
        }
    }
    bf16_by_default(values, read);
    read.by_default("seq-length", "512");
    if let Some(words) = values.get("fsdp") {
        fsdp(words, read);
    } else if values.iter().any(|(key, _)| key.starts_with("fsdp_config.")) {
        read.set("strategy", "fsdp");
    }
    fsdp_config(values, read);
    let keys = ["lora_r", "lora_target_modules", "lora_dropout", "adapter"];
    let [rank, targets, dropout, adapter] = keys.map(|key| values.get(key));
    let targets = if on("lora_target_linear") { "all" } else { targets.unwrap_or("q_proj,v_proj") };
    match adapter {
        // Weights are loaded in bf16, and stay so unless FSDP or DeepSpeed keeps others.
        None if read.get("precision") == Some("bf16")
            && (read.get("strategy"), read.get("stack")) == (Some("ddp"), Some("trl")) =>
        {
            read.set("precision", "bf16-true");
        }
        None => {}
        Some("lora" | "qlora") => adapters(rank.unwrap_or("8"), targets, dropout, read),
        Some(other) => read.not_read.push(shown("adapter", other)),
    }
    let [four, eight] = ["load_in_4bit", "load_in_8bit"].map(on);
    read.set_if(eight, "quantize", "int8");
    read.set_if(four || adapter == Some("qlora"), "quantize", "nf4-dq");
    Ok(())
}
