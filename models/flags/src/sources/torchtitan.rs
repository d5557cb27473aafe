//! torchtitan's TOML (`torchtitan/config`).

use lockstep_topology::InputError;

use crate::hugging_face::name_of;
use crate::read::Read;
use crate::source::Does::{Is, Nothing, NothingIf, Together};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const TORCHTITAN: Source = Source {
    name: "torchtitan",
    marks: &["parallelism.*", "activation_checkpoint.*", "training.seq_len", "model.flavor"],
    keys: &[
        ("training.local_batch_size", Is("micro-batch-size")),
        ("training.batch_size", Is("micro-batch-size")),
        ("training.seq_len", Is("seq-length")),
        ("training.global_batch_size", Together),
        ("training.compile", Together),
        ("training.mixed_precision_param", Together),
        ("training.mixed_precision_reduce", NothingIf(&["float32"])),
        ("training.dtype", Together),
        ("training.enable_cpu_offload", NothingIf(&[])),
        ("training.steps", Nothing),
        ("training.dataset*", Nothing),
        ("training.max_norm", Nothing),
        ("training.seed", Nothing),
        ("training.gc_*", Nothing),
        ("training.warmup_steps", Nothing),
        ("parallelism.tensor_parallel_degree", Together),
        ("parallelism.pipeline_parallel_degree", Is("pp")),
        ("parallelism.context_parallel_degree", Is("cp")),
        ("parallelism.expert_parallel_degree", Is("ep")),
        ("parallelism.data_parallel_shard_degree", Together),
        ("parallelism.data_parallel_replicate_degree", Together),
        ("parallelism.fsdp_reshard_after_forward", NothingIf(&["default"])),
        ("parallelism.pipeline_parallel_schedule", NothingIf(&["1F1B"])),
        ("parallelism.enable_async_tensor_parallel", NothingIf(&[])),
        ("parallelism.enable_compiled_autograd", NothingIf(&[])),
        ("parallelism.disable_loss_parallel", NothingIf(&[])),
        ("parallelism.expert_tensor_parallel_degree", NothingIf(&["1"])),
        ("parallelism.context_parallel_rotate_method", NothingIf(&["allgather"])),
        ("activation_checkpoint.*", Together),
        ("compile.enable", Together),
        ("compile.components", NothingIf(&["model", "model,loss"])),
        ("float8.enable_float8_linear", Together),
        ("model.converters", Together),
        ("model.name", Together),
        ("model.flavor", Together),
        ("model.tokenizer_path", Nothing),
        ("model.hf_assets_path", Nothing),
        ("model.print_after_conversion", Nothing),
        ("model.norm_type", NothingIf(&["rmsnorm"])),
        ("optimizer.name", Together),
        ("optimizer.early_step_in_backward", NothingIf(&[])),
        ("optimizer.lr*", Nothing),
        ("optimizer.eps", Nothing),
        ("optimizer.beta*", Nothing),
        ("optimizer.weight_decay", Nothing),
        ("optimizer.implementation", NothingIf(&["fused"])),
        ("optimizer.fused", Nothing),
        ("float8.filter_fqns", NothingIf(&["output"])),
        ("float8.recipe_name", NothingIf(&["tensorwise"])),
        ("job.*", Nothing),
        ("profiling.*", Nothing),
        ("metrics.*", Nothing),
        ("lr_scheduler.*", Nothing),
        ("checkpoint.*", Nothing),
        ("comm.*", Nothing),
        ("validation.*", Nothing),
        ("debug.*", Nothing),
        ("experimental.*", NothingIf(&[])),
    ],
    together,
};

fn together(values: &Values, has_model: bool, read: &mut Read) -> Result<(), InputError> {
    read.set("stack", "torchtitan");
    let of = |key: &str| values.get(&format!("parallelism.{key}"));
    if let Some(tensor) = of("tensor_parallel_degree") {
        read.set("tp", tensor);
        read.set_if(tensor != "1", "sequence-parallel", "");
    }
    // Of the ranks -1 stands for all that are left.
    match (of("data_parallel_replicate_degree").unwrap_or("1"), of("data_parallel_shard_degree").unwrap_or("-1")) {
        ("1", _) => read.set("strategy", "fsdp"),
        (_, "1") => read.set("strategy", "ddp"),
        (copies, shards) => {
            read.set("strategy", "fsdp");
            read.not_read.push(format!("data_parallel_replicate_degree {copies} beside shard_degree {shards}"));
        }
    }
    let converters = values.get("model.converters").unwrap_or_default();
    let narrow = converters.contains("float8") || values.is_on("float8.enable_float8_linear");
    if let Some(other) = converters.split(',').find(|of| !of.is_empty() && !of.contains("float8")) {
        read.not_read.push(shown("model.converters", other));
    }
    let words = [values.get("training.dtype"), values.get("training.mixed_precision_param")];
    match words {
        _ if narrow => read.set("precision", "fp8"),
        [Some("bfloat16"), _] => read.set("precision", "bf16-true"),
        [None | Some("float32"), Some("float32")] => read.set("precision", "fp32"),
        [None | Some("float32"), None | Some("bfloat16")] => read.set("precision", "bf16"),
        [dtype, param] => read.not_read.push(format!("training.dtype {dtype:?}, mixed_precision_param {param:?}")),
    }
    read.set_if(values.is_on("training.compile") || values.is_on("compile.enable"), "compile", "");
    if let Some(batch) = values.get("training.global_batch_size").filter(|batch| *batch != "-1") {
        read.set("global-batch-size", batch);
    }
    let option = values.get("activation_checkpoint.selective_ac_option");
    match (values.get("activation_checkpoint.mode").unwrap_or("selective"), option) {
        ("none", _) => {}
        ("full", _) => read.set("recompute", "full"),
        ("selective", Some("op")) => read.set("recompute", "selective"),
        ("selective", every) => read.not_read.push(format!("selective_ac_option {}", every.unwrap_or("2"))),
        (mode, _) => read.not_read.push(shown("activation_checkpoint.mode", mode)),
    }
    match values.get("optimizer.name") {
        None | Some("AdamW" | "Adam") => read.set("optimizer", "adamw"),
        Some(other) => read.not_read.push(shown("optimizer.name", other)),
    }
    if has_model {
        return Ok(());
    }
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
