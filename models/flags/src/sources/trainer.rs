//! `TrainingArguments` of Hugging Face's transformers, with TRL's `SFTConfig`, PEFT's adapters and bitsandbytes's formats.

use lockstep_topology::InputError;

use crate::hugging_face::{STEP, adapters, deepspeed, drop_nothing, fsdp, model, optimizer, precision};
use crate::read::Read;
use crate::source::Does::{Nothing, NothingIf, Together};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const TRAINER: Source = Source {
    name: "transformers",
    marks: &["per_device_train_batch_size", "gradient_checkpointing", "model_name_or_path"],
    keys: &[
        STEP[0],
        STEP[1],
        STEP[2],
        ("model_name_or_path", Together),
        ("max_seq_length", Together),
        ("max_length", Together),
        ("bf16", Together),
        ("fp16", Together),
        ("tf32", NothingIf(&["true", "false"])),
        ("optim", Together),
        ("gradient_checkpointing", Together),
        ("fsdp", Together),
        ("fsdp_config.transformer_layer_cls_to_wrap", Nothing),
        ("fsdp_config.fsdp_transformer_layer_cls_to_wrap", Nothing),
        ("fsdp_config.backward_prefetch", NothingIf(&["backward_pre", "BACKWARD_PRE"])),
        ("fsdp_config.use_orig_params", Nothing),
        ("fsdp_config.activation_checkpointing", Together),
        ("fsdp_config.limit_all_gathers", Nothing),
        ("fsdp_config.version", Nothing),
        ("fsdp_config.reshard_after_forward", NothingIf(&["true"])),
        ("fsdp_config.state_dict_type", Nothing),
        ("fsdp_config.cpu_ram_efficient_loading", Nothing),
        ("fsdp_config.sync_module_states", Nothing),
        ("deepspeed.*", Together),
        ("attn_implementation", Together),
        ("use_liger_kernel", Together),
        ("use_liger", Together),
        ("use_peft", Together),
        ("lora_r", Together),
        ("lora_alpha", Nothing),
        ("lora_dropout", Together),
        ("lora_target_modules", Together),
        ("lora_task_type", Nothing),
        ("load_in_4bit", Together),
        ("load_in_8bit", Together),
        ("bnb_4bit_use_double_quant", Together),
        ("bnb_4bit_quant_type", NothingIf(&["nf4"])),
        ("use_bnb_nested_quant", Together),
        ("torch_dtype", NothingIf(&["float32"])),
        ("packing", Nothing),
    ],
    together,
};

fn together(values: &Values, has_model: bool, read: &mut Read) -> Result<(), InputError> {
    drop_nothing(read);
    let on = |key: &str| values.is_on(key);
    read.set("stack", "trl");
    model(values, &["model_name_or_path"], has_model, read)?;
    if let Some(length) = values.first(&["max_length", "max_seq_length"]) {
        read.set("seq-length", length);
    }
    precision(values, read);
    optimizer(values.get("optim").unwrap_or("adamw_torch"), read);
    read.set_if(on("gradient_checkpointing") || on("fsdp_config.activation_checkpointing"), "recompute", "full");
    match values.get("attn_implementation") {
        None | Some("sdpa" | "flash_attention_2" | "flash_attention_3") => {}
        Some("eager") => read.set("attention", "unfused"),
        Some(other) => read.not_read.push(shown("attn_implementation", other)),
    }
    read.set_if(on("use_liger_kernel") || on("use_liger"), "loss", "chunked");
    read.set("strategy", "ddp");
    if let Some(words) = values.get("fsdp").filter(|words| !words.is_empty()) {
        fsdp(words, read);
    }
    if values.iter().any(|(key, _)| key.starts_with("deepspeed.")) {
        deepspeed(values, "deepspeed.", read);
    }
    if let Some(rank) = values.get("lora_r").filter(|_| on("use_peft")) {
        adapters(rank, values.get("lora_target_modules").unwrap_or("q_proj,v_proj"), values.get("lora_dropout"), read);
        read.set("stack", "trl");
    }
    let double = on("bnb_4bit_use_double_quant") || on("use_bnb_nested_quant");
    read.set_if(on("load_in_4bit"), "quantize", if double { "nf4-dq" } else { "nf4" });
    read.set_if(on("load_in_8bit"), "quantize", "int8");
    Ok(())
}
