//! Megatron-LM's arguments (`megatron/training/arguments.py`).

use lockstep_topology::InputError;

use crate::read::Read;
use crate::source::Does::{Is, Nothing, NothingIf, Switches, Together};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const MEGATRON: Source = Source {
    name: "megatron",
    marks: &["tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size"],
    keys: &[
        ("tensor-model-parallel-size", Is("tp")),
        ("pipeline-model-parallel-size", Is("pp")),
        ("context-parallel-size", Is("cp")),
        ("expert-model-parallel-size", Is("ep")),
        ("num-virtual-stages-per-pipeline-rank", Is("interleave")),
        ("micro-batch-size", Is("micro-batch-size")),
        ("global-batch-size", Is("global-batch-size")),
        ("seq-length", Is("seq-length")),
        ("sequence-parallel", Switches("sequence-parallel")),
        ("grad-reduce-in-bf16", Switches("half-gradients")),
        ("optimizer-cpu-offload", Switches("offload-optimizer")),
        ("num-layers-per-virtual-pipeline-stage", Together),
        ("use-distributed-optimizer", Together),
        ("recompute-*", Together),
        ("bf16", Together),
        ("fp16", Together),
        ("fp8-format", Together),
        ("optimizer", Together),
        ("attention-dropout", Together),
        ("hidden-dropout", Together),
        ("attention-backend", Together),
        ("transformer-impl", Together),
        ("use-flash-attn", Together),
        ("cross-entropy-loss-fusion", Together),
        ("accumulate-allreduce-grads-in-fp32", Nothing),
        ("num-layers", Together),
        ("hidden-size", Together),
        ("ffn-hidden-size", Together),
        ("num-attention-heads", Together),
        ("group-query-attention", Together),
        ("num-query-groups", Together),
        ("kv-channels", Together),
        ("max-position-embeddings", Together),
        ("vocab-size", Together),
        ("padded-vocab-size", Together),
        ("make-vocab-size-divisible-by", NothingIf(&["128"])),
        ("swiglu", Together),
        ("normalization", Together),
        ("untie-embeddings-and-output-weights", Together),
        ("disable-bias-linear", Together),
        ("add-qkv-bias", Together),
        ("position-embedding-type", Together),
        ("use-rotary-position-embeddings", Together),
        ("rotary-base", Together),
        ("rotary-percent", Together),
        ("qk-layernorm", Together),
        ("apply-layernorm-1p", NothingIf(&[])),
        ("distributed-backend", NothingIf(&["nccl"])),
        ("cross-entropy-fusion-impl", NothingIf(&["native"])),
        ("use-mcore-models", Nothing),
        ("train-iters", Nothing),
        ("train-samples", Nothing),
        ("exit-*", Nothing),
        ("lr*", Nothing),
        ("min-lr", Nothing),
        ("weight-decay*", Nothing),
        ("clip-grad", Nothing),
        ("adam-*", Nothing),
        ("init-method-std", Nothing),
        ("seed", Nothing),
        ("norm-epsilon", Nothing),
        ("split", Nothing),
        ("data-path", Nothing),
        ("data-cache-path", Nothing),
        ("train-data-path", Nothing),
        ("valid-data-path", Nothing),
        ("mock-data", Nothing),
        ("tokenizer-*", Nothing),
        ("vocab-file", Nothing),
        ("merge-file", Nothing),
        ("num-workers", Nothing),
        ("dataloader-type", Nothing),
        ("eval-*", Nothing),
        ("save*", Nothing),
        ("load", Nothing),
        ("no-load-*", Nothing),
        ("no-save-*", Nothing),
        ("ckpt-*", Nothing),
        ("dist-ckpt-*", Nothing),
        ("use-dist-ckpt", Nothing),
        ("async-save", Nothing),
        ("log-*", Nothing),
        ("tensorboard-*", Nothing),
        ("wandb-*", Nothing),
        ("timing-log-*", Nothing),
        ("profile*", Nothing),
        ("manual-gc*", Nothing),
        ("distributed-timeout-minutes", Nothing),
        ("overlap-grad-reduce", Nothing),
        ("overlap-param-gather", Nothing),
        ("no-check-for-nan-in-loss-and-grad", Nothing),
    ],
    together,
};

fn together(values: &Values, has_model: bool, read: &mut Read) -> Result<(), InputError> {
    read.set("stack", "megatron");
    read.set("strategy", if values.is_on("use-distributed-optimizer") { "zero-1" } else { "ddp" });
    read.set("precision", precision(values)?);
    if let Some(optimizer) = values.get("optimizer") {
        match optimizer {
            "adam" => read.set("optimizer", "adamw"),
            "sgd" => read.set("optimizer", "momentum"),
            other => read.not_read.push(shown("optimizer", other)),
        }
    }
    // The default rate is 0.1.
    let drops = |key: &str| values.get(key).is_none_or(|rate| rate.parse() != Ok(0.0f64));
    read.set_if(drops("hidden-dropout") || drops("attention-dropout"), "dropout", "");
    read.set_if(values.is_on("cross-entropy-loss-fusion"), "loss", "fused");
    match (values.get("attention-backend"), values.get("transformer-impl"), values.is_on("use-flash-attn")) {
        (Some("unfused" | "local"), ..) | (None, Some("local"), false) => read.set("attention", "unfused"),
        (None | Some("auto" | "flash" | "fused"), ..) => {}
        (Some(other), ..) => read.not_read.push(shown("attention-backend", other)),
    }
    recompute(values, read)?;
    stages(values, read)?;
    match has_model {
        true => Ok(()),
        false => model(values, read),
    }
}

