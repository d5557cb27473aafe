//! torchtitan's TOML (`torchtitan/config`).

use lockstep_topology::InputError;

use crate::hugging_face::name_of;
use crate::read::Read;
use crate::source::Does::{Is, Model, NotCounted, NothingIf, Off};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const TORCHTITAN: Source = Source {
    name: "torchtitan",
    marks: &["parallelism.*", "activation_checkpoint.*", "training.seq_len", "model.flavor"],
    keys: &[&[
        ("model.name", Model),
        ("model.flavor", Model),
        ("training.seq_len", Is("seq-length")),
        ("training.mixed_precision_reduce", NothingIf(&["float32"])),
        ("training.enable_cpu_offload", Off),
        ("parallelism.pipeline_parallel_degree", Is("pp")),
        ("parallelism.context_parallel_degree", Is("cp")),
        ("parallelism.expert_parallel_degree", Is("ep")),
        ("parallelism.fsdp_reshard_after_forward", NothingIf(&["default"])),
        ("parallelism.enable_async_tensor_parallel", Off),
        ("parallelism.enable_compiled_autograd", Off),
        ("parallelism.disable_loss_parallel", Off),
        ("parallelism.expert_tensor_parallel_degree", NothingIf(&["1"])),
        ("parallelism.context_parallel_rotate_method", NothingIf(&["allgather"])),
        ("model.norm_type", NothingIf(&["rmsnorm"])),
        ("optimizer.early_step_in_backward", Off),
        ("optimizer.implementation", NothingIf(&["fused"])),
        ("float8.filter_fqns", NothingIf(&["output"])),
        ("float8.recipe_name", NothingIf(&["tensorwise"])),
        ("float8.enable_fsdp_float8_all_gather", NotCounted),
        ("float8.precompute_float8_dynamic_scale_for_fsdp", NotCounted),
        ("quantize.linear.float8.filter_fqns", NothingIf(&["output"])),
        ("quantize.linear.float8.recipe_name", NothingIf(&["tensorwise"])),
        ("quantize.linear.float8.enable_fsdp_float8_all_gather", NotCounted),
        ("quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", NotCounted),
        ("experimental.*", Off),
    ]],
    nothing: &[&[
        "training.steps",
        "training.dataset*",
        "training.max_norm",
        "training.seed",
        "training.gc_*",
        "training.warmup_steps",
        "model.tokenizer_path",
        "model.hf_assets_path",
        "model.print_after_conversion",
        "optimizer.lr*",
        "optimizer.eps",
        "optimizer.beta*",
        "optimizer.weight_decay",
        "optimizer.fused",
        "job.*",
        "profiling.*",
        "metrics.*",
        "lr_scheduler.*",
        "checkpoint.*",
        "comm.*",
        "validation.*",
        "debug.seed",
        "debug.print_config",
        "debug.save_config_file",
        "debug.deterministic_warn_only",
    ]],
    together,
};

fn together(values: &Values, has_model: bool, read: &mut Read) -> Result<(), InputError> {
    read.set("stack", "torchtitan");
    let of = |key: &str| values.get(&format!("parallelism.{key}"));
    let is_split = of("enable_sequence_parallel") != Some("false");
    if let Some(tensor) = of("tensor_parallel_degree") {
        read.set("tp", tensor);
        read.set_if(tensor != "1" && is_split, "sequence-parallel", "");
    }
    match (of("pipeline_parallel_schedule"), read.get("pp")) {
        (None | Some("1F1B"), _) | (_, None | Some("1")) => {}
        (Some("Interleaved1F1B"), _) if of("pipeline_parallel_layers_per_stage").is_none() => {
            read.by_default("interleave", "2");
        }
        (Some(other), _) => read.not_read.push(shown("parallelism.pipeline_parallel_schedule", other)),
    }
    // Of the ranks -1 stands for all that are left.
    match (of("data_parallel_replicate_degree").unwrap_or("1"), of("data_parallel_shard_degree").unwrap_or("-1")) {
        ("1", shards) => {
            read.set("strategy", "fsdp");
            read.set_if(shards != "-1", "dp", shards);
        }
        (copies, "1") => {
            read.set("strategy", "ddp");
            read.set("dp", copies);
        }
        (copies, shards) => {
            read.set("strategy", "fsdp");
            read.not_read.push(format!("data_parallel_replicate_degree {copies} beside shard_degree {shards}"));
        }
    }
    batches(values, read);
    formats(values, read);
    let compiles = ["training.compile", "compile.enable"].map(|key| values.is_on(key));
    read.set_if(compiles.contains(&true), "compile", "");
    match values.get("compile.components") {
        None | Some("model,loss") => {}
        Some("model") => read.set_if(compiles.contains(&true), "loss", "plain"),
        Some(other) => read.not_read.push(shown("compile.components", other)),
    }
    let option = values.get("activation_checkpoint.selective_ac_option");
    match (values.get("activation_checkpoint.mode").unwrap_or("selective"), option) {
        ("none", _) => {}
        ("full", _) => read.set("recompute", "full"),
        ("selective", Some("op")) => read.set("recompute", "selective"),
        ("selective", every) => {
            read.not_read.push(shown("activation_checkpoint.selective_ac_option", every.unwrap_or("2")));
        }
        (mode, _) => read.not_read.push(shown("activation_checkpoint.mode", mode)),
    }
    match values.get("optimizer.name") {
        None | Some("AdamW" | "Adam") => read.set("optimizer", "adamw"),
        Some(other) => read.not_read.push(shown("optimizer.name", other)),
    }
    match has_model {
        true => Ok(()),
        false => model(values, read),
    }
}

