//! Writes a layout of training a decoder as the flags of Megatron-LM or the TOML of torchtitan.

use lockstep_models::Recompute;
use lockstep_stack::{AttentionKernel, ContextExchange, Decoder, Layout, Loss, Optimizer, Precision, Sharding, stack};
use lockstep_topology::InputError;

/// The frameworks whose flags are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Printed {
    /// Arguments of Megatron-LM, one a line.
    Megatron,
    /// torchtitan's TOML.
    Torchtitan,
}

impl std::str::FromStr for Printed {
    type Err = String;

    fn from_str(text: &str) -> Result<Printed, String> {
        match text {
            "megatron" => Ok(Printed::Megatron),
            "torchtitan" => Ok(Printed::Torchtitan),
            _ => Err("must be megatron or torchtitan".to_owned()),
        }
    }
}

impl std::fmt::Display for Printed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Printed::Megatron { "megatron" } else { "torchtitan" })
    }
}

/// The layout as flags, read back as the same.
///
/// # Errors
/// A setting that the framework does not have.
pub fn print(of: Printed, decoder: &Decoder, layout: &Layout) -> Result<String, InputError> {
    stack(&of.to_string())?.check(layout)?;
    match of {
        Printed::Megatron => megatron(decoder, layout),
        Printed::Torchtitan => torchtitan(decoder, layout),
    }
}

/// The refusal of a setting that has no flag.
fn refused<T>(of: Printed, key: &'static str, value: impl ToString) -> Result<T, InputError> {
    Err(InputError::flag(key, value.to_string(), format!("has no flag of {of}: take another, or leave it out")))
}

fn megatron(decoder: &Decoder, layout: &Layout) -> Result<String, InputError> {
    let of = Printed::Megatron;
    if let Some(lora) = &layout.lora {
        return refused(of, "lora", lora);
    }
    if layout.expert > 1 {
        return refused(of, "ep", layout.expert);
    }
    let mut lines: Vec<String> = Vec::new();
    let mut add =
        |flag: &str, value: &dyn std::fmt::Display| lines.push(format!("--{flag} {value}").trim_end().to_owned());
    for (flag, value) in [
        ("tensor-model-parallel-size", layout.tensor),
        ("pipeline-model-parallel-size", layout.pipeline),
        ("context-parallel-size", layout.context),
        ("micro-batch-size", layout.micro_batch),
        ("global-batch-size", layout.micro_batch * layout.micro_batches * layout.data),
        ("seq-length", layout.seq_length),
    ] {
        add(flag, &value);
    }
    if layout.virtual_stages > 1 {
        add("num-virtual-stages-per-pipeline-rank", &layout.virtual_stages);
    }
    match layout.sharding {
        Sharding::None => {}
        Sharding::Optimizer => add("use-distributed-optimizer", &""),
        other => return refused(of, "strategy", other),
    }
    numbers(of, layout, &mut add)?;
    match layout.loss {
        None => {}
        Some(Loss::Fused) => add("cross-entropy-loss-fusion", &""),
        Some(other) => return refused(of, "loss", other),
    }
    for (is, flag) in [
        (layout.sequence_parallel, "sequence-parallel"),
        (layout.half_gradients && layout.precision != Precision::F16, "grad-reduce-in-bf16"),
        (!layout.transpose_cache, "disable-parameter-transpose-cache"),
        (layout.offload, "optimizer-cpu-offload"),
        (layout.offload || layout.optimizer == Optimizer::AdamWBf16, "use-precision-aware-optimizer"),
        (layout.optimizer == Optimizer::AdamWBf16, "exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"),
        (layout.precision == Precision::F8, "fp8-param-gather"),
        (layout.precision == Precision::F16 && !layout.half_gradients, "accumulate-allreduce-grads-in-fp32"),
        (layout.attention == AttentionKernel::Unfused, "attention-backend unfused"),
    ] {
        if is {
            add(flag, &"");
        }
    }
    if !layout.dropout {
        add("attention-dropout 0 --hidden-dropout", &0);
    }
    if let Some(exchange) = layout.context_exchange {
        let kind = match exchange {
            ContextExchange::Ring => "p2p",
            ContextExchange::AllToAll => "a2a",
            ContextExchange::AllGather => "allgather",
        };
        lines.push(format!("--cp-comm-type {kind}"));
    }
    if layout.deferred_heads > 0 {
        lines.push(format!("--defer-embedding-wgrad-compute --wgrad-deferral-limit {}", layout.deferred_heads));
    }
    lines.extend(again(&layout.recompute));
    lines.extend(sizes(decoder));
    Ok(lines.join("\n") + "\n")
}

/// Formats and the optimizer.
fn numbers(of: Printed, layout: &Layout, add: &mut dyn FnMut(&str, &dyn std::fmt::Display)) -> Result<(), InputError> {
    match layout.precision {
        Precision::F32 => {}
        Precision::Bf16 => add("bf16", &""),
        Precision::F16 => add("fp16", &""),
        Precision::F8 => add("bf16\n--fp8-format", &"hybrid"),
        Precision::PureBf16 => return refused(of, "precision", layout.precision),
    }
    match layout.optimizer {
        Optimizer::AdamW | Optimizer::AdamWBf16 => add("optimizer", &"adam"),
        Optimizer::Momentum => add("optimizer", &"sgd"),
        other => return refused(of, "optimizer", other),
    }
    Ok(())
}

