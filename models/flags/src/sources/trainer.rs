//! `TrainingArguments` of Hugging Face's transformers, with TRL's `SFTConfig`, PEFT's adapters and bitsandbytes's formats.

use lockstep_topology::InputError;

use crate::hugging_face::{FSDP_NOTHING, NOTHING, STEP, adapters, checkpointing, fsdp, fsdp_config, training};
use crate::read::Read;
use crate::source::Does::{Model, NothingIf};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const TRAINER: Source = Source {
    name: "transformers",
    marks: &["per_device_train_batch_size", "gradient_checkpointing", "model_name_or_path"],
    keys: &[
        STEP,
        &[
            ("model_name_or_path", Model),
            ("tf32", NothingIf(&["true", "false"])),
            ("bnb_4bit_quant_type", NothingIf(&["nf4"])),
            ("torch_dtype", NothingIf(&["float32"])),
        ],
    ],
    nothing: &[NOTHING, FSDP_NOTHING, &["lora_alpha", "lora_task_type", "packing"]],
    together,
};

fn together(values: &Values, has_model: bool, read: &mut Read) -> Result<(), InputError> {
    let on = |key: &str| values.is_on(key);
    training(values, has_model, ("model_name_or_path", "optim"), read)?;
    if let Some(length) = values.first(&["max_length", "max_seq_length"]) {
        read.set("seq-length", length);
    }
    checkpointing(values, read);
    match values.get("attn_implementation") {
        None | Some("sdpa" | "flash_attention_2" | "flash_attention_3") => {}
        Some("eager") => read.set("attention", "unfused"),
        Some(other) => read.not_read.push(shown("attn_implementation", other)),
    }
    let liger = ["use_liger_kernel", "use_liger"].map(on);
    read.set_if(liger.contains(&true), "loss", "chunked");
    if let Some(words) = values.get("fsdp") {
        fsdp(words, read);
    }
    fsdp_config(values, read);
    let [rank, targets, dropout] = ["lora_r", "lora_target_modules", "lora_dropout"].map(|key| values.get(key));
    if on("use_peft") {
        adapters(rank.unwrap_or("16"), targets.unwrap_or("q_proj,v_proj"), dropout, read);
    } else if let Some(rank) = rank {
        read.nothing.push(shown("lora_r", rank));
    }
    let double = ["bnb_4bit_use_double_quant", "use_bnb_nested_quant"].map(on).contains(&true);
    let [four, eight] = ["load_in_4bit", "load_in_8bit"].map(on);
    read.set_if(four, "quantize", if double { "nf4-dq" } else { "nf4" });
    read.set_if(eight, "quantize", "int8");
    Ok(())
}