/// Formats of numbers.
fn formats(values: &Values, read: &mut Read) {
    let converters = values.get("model.converters").unwrap_or_default();
    let enabled = values.is_on("float8.enable_float8_linear");
    // Other converters, as that of experts' products, are not of all products.
    let float8 = ["float8", "quantize.linear.float8"];
    let narrow = enabled || converters.split(',').any(|of| float8.contains(&of));
    if let Some(other) = converters.split(',').find(|of| !of.is_empty() && !float8.contains(of)) {
        read.not_read.push(shown("model.converters", other));
    }
    let words = [values.get("training.dtype"), values.get("training.mixed_precision_param")];
    match words {
        _ if narrow => read.set("precision", "fp8"),
        [Some("bfloat16"), _] => read.set("precision", "bf16-true"),
        [None | Some("float32"), Some("float32")] => read.set("precision", "fp32"),
        // Without FSDP it mixes formats only where nothing else is split.
        [None | Some("float32"), None | Some("bfloat16")] if !is_mixed(values) => read.set("precision", "fp32"),
        [None | Some("float32"), None | Some("bfloat16")] => read.set("precision", "bf16"),
        [dtype, param] => read.not_read.push(format!("training.dtype {dtype:?}, mixed_precision_param {param:?}")),
    }
}

/// Whether products are in bf16 where nothing is stated.
fn is_mixed(values: &Values) -> bool {
    let of = |key: &str, usual| values.get(&format!("parallelism.{key}")).unwrap_or(usual);
    let is_sharded = of("data_parallel_shard_degree", "-1") != "1" || of("context_parallel_degree", "1") != "1";
    is_sharded || of("tensor_parallel_degree", "1") == "1" && of("pipeline_parallel_degree", "1") == "1"
}

/// The model by its name and flavor.
fn model(values: &Values, read: &mut Read) -> Result<(), InputError> {
    let (name, flavor) = (values.get("model.name"), values.get("model.flavor"));
    let known = match (name, flavor) {
        (Some("llama3"), Some("8B")) => Some("llama-3-8b"),
        (Some("llama3"), Some("70B")) => Some("llama-3-70b"),
        (Some("llama3"), Some("405B")) => Some("llama-3-405b"),
        (Some("llama2"), Some("7B")) => Some("llama-2-7b"),
        (Some("llama2"), Some("13B")) => Some("llama-2-13b"),
        (Some("llama2"), Some("70B")) => Some("llama-2-70b"),
        (Some("qwen3"), Some("0.6B")) => Some("qwen3-0.6b"),
        (Some("qwen3"), Some("8B")) => Some("qwen3-8b"),
        _ => None,
    };
    match known {
        Some(known) => read.set("model", known),
        None => read.set("model", name_of(&format!("{} {}", name.unwrap_or("?"), flavor.unwrap_or("?")))?),
    }
    Ok(())
}

/// Micro-batches: without stages all of a rank's batch is one, in a pipeline each has one sequence unless stated.
fn batches(values: &Values, read: &mut Read) {
    let stated = values.first(&["training.local_batch_size", "training.batch_size"]);
    let local = stated.unwrap_or("8");
    read.by_default("seq-length", "2048");
    let each = values.get("parallelism.pipeline_parallel_microbatch_size");
    let stages = read.get("pp").is_some_and(|stages| stages != "1");
    let micro = if stages { each.unwrap_or("1") } else { local };
    match stated {
        None if !stages => read.by_default("micro-batch-size", micro),
        _ => read.set("micro-batch-size", micro),
    }
    let global = values.get("training.global_batch_size").filter(|batch| *batch != "-1");
    let number = |of: &str| of.parse::<u64>().ok().filter(|of| *of > 0);
    match (global, number(local).zip(number(micro))) {
        (Some(global), _) => read.set("global-batch-size", global),
        (None, Some((local, micro))) if stages => read.set("accumulate", local.div_ceil(micro).to_string()),
        (None, None) if stages => read.not_read.push(format!("local_batch_size {local} in parts of {micro}")),
        _ => {}
    }
}