/// What is computed again.
fn again(recompute: &Recompute) -> Option<String> {
    match recompute {
        Recompute::None => None,
        Recompute::Full { every } => {
            Some(format!("--recompute-granularity full --recompute-method uniform --recompute-num-layers {every}"))
        }
        Recompute::Selective(modules) => {
            let names: Vec<&str> = modules.iter().map(|module| module.name()).collect();
            Some(format!("--recompute-granularity selective --recompute-modules {}", names.join(" ")))
        }
    }
}

/// The sizes of a decoder.
fn sizes(decoder: &Decoder) -> Vec<String> {
    let mut lines: Vec<String> = [
        ("num-layers", decoder.layers),
        ("hidden-size", decoder.hidden),
        ("num-attention-heads", decoder.heads),
        ("kv-channels", decoder.head_width),
        ("ffn-hidden-size", decoder.feed_forward),
        ("vocab-size", decoder.vocabulary),
    ]
    .map(|(flag, value)| format!("--{flag} {value}"))
    .into();
    if decoder.key_heads != decoder.heads {
        lines.push(format!("--group-query-attention --num-query-groups {}", decoder.key_heads));
    }
    match decoder.learned_positions {
        Some(positions) => lines.push(format!("--max-position-embeddings {positions}")),
        None => lines.push("--position-embedding-type rope".to_owned()),
    }
    if let Some(base) = decoder.rotary_base {
        lines.push(format!("--rotary-base {base}"));
    }
    lines.push(format!("--norm-epsilon {}", decoder.epsilon));
    let (queries, feed_forward) = decoder.biases;
    for (is, flag) in [
        (decoder.gated, "--swiglu"),
        (decoder.rms, "--normalization RMSNorm"),
        (!decoder.tied, "--untie-embeddings-and-output-weights"),
        (decoder.query_norm, "--qk-layernorm"),
        (!feed_forward, "--disable-bias-linear"),
        (queries && !feed_forward, "--add-qkv-bias"),
    ] {
        if is {
            lines.push(flag.to_owned());
        }
    }
    lines
}

fn torchtitan(decoder: &Decoder, layout: &Layout) -> Result<String, InputError> {
    let of = Printed::Torchtitan;
    let (name, flavor) = match decoder.name.as_str() {
        "llama-3-8b" => ("llama3", "8B"),
        "llama-3-70b" => ("llama3", "70B"),
        "llama-3-405b" => ("llama3", "405B"),
        _ => return refused(of, "model", &decoder.name),
    };
    let (mode, option) = match &layout.recompute {
        Recompute::None => ("none", ""),
        Recompute::Full { every: 1 } => ("full", ""),
        again if again.to_string() == "selective:core_attn" => ("selective", "selective_ac_option = \"op\"\n"),
        other => return refused(of, "recompute", other),
    };
    let (copies, shards) = match layout.sharding {
        Sharding::None => (layout.data, 1),
        Sharding::Parameters => (1, layout.data),
        other => return refused(of, "strategy", other),
    };
    let numbers = match layout.precision {
        Precision::F32 => "mixed_precision_param = \"float32\"\n",
        Precision::Bf16 | Precision::F8 => "mixed_precision_param = \"bfloat16\"\n",
        Precision::PureBf16 => "dtype = \"bfloat16\"\n",
        Precision::F16 => return refused(of, "precision", layout.precision),
    };
    if layout.optimizer != Optimizer::AdamW {
        return refused(of, "optimizer", layout.optimizer);
    }
    if layout.sequence_parallel != (layout.tensor > 1) {
        return refused(of, "sequence_parallel", layout.sequence_parallel);
    }
    if layout.virtual_stages > 1 {
        return refused(of, "interleave", layout.virtual_stages);
    }
    if let Some(loss) = layout.loss {
        return refused(of, "loss", loss);
    }
    if layout.attention == AttentionKernel::Unfused {
        return refused(of, "attention", layout.attention);
    }
    if let Some(exchange) = layout.context_exchange.filter(|exchange| *exchange != ContextExchange::AllGather) {
        return refused(of, "cp_exchange", exchange);
    }
    let converters = if layout.precision == Precision::F8 { "converters = [\"float8\"]\n" } else { "" };
    // A rank's batch is all micro-batches of a pipeline, or the one that passes at once.
    let (local, each) = match layout.pipeline {
        1 => (layout.micro_batch, String::new()),
        _ => {
            let each = format!("pipeline_parallel_microbatch_size = {}\n", layout.micro_batch);
            (layout.micro_batch * layout.micro_batches, each)
        }
    };
    let batch = layout.micro_batch * layout.micro_batches * layout.data;
    Ok(format!(
        "[model]\nname = \"{name}\"\nflavor = \"{flavor}\"\n{converters}\n[training]\nlocal_batch_size = {local}\n\
         global_batch_size = {batch}\nseq_len = {}\n{numbers}\n[parallelism]\ndata_parallel_replicate_degree = {copies}\n\
         data_parallel_shard_degree = {shards}\ntensor_parallel_degree = {}\npipeline_parallel_degree = {}\n{each}\
         context_parallel_degree = {}\n\n[activation_checkpoint]\nmode = \"{mode}\"\n{option}\n[compile]\nenable = {}\n",
        layout.seq_length, layout.tensor, layout.pipeline, layout.context, layout.compile
    ))
}
