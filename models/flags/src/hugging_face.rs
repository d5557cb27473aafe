//! What configurations around Hugging Face's transformers share: names of models, optimizers, adapters, DeepSpeed's file.

use std::path::Path;

use lockstep_topology::{ErrorPlace, InputError};

use crate::read::Read;
use crate::source::{Does, shown};
use crate::values::{Values, is_off};

/// Keys of `TrainingArguments` that change neither memory nor the time of a step.
pub(crate) const NOTHING: &[&str] = &[
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

/// The zoo's names of models by what their names contain, the longest first.
const MODELS: &[(&[&str], &str)] = &[
    (&["llama-3.2-1b"], "llama-3.2-1b"),
    (&["llama-3-405b", "llama-3.1-405b"], "llama-3-405b"),
    (&["llama-3-70b", "llama-3.1-70b", "llama-3.3-70b"], "llama-3-70b"),
    (&["llama-3-8b", "llama-3.1-8b"], "llama-3-8b"),
    (&["llama-2-70b"], "llama-2-70b"),
    (&["llama-2-13b"], "llama-2-13b"),
    (&["llama-2-7b"], "llama-2-7b"),
    (&["qwen3-0.6b"], "qwen3-0.6b"),
    (&["qwen3-8b"], "qwen3-8b"),
    (&["mistral-7b"], "mistral-7b"),
    (&["gpt2-xl"], "gpt2-xl"),
    (&["gpt2-large"], "gpt2-large"),
    (&["gpt2-medium"], "gpt2-medium"),
    (&["gpt2"], "gpt2"),
];

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
    let end = |rest: &str| rest.is_empty() || rest.starts_with('-');
    let is = |name: &&str| last.strip_prefix(*name).is_some_and(end);
    let found = MODELS.iter().find(|(names, _)| names.iter().any(is));
    found.map(|(_, ours)| (*ours).to_owned()).ok_or_else(|| {
        let message = format!("is not among our models: name its config.json by {}", ErrorPlace::Flag("model"));
        InputError::new("", format!("model {id}"), message)
    })
}

/// The key's meaning where it is one of [`NOTHING`].
pub(crate) fn is_nothing(key: &str) -> bool {
    NOTHING.iter().any(|known| known.strip_suffix('*').map_or(*known == key, |start| key.starts_with(start)))
}

/// Moves keys that change nothing out of those that are not understood.
pub(crate) fn drop_nothing(read: &mut Read) {
    let key = |of: &String| of.split(' ').next().unwrap_or_default().to_owned();
    let (nothing, rest): (Vec<String>, Vec<String>) =
        std::mem::take(&mut read.not_read).into_iter().partition(|of| is_nothing(&key(of)));
    read.nothing.extend(nothing);
    read.not_read = rest;
}

/// Keys of files that state a step as `TrainingArguments` do.
pub(crate) const STEP: [(&str, Does); 3] = [
    ("per_device_train_batch_size", Does::Is("micro-batch-size")),
    ("gradient_accumulation_steps", Does::Is("accumulate")),
    ("torch_compile", Does::Switches("compile")),
];

/// The optimizer by the name of `optim`.
pub(crate) fn optimizer(name: &str, read: &mut Read) {
    match name {
        "adamw_torch" | "adamw_torch_fused" | "adamw_hf" | "adamw" | "AdamW" | "Adam" | "adam" | "FusedAdam"
        | "paged_adamw_32bit" | "paged_adamw" => {
            read.set("optimizer", "adamw");
        }
        "adamw_8bit" | "adamw_bnb_8bit" | "paged_adamw_8bit" => read.set("optimizer", "adamw8bit"),
        "sgd" | "SGD" => read.set("optimizer", "sgd"),
        other => read.not_read.push(shown("optim", other)),
    }
    // Paged states may leave the GPU, so that they are counted as if they stayed.
    if name.starts_with("paged") {
        read.nothing.push(format!("paging of {name}"));
    }
}

/// Formats by the switches `bf16`, `fp16` and `pure_bf16`.
pub(crate) fn precision(values: &Values, read: &mut Read) {
    let on = |key: &str| values.is_on(key);
    match (on("pure_bf16"), on("bf16"), on("fp16") || on("float16")) {
        (true, ..) => read.set("precision", "bf16-true"),
        (_, true, _) => read.set("precision", "bf16"),
        (_, _, true) => read.set("precision", "fp16"),
        _ => read.set("precision", "fp32"),
    }
}

