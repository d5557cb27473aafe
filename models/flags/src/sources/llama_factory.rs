//! LlamaFactory's YAML (`src/llamafactory/hparams`).

use lockstep_topology::InputError;

use crate::hugging_face::{NOTHING, STEP, adapters, training};
use crate::read::Read;
use crate::source::Does::{Is, Model, NothingIf};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const LLAMA_FACTORY: Source = Source {
    name: "llama-factory",
    marks: &["finetuning_type", "cutoff_len", "stage"],
    keys: &[
        STEP,
        &[
            ("model_name_or_path", Model),
            ("stage", NothingIf(&["sft", "pt"])),
            ("cutoff_len", Is("seq-length")),
            ("quantization_method", NothingIf(&["bitsandbytes", "bnb"])),
        ],
    ],
    nothing: &[
        NOTHING,
        &[
            "lora_alpha",
            "template",
            "max_samples",
            "overwrite_cache",
            "packing",
            "plot_loss",
            "val_size",
            "tokenized_path",
            "use_fast_tokenizer",
        ],
    ],
    together,
};

fn together(values: &Values, has_model: bool, read: &mut Read) -> Result<(), InputError> {
    training(values, has_model, ("model_name_or_path", "optim"), read)?;
    read.by_default("micro-batch-size", "8");
    read.by_default("seq-length", "2048");
    // It recomputes unless told not to.
    read.set_if(!values.is_on("disable_gradient_checkpointing"), "recompute", "full");
    match values.get("flash_attn") {
        None | Some("auto" | "fa2" | "fa3" | "sdpa") => {}
        Some("disabled") => read.set("attention", "unfused"),
        Some(other) => read.not_read.push(shown("flash_attn", other)),
    }
    if values.is_on("enable_liger_kernel") {
        read.set("loss", "chunked");
        read.not_counted.push("Liger's kernels other than the loss".to_owned());
    }
    let [rank, targets, dropout] = ["lora_rank", "lora_target", "lora_dropout"].map(|key| values.get(key));
    match values.get("finetuning_type") {
        None | Some("lora") => adapters(rank.unwrap_or("8"), targets.unwrap_or("all"), dropout, read),
        Some("full") => {}
        Some(other) => read.not_read.push(shown("finetuning_type", other)),
    }
    match (values.get("quantization_bit"), values.get("double_quantization")) {
        (None, _) => {}
        (Some("8"), _) => read.set("quantize", "int8"),
        (Some("4"), Some("false")) => read.set("quantize", "nf4"),
        (Some("4"), _) => read.set("quantize", "nf4-dq"),
        (Some(other), _) => read.not_read.push(shown("quantization_bit", other)),
    }
    Ok(())
}
