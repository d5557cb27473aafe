//! `TrainingArguments` of Hugging Face's transformers, with TRL's `SFTConfig`, PEFT's adapters and bitsandbytes's formats.

use lockstep_topology::InputError;

use crate::hugging_face::{
    FSDP_NOTHING, NOTHING, STEP, adapters, attention, bf16_by_default, checkpointing, fsdp, fsdp_config, training,
};
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
        ],
    ],
    nothing: &[
        NOTHING,
        FSDP_NOTHING,
        &[
            "lora_alpha",
            "lora_task_type",
            "packing",
            "packing_strategy",
            "padding_free",
            "dataset_text_field",
            "completion_only_loss",
            "assistant_only_loss",
        ],
    ],
    together,
};

/// Keys of TRL's `SFTConfig` and `ModelConfig`, which transformers' own arguments do not have.
const OF_TRL: [&str; 10] = [
    "max_length",
    "max_seq_length",
    "packing",
    "packing_strategy",
    "padding_free",
    "use_peft",
    "dataset_text_field",
    "completion_only_loss",
    "assistant_only_loss",
    "loss_type",
];

fn together(values: &Values, has_model: bool, read: &mut Read) -> Result<(), InputError> {
    let on = |key: &str| values.is_on(key);
    training(values, has_model, ("model_name_or_path", "optim"), read)?;
    if let Some(length) = values.first(&["max_length", "max_seq_length"]) {
        read.set("seq-length", length);
    }
    let is_trl = values.iter().any(|(key, _)| OF_TRL.contains(&key));
    checkpointing(values, read);
    attention(values, read);
    let liger = ["use_liger_kernel", "use_liger"].map(on);
    if liger.contains(&true) {
        read.set("loss", "chunked");
        read.not_counted.push("Liger's kernels other than the loss".to_owned());
    }
    match values.get("loss_type") {
        Some("chunked_nll") => read.set("loss", "chunked"),
        None | Some("nll" | "dft") => {}
        Some(other) => read.not_read.push(shown("loss_type", other)),
    }
    if is_trl {
        bf16_by_default(values, read);
        if values.get("gradient_checkpointing").is_none() {
            read.by_default("recompute", "full");
        }
        if values.get("loss_type").is_none() {
            read.by_default("loss", "chunked");
        }
        read.by_default("seq-length", "1024");
    }
    read.by_default("micro-batch-size", "8");
    if let Some(words) = values.get("fsdp") {
        fsdp(words, read);
    }
    fsdp_config(values, read);
    let [rank, targets, dropout] = ["lora_r", "lora_target_modules", "lora_dropout"].map(|key| values.get(key));
    if on("use_peft") {
        adapters(rank.unwrap_or("16"), targets.unwrap_or("q_proj,v_proj"), dropout.or(Some("0.05")), read);
    } else if let Some(rank) = rank {
        read.nothing.push(shown("lora_r", rank));
    }
    let double = ["bnb_4bit_use_double_quant", "use_bnb_nested_quant"].map(on).contains(&true);
    let [four, eight] = ["load_in_4bit", "load_in_8bit"].map(on);
    read.set_if(four, "quantize", if double { "nf4-dq" } else { "nf4" });
    read.set_if(eight, "quantize", "int8");
    weights(values, read);
    Ok(())
}

/// The format in which weights are loaded: fp32 unless stated, also of those that are frozen.
fn weights(values: &Values, read: &mut Read) {
    let is_frozen = read.get("lora").is_some();
    match values.first(&["dtype", "torch_dtype"]) {
        None | Some("float32") if !is_frozen || read.get("quantize").is_some() => {}
        None | Some("float32") if read.get("precision") == Some("fp32") => {}
        None | Some("float32") => read.not_counted.push("frozen weights in fp32, counted in 2 bytes".to_owned()),
        Some("bfloat16" | "auto") if is_frozen => {}
        Some("bfloat16" | "auto") if read.get("strategy") == Some("ddp") && read.get("stack") == Some("trl") => {
            read.set("precision", "bf16-true");
        }
        Some("bfloat16" | "auto") => {}
        Some(other) => read.not_read.push(shown("dtype", other)),
    }
}
