//! Writes a layout of training a decoder as the flags of Megatron-LM or the TOML of torchtitan.

use lockstep_models::Recompute;
use lockstep_stack::{AttentionKernel, Decoder, Layout, Loss, Optimizer, Precision, Sharding};
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
    let refused = |key: &'static str, value: String| {
        Err(InputError::flag(key, value, format!("has no flag of {of}: leave it out")))
    };
    if layout.lora.is_some() {
        return refused("lora", String::new());
    }
    if let Some(format) = layout.quantize {
        return refused("quantize", format.to_string());
    }
    match of {
        Printed::Megatron => megatron(decoder, layout),
        Printed::Torchtitan => torchtitan(decoder, layout),
    }
}

fn megatron(decoder: &Decoder, layout: &Layout) -> Result<String, InputError> {
    let refused = |key: &'static str, value: String| {
        Err(InputError::flag(key, value, "has no flag of megatron: take another, or leave it out"))
    };
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
        other => return refused("strategy", other.to_string()),
    }
    match layout.precision {
        Precision::F32 => {}
        Precision::Bf16 => add("bf16", &""),
        Precision::F16 => add("fp16", &""),
        Precision::F8 => add("bf16\n--fp8-format", &"hybrid"),
        Precision::PureBf16 => return refused("precision", layout.precision.to_string()),
    }
    match layout.optimizer {
        Optimizer::AdamW => add("optimizer", &"adam"),
        Optimizer::Momentum => add("optimizer", &"sgd"),
        other => return refused("optimizer", other.to_string()),
    }
    match &layout.recompute {
        Recompute::None => {}
        Recompute::Full { every } => {
            add("recompute-granularity full --recompute-method uniform --recompute-num-layers", every);
        }
        Recompute::Selective(modules) => {
            let names: Vec<&str> = modules.iter().map(|module| module.name()).collect();
            add("recompute-granularity selective --recompute-modules", &names.join(" "));
        }
    }
    match layout.loss {
        None => {}
        Some(Loss::Fused) => add("cross-entropy-loss-fusion", &""),
        Some(other) => return refused("loss", other.to_string()),
    }
    for (is, flag) in [
        (layout.sequence_parallel, "sequence-parallel"),
        (layout.half_gradients, "grad-reduce-in-bf16"),
        (layout.offload, "optimizer-cpu-offload"),
        (layout.attention == AttentionKernel::Unfused, "attention-backend unfused"),
    ] {
        if is {
            add(flag, &"");
        }
    }
    if !layout.dropout {
        add("attention-dropout 0 --hidden-dropout", &0);
    }
    lines.extend(sizes(decoder));
    Ok(lines.join("\n") + "\n")
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
    let norms = decoder.norms.max(1) * decoder.hidden * if decoder.rms { 1 } else { 2 };
    for (is, flag) in [
        (decoder.gated, "--swiglu"),
        (decoder.rms, "--normalization RMSNorm"),
        (!decoder.tied, "--untie-embeddings-and-output-weights"),
        (decoder.query_norm, "--qk-layernorm"),
        (decoder.vectors <= norms + 2 * decoder.head_width, "--disable-bias-linear"),
    ] {
        if is {
            lines.push(flag.to_owned());
        }
    }
    lines
}

fn torchtitan(decoder: &Decoder, layout: &Layout) -> Result<String, InputError> {
    let refused = |key: &'static str, value: String| {
        Err(InputError::flag(key, value, "has no setting of torchtitan: take another, or leave it out"))
    };
    let (name, flavor) = match decoder.name.as_str() {
        "llama-3-8b" => ("llama3", "8B"),
        "llama-3-70b" => ("llama3", "70B"),
        "llama-3-405b" => ("llama3", "405B"),
        other => return refused("model", other.to_owned()),
    };
    let (mode, option) = match &layout.recompute {
        Recompute::None => ("none", ""),
        Recompute::Full { every: 1 } => ("full", ""),
        Recompute::Selective(modules) if modules.len() == 1 => ("selective", "selective_ac_option = \"op\"\n"),
        other => return refused("recompute", other.to_string()),
    };
    let (copies, shards) = match layout.sharding {
        Sharding::None => (layout.data, 1),
        Sharding::Parameters => (1, layout.data),
        other => return refused("strategy", other.to_string()),
    };
    let numbers = match layout.precision {
        Precision::F32 => "mixed_precision_param = \"float32\"\n",
        Precision::Bf16 | Precision::F8 => "mixed_precision_param = \"bfloat16\"\n",
        Precision::PureBf16 => "dtype = \"bfloat16\"\n",
        Precision::F16 => return refused("precision", layout.precision.to_string()),
    };
    if layout.optimizer != Optimizer::AdamW {
        return refused("optimizer", layout.optimizer.to_string());
    }
    if layout.sequence_parallel != (layout.tensor > 1) {
        return refused("sequence_parallel", layout.sequence_parallel.to_string());
    }
    let converters = if layout.precision == Precision::F8 { "converters = [\"float8\"]\n" } else { "" };
    let batch = layout.micro_batch * layout.micro_batches * layout.data;
    Ok(format!(
        "[model]\nname = \"{name}\"\nflavor = \"{flavor}\"\n{converters}\n[training]\nlocal_batch_size = {}\n\
         global_batch_size = {batch}\nseq_len = {}\n{numbers}\n[parallelism]\ndata_parallel_replicate_degree = {copies}\n\
         data_parallel_shard_degree = {shards}\ntensor_parallel_degree = {}\npipeline_parallel_degree = {}\n\
         context_parallel_degree = {}\n\n[activation_checkpoint]\nmode = \"{mode}\"\n{option}\n[compile]\nenable = {}\n",
        layout.micro_batch, layout.seq_length, layout.tensor, layout.pipeline, layout.context, layout.compile
    ))
}
