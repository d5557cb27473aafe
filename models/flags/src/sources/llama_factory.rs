//! LlamaFactory's YAML (`src/llamafactory/hparams`).

use lockstep_topology::InputError;

use crate::hugging_face::{STEP, adapters, deepspeed, drop_nothing, model, optimizer, precision};
use crate::read::Read;
use crate::source::Does::{Is, Nothing, NothingIf, Together};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const LLAMA_FACTORY: Source = Source {
    name: "llama-factory",
    marks: &["finetuning_type", "cutoff_len", "stage"],
    keys: &[
        STEP[0],
        STEP[1],
        STEP[2],
        ("model_name_or_path", Together),
        ("stage", NothingIf(&["sft", "pt"])),
        ("finetuning_type", Together),
        ("cutoff_len", Is("seq-length")),
        ("lora_rank", Together),
        ("lora_alpha", Nothing),
        ("lora_dropout", Together),
        ("lora_target", Together),
        ("quantization_bit", Together),
        ("quantization_method", NothingIf(&["bitsandbytes", "bnb"])),
        ("double_quantization", Together),
        ("bf16", Together),
        ("fp16", Together),
        ("pure_bf16", Together),
        ("optim", Together),
        ("flash_attn", Together),
        ("disable_gradient_checkpointing", Together),
        ("enable_liger_kernel", Together),
        ("deepspeed.*", Together),
        ("template", Nothing),
        ("max_samples", Nothing),
        ("overwrite_cache", Nothing),
        ("packing", Nothing),
        ("plot_loss", Nothing),
        ("val_size", Nothing),
        ("tokenized_path", Nothing),
        ("use_fast_tokenizer", Nothing),
    ],
    together,
};

fn together(values: &Values, has_model: bool, read: &mut Read) -> Result<(), InputError> {
    drop_nothing(read);
    let on = |key: &str| values.is_on(key);
    read.set("stack", "trl");
    read.set("strategy", "ddp");
    model(values, &["model_name_or_path"], has_model, read)?;
    precision(values, read);
    optimizer(values.get("optim").unwrap_or("adamw_torch"), read);
    // It recomputes unless told not to.
    read.set_if(!on("disable_gradient_checkpointing"), "recompute", "full");
    match values.get("flash_attn") {
        None | Some("auto" | "fa2" | "fa3" | "sdpa") => {}
        Some("disabled") => read.set("attention", "unfused"),
        Some(other) => read.not_read.push(shown("flash_attn", other)),
    }
    read.set_if(on("enable_liger_kernel"), "loss", "chunked");
    if values.iter().any(|(key, _)| key.starts_with("deepspeed.")) {
        deepspeed(values, "deepspeed.", read);
    }
    match values.get("finetuning_type") {
        None | Some("lora") => {
            let targets = values.get("lora_target").unwrap_or("all");
            adapters(values.get("lora_rank").unwrap_or("8"), targets, values.get("lora_dropout"), read);
        }
        Some("full") => {}
        Some(other) => read.not_read.push(shown("finetuning_type", other)),
    }
    match values.get("quantization_bit") {
        None => {}
        Some("8") => read.set("quantize", "int8"),
        Some("4") if values.get("double_quantization") == Some("false") => read.set("quantize", "nf4"),
        Some("4") => read.set("quantize", "nf4-dq"),
        Some(other) => read.not_read.push(shown("quantization_bit", other)),
    }
    Ok(())
}