/// Adapters by rank and products, `q_proj,v_proj`, `all` or `all-linear`.
pub(crate) fn adapters(rank: &str, targets: &str, dropout: Option<&str>, read: &mut Read) {
    let modules = match targets {
        "all" | "all-linear" => "all".to_owned(),
        _ => targets.replace(", ", ",").replace(',', "+"),
    };
    let drops = dropout.is_some_and(|rate| rate.parse() != Ok(0.0f64));
    read.set("lora", format!("r={rank},modules={modules}{}", if drops { "" } else { ",dropout=0" }));
}

/// Adds DeepSpeed's configuration behind `deepspeed.`: the mapping that is there, or the file that is named.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn add_deepspeed(values: &mut Values, beside: &Path) -> Result<(), InputError> {
    for key in ["deepspeed", "deepspeed_config.deepspeed_config_file"] {
        let Some(name) = values.get(key).map(str::to_owned) else { continue };
        values.remove(key);
        let near = beside.parent().unwrap_or(Path::new("")).join(&name);
        let file = if near.is_file() { near } else { name.into() };
        values.add("deepspeed.", &Values::of_file(&file)?);
    }
    Ok(())
}

/// Keys of DeepSpeed that are read.
const DEEPSPEED: &[&str] = &[
    "zero_optimization.stage",
    "zero_optimization.offload_optimizer.device",
    "bf16.enabled",
    "fp16.enabled",
    "optimizer.type",
];

/// Starts of its keys that change neither memory nor time, or that the trainer states.
const DEEPSPEED_NOTHING: &[&str] = &[
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "zero_allow_untested_optimizer",
    "prescale_gradients",
    "scheduler.",
    "optimizer.params.",
    "tensorboard.",
    "wandb.",
    "csv_monitor.",
    "flops_profiler.",
    "comms_logger.",
    "fp16.",
    "bf16.",
];

/// Sizes of buffers, which hardly change an account of GiB.
const DEEPSPEED_BUFFERS: &[&str] = &[
    "zero_optimization.overlap_comm",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.sub_group_size",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.allgather_partitions",
    "zero_optimization.reduce_scatter",
    "zero_optimization.offload_optimizer.pin_memory",
];

/// Reads DeepSpeed's keys behind `prefix`.
pub(crate) fn deepspeed(values: &Values, prefix: &str, read: &mut Read) {
    let of = |key: &str| values.get(&format!("{prefix}{key}")).filter(|value| *value != "auto");
    for (key, value) in values.iter() {
        let Some(key) = key.strip_prefix(prefix) else { continue };
        let place = || shown(&format!("{prefix}{key}"), value);
        match () {
            () if DEEPSPEED.contains(&key) => {}
            () if DEEPSPEED_NOTHING.iter().any(|start| key.starts_with(start)) => read.nothing.push(place()),
            () if DEEPSPEED_BUFFERS.contains(&key) || value == "auto" || is_off(value) => read.nothing.push(place()),
            () => read.not_read.push(place()),
        }
    }
    read.set("stack", "deepspeed");
    match of("zero_optimization.stage") {
        None | Some("0") => read.set("strategy", "ddp"),
        Some(stage) => read.set("strategy", format!("zero-{stage}")),
    }
    if of("zero_optimization.offload_optimizer.device").is_some_and(|device| device != "none") {
        read.set("offload-optimizer", "");
    }
    let on = |key: &str| of(key).is_some_and(|value| !is_off(value));
    read.set_if(on("bf16.enabled"), "precision", "bf16");
    read.set_if(on("fp16.enabled"), "precision", "fp16");
    if let Some(name) = of("optimizer.type") {
        optimizer(name, read);
    }
}

/// Reads FSDP's sharding by its words: `full_shard auto_wrap`, `FULL_SHARD`, `1`.
pub(crate) fn fsdp(words: &str, read: &mut Read) {
    let lower = words.to_lowercase();
    let has = |word: &str| lower.split([' ', ',']).any(|of| of == word);
    match () {
        () if has("full_shard") || has("1") => read.set("strategy", "fsdp"),
        () if has("no_shard") || has("3") => read.set("strategy", "ddp"),
        () => read.not_read.push(format!("fsdp {words}")),
    }
    if has("offload") {
        read.not_read.push(format!("fsdp {words}"));
    }
}

/// Reads the length of sequences, the model, attention and recomputation as `TrainingArguments` and TRL state them.
pub(crate) fn model(values: &Values, keys: &[&str], has_model: bool, read: &mut Read) -> Result<(), InputError> {
    if let (false, Some(id)) = (has_model, values.first(keys)) {
        read.set("model", name_of(id)?);
    }
    Ok(())
}
