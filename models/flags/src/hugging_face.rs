//! What configurations around Hugging Face's transformers share: names of models, optimizers, adapters, DeepSpeed's file.

use std::path::Path;

use lockstep_topology::{ErrorPlace, InputError};

use crate::optimizer::optimizer;
use crate::read::Read;
use crate::source::Does::{Is, Switches};
use crate::source::{Keys, Nothing, shown};
use crate::values::{Values, is_off};
use crate::zero::{SIZES, deepspeed_beside};

/// Keys of `TrainingArguments` that change neither memory nor the time of a step.
pub(crate) const NOTHING: Nothing = &[
    "output_dir",
    "overwrite_output_dir",
    "run_name",
    "report_to",
    "seed",
    "data_seed",
    "learning_rate",
    "lr_scheduler*",
    "warmup_*",
    "num_train_epochs",
    "num_epochs",
    "max_steps",
    "weight_decay",
    "adam_*",
    "max_grad_norm",
    "logging_*",
    "log_*",
    "save_*",
    "saves_per_epoch",
    "use_tensorboard",
    "streaming*",
    "eval*",
    "do_train",
    "do_eval",
    "do_predict",
    "push_to_hub*",
    "hub_*",
    "load_best_model_at_end",
    "metric_for_best_model",
    "greater_is_better",
    "dataset*",
    "datasets*",
    "data_files*",
    "train_file",
    "validation_file",
    "test_file",
    "preprocessing_num_workers",
    "dataloader_*",
    "remove_unused_columns",
    "per_device_eval_batch_size",
    "resume_from_checkpoint",
    "ddp_timeout",
    "disable_tqdm",
    "trust_remote_code",
    "cache_dir",
    "token",
    "hf_*",
    "include_*",
    "ignore_data_skip",
    "prediction_loss_only",
    "label_names",
    "gradient_checkpointing_kwargs*",
];

/// Keys of `fsdp_config`, with and without `fsdp_` before them, that change neither.
pub(crate) const FSDP_NOTHING: Nothing = &[
    "fsdp_version",
    "fsdp_config.version",
    "fsdp_config.fsdp_version",
    "fsdp_config.transformer_layer_cls_to_wrap",
    "fsdp_config.fsdp_transformer_layer_cls_to_wrap",
    "fsdp_config.use_orig_params",
    "fsdp_config.fsdp_use_orig_params",
    "fsdp_config.limit_all_gathers",
    "fsdp_config.fsdp_limit_all_gathers",
    "fsdp_config.state_dict_type",
    "fsdp_config.fsdp_state_dict_type",
    "fsdp_config.cpu_ram_efficient_loading",
    "fsdp_config.fsdp_cpu_ram_efficient_loading",
    "fsdp_config.sync_module_states",
    "fsdp_config.fsdp_sync_module_states",
    "fsdp_final_state_dict_type",
    "fsdp_config.final_state_dict_type",
    "fsdp_config.fsdp_final_state_dict_type",
];

/// Keys of files that state a step as `TrainingArguments` do.
pub(crate) const STEP: Keys = &[
    ("per_device_train_batch_size", Is("micro-batch-size")),
    ("gradient_accumulation_steps", Is("accumulate")),
    ("torch_compile", Switches("compile")),
];

/// The zoo's names of models by the beginning of theirs, the longest first.
const MODELS: &[(&str, &str)] = &[
    ("llama-3.2-1b", "llama-3.2-1b"),
    ("llama-3.1-405b", "llama-3-405b"),
    ("llama-3-405b", "llama-3-405b"),
    ("llama-3.3-70b", "llama-3-70b"),
    ("llama-3.1-70b", "llama-3-70b"),
    ("llama-3-70b", "llama-3-70b"),
    ("llama-3.1-8b", "llama-3-8b"),
    ("llama-3-8b", "llama-3-8b"),
    ("llama-2-70b", "llama-2-70b"),
    ("llama-2-13b", "llama-2-13b"),
    ("llama-2-7b", "llama-2-7b"),
    ("qwen3-0.6b", "qwen3-0.6b"),
    ("qwen3-8b", "qwen3-8b"),
    ("mistral-7b", "mistral-7b"),
    ("gpt2-xl", "gpt2-xl"),
    ("gpt2-large", "gpt2-large"),
    ("gpt2-medium", "gpt2-medium"),
    ("gpt2", "gpt2"),
];

/// Ends of names that change no size; quantised and extended models have others.
const ENDS: [&str; 6] = ["hf", "instruct", "chat", "base", "v0.1", "v0.2"];

/// The zoo's name of a model of the hub, such as `meta-llama/Meta-Llama-3-8B-Instruct`, or a folder with its `config.json`.
///
/// # Errors
/// A model that is neither.
pub(crate) fn name_of(id: &str) -> Result<String, InputError> {
    let config = Path::new(id).join("config.json");
    if config.is_file() {
        return Ok(config.display().to_string());
    }
    let last = id.rsplit('/').next().unwrap_or(id).to_lowercase().replace('_', "-");
    let last = last.strip_prefix("meta-").unwrap_or(&last);
    let is = |name: &str| {
        let rest = last.strip_prefix(name);
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('-') && rest[1..].split('-').all(|of| ENDS.contains(&of))
        })
    };
    let found = MODELS.iter().find(|(name, _)| is(name));
    found.map(|(_, ours)| (*ours).to_owned()).ok_or_else(|| {
        let message = format!("is not among our models: name its config.json by {}", ErrorPlace::Flag("model"));
        InputError::new("", format!("model {id}"), message)
    })
}