fn precision(values: &Values) -> Result<&'static str, InputError> {
    match (values.is_on("bf16"), values.is_on("fp16"), values.is_on("fp8-format")) {
        (true, true, _) => Err(InputError::new("", "bf16, fp16", "are two formats: leave one out")),
        (_, _, true) => Ok("fp8"),
        (true, ..) => Ok("bf16"),
        (_, true, _) => Ok("fp16"),
        _ => Ok("fp32"),
    }
}

/// `--recompute-granularity` with its method, blocks and modules.
fn recompute(values: &Values, read: &mut Read) -> Result<(), InputError> {
    let granularity = values.get("recompute-granularity");
    let granularity = granularity.or(values.is_on("recompute-activations").then_some("selective"));
    match (granularity, values.get("recompute-method")) {
        (None, _) => {}
        (Some("selective"), _) => {
            let modules = values.get("recompute-modules").unwrap_or("core_attn").replace([',', ' '], "+");
            read.set("recompute", format!("selective:{modules}"));
        }
        (Some("full"), Some("uniform")) => match values.get("recompute-num-layers").unwrap_or("1") {
            "1" => read.set("recompute", "full"),
            every => read.set("recompute", format!("full:every={every}")),
        },
        (Some("full"), method) => {
            let layers = values.get("recompute-num-layers").unwrap_or("1");
            read.not_read.push(format!("recompute-method {} of {layers} layers", method.unwrap_or("missing")));
        }
        (Some(other), _) => {
            return Err(InputError::new("", shown("recompute-granularity", other), "must be full or selective"));
        }
    }
    Ok(())
}

/// Parts of a stage where they are stated by their layers.
fn stages(values: &Values, read: &mut Read) -> Result<(), InputError> {
    let Some(each) = values.get("num-layers-per-virtual-pipeline-stage") else { return Ok(()) };
    let number = |key: &str| values.get(key).unwrap_or("1").parse::<u64>().ok().filter(|of| *of > 0);
    let (layers, stages) = (number("num-layers"), number("pipeline-model-parallel-size"));
    let chunks = layers.zip(stages).zip(each.parse::<u64>().ok().filter(|of| *of > 0));
    match chunks.filter(|((layers, stages), each)| layers.is_multiple_of(stages * each)) {
        Some(((layers, stages), each)) => {
            read.set("interleave", (layers / (stages * each)).to_string());
            Ok(())
        }
        None => Err(InputError::new(
            "",
            shown("num-layers-per-virtual-pipeline-stage", each),
            "must divide num-layers over pipeline-model-parallel-size",
        )),
    }
}

/// The model, where its sizes are stated.
fn model(values: &Values, read: &mut Read) -> Result<(), InputError> {
    let needed = |key: &'static str| {
        values.get(key).ok_or_else(|| {
            let message = "is missing: add it, or name the model by --model llama-3-8b";
            InputError::new("", format!("--{key}"), message)
        })
    };
    let (layers, hidden, heads) = (needed("num-layers")?, needed("hidden-size")?, needed("num-attention-heads")?);
    let vocabulary = values.first(&["padded-vocab-size", "vocab-size"]).map_or_else(|| needed("vocab-size"), Ok)?;
    let positions = values.first(&["max-position-embeddings", "seq-length"]).unwrap_or("4096");
    let mut model =
        format!("gpt:hidden={hidden},layers={layers},heads={heads},vocabulary={vocabulary},positions={positions}");
    let mut add = |setting: &str| {
        model.push(',');
        model.push_str(setting);
    };
    if let Some(groups) = values.get("num-query-groups").filter(|_| values.is_on("group-query-attention")) {
        add(&format!("key_heads={groups}"));
    }
    if let Some(width) = values.get("kv-channels") {
        add(&format!("head_width={width}"));
    }
    let gated = values.is_on("swiglu");
    if gated {
        add("gated=true,activation=silu");
    }
    match (values.get("ffn-hidden-size"), hidden.parse::<u64>()) {
        (Some(features), _) => add(&format!("feed_forward={features}")),
        // As its arguments.py rounds two thirds of four times the features.
        (None, Ok(hidden)) if gated => add(&format!("feed_forward={}", (4 * hidden * 2 / 3) / 64 * 64)),
        _ => {}
    }
    if values.get("normalization") == Some("RMSNorm") {
        add("norm=rms");
    }
    if values.is_on("untie-embeddings-and-output-weights") {
        add("tied=false");
    }
    if values.is_on("disable-bias-linear") {
        let queries = values.is_on("add-qkv-bias");
        add(&format!("attention_bias={queries},output_bias=false,feed_forward_bias=false"));
    }
    let rotary =
        values.get("position-embedding-type") == Some("rope") || values.is_on("use-rotary-position-embeddings");
    if rotary {
        add(&format!("learned_positions=false,theta={}", values.get("rotary-base").unwrap_or("10000")));
        if let Some(part) = values.get("rotary-percent").filter(|part| part.parse() != Ok(1.0f64)) {
            add(&format!("rotary_fraction={part}"));
        }
    }
    if values.is_on("qk-layernorm") {
        add("query_norm=heads");
    }
    read.set("model", model);
    Ok(())
}