/// Reads what all trainers around transformers state: the model and the optimizer by these keys, formats, DeepSpeed.
///
/// # Errors
/// A model that is not known.
pub(crate) fn training(
    values: &Values,
    has_model: bool,
    (model, optim): (&str, &str),
    read: &mut Read,
) -> Result<(), InputError> {
    read.set("stack", "trl");
    read.set("strategy", "ddp");
    if let Some(id) = values.get(model).filter(|_| !has_model) {
        read.set("model", name_of(id)?);
    }
    precision(values, read);
    optimizer(values.get(optim).unwrap_or("adamw_torch"), read);
    deepspeed_beside(values, read);
    Ok(())
}

/// Switches of formats.
const FORMATS: [&str; 5] = ["bf16", "bfloat16", "fp16", "float16", "pure_bf16"];

/// Mixed bf16 where no format is stated: the default of newer trainers.
pub(crate) fn bf16_by_default(values: &Values, read: &mut Read) {
    let is_stated = FORMATS.iter().any(|key| values.get(key).is_some()) || values.is_on("float32");
    if !is_stated && read.get("precision") == Some("fp32") {
        read.assume("precision", "bf16");
    }
}

/// Formats by the switches `bf16`, `fp16` and `pure_bf16`.
fn precision(values: &Values, read: &mut Read) {
    let [bf16, bfloat16, fp16, float16, pure] = FORMATS.map(|key| values.is_on(key));
    let all = values.get("bf16") == Some("full");
    match (pure || all, bf16 || bfloat16, fp16 || float16) {
        (true, ..) => read.set("precision", "bf16-true"),
        (_, true, _) => read.set("precision", "bf16"),
        (_, _, true) => read.set("precision", "fp16"),
        _ => read.set("precision", "fp32"),
    }
}

/// The kernel of attention by the names of transformers.
pub(crate) fn attention(values: &Values, read: &mut Read) {
    match values.get("attn_implementation") {
        None | Some("sdpa" | "flash_attention_2" | "flash_attention_3") => {}
        Some("eager") => read.set("attention", "unfused"),
        Some(other) => read.not_read.push(shown("attn_implementation", other)),
    }
}

/// Recomputation by `gradient_checkpointing`.
pub(crate) fn checkpointing(values: &Values, read: &mut Read) {
    match values.get("gradient_checkpointing") {
        Some("true") => read.set("recompute", "full"),
        // What is moved to the host instead is another account.
        Some(other) if !is_off(other) => read.not_read.push(shown("gradient_checkpointing", other)),
        _ => {}
    }
}

/// Adapters by rank and products, `q_proj,v_proj`, `all` or `all-linear`. Beside them the stack is transformers', whose parameters
/// DeepSpeed may share.
pub(crate) fn adapters(rank: &str, targets: &str, dropout: Option<&str>, read: &mut Read) {
    let modules = match targets {
        "all" | "all-linear" => "all".to_owned(),
        _ => targets.replace(", ", ",").replace(',', "+"),
    };
    let drops = dropout.is_some_and(|rate| rate.parse() != Ok(0.0f64));
    read.set("lora", format!("r={rank},modules={modules}{}", if drops { "" } else { ",dropout=0" }));
    read.set("stack", "trl");
    // Gradients of adapters are small, and so are their buckets.
    let is_size = |flag: &str| SIZES.iter().any(|(of, _)| *of == flag);
    let sizes = read.flags.iter().filter(|(flag, _)| is_size(flag)).map(|(flag, size)| shown(flag, size));
    read.not_counted.extend(sizes.collect::<Vec<String>>());
    read.flags.retain(|(flag, _)| !is_size(flag));
}

/// Reads FSDP's sharding by its words: `full_shard auto_wrap`, `FULL_SHARD`, `1`.
pub(crate) fn fsdp(words: &str, read: &mut Read) {
    let lower = words.to_lowercase();
    let all: Vec<&str> = lower.split([' ', ',']).filter(|word| !["", "auto_wrap"].contains(word)).collect();
    match all[..] {
        ["full_shard" | "1" | "true"] => read.set("strategy", "fsdp"),
        ["no_shard" | "3"] => read.set("strategy", "ddp"),
        [] | ["false"] => {}
        _ => read.not_read.push(shown("fsdp", words)),
    }
}

/// Reads `fsdp_config`, whose keys begin with `fsdp_` in some files.
pub(crate) fn fsdp_config(values: &Values, read: &mut Read) {
    let of = |key: &str| values.first(&[&format!("fsdp_config.{key}"), &format!("fsdp_config.fsdp_{key}")]);
    for words in [of("sharding_strategy"), of("reshard_after_forward")].into_iter().flatten() {
        match words {
            // FSDP2 has a switch in the place of the words.
            "false" => read.not_read.push("reshard_after_forward false".to_owned()),
            _ => fsdp(words, read),
        }
    }
    read.set_if(of("activation_checkpointing").is_some_and(|value| !is_off(value)), "recompute", "full");
    for (key, usual) in [
        ("auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
        ("backward_prefetch", "BACKWARD_PRE"),
        ("backward_prefetch_policy", "BACKWARD_PRE"),
    ] {
        match of(key) {
            Some(value) if !value.eq_ignore_ascii_case(usual) => read.not_read.push(shown(key, value)),
            Some(value) => read.nothing.push(shown(key, value)),
            None => {}
        }
    }
}
