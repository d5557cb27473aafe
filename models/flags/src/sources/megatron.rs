//! Megatron-LM's arguments (`megatron/training/arguments.py`).

use lockstep_topology::InputError;

use crate::read::Read;
use crate::source::Does::{Is, Model, NotCounted, NothingIf, Switches};
use crate::source::{Source, shown};
use crate::values::Values;

pub(crate) const MEGATRON: Source = Source {
    name: "megatron",
    marks: &["tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size"],
    keys: &[&[
        ("num-layers", Model),
        ("hidden-size", Model),
        ("ffn-hidden-size", Model),
        ("num-attention-heads", Model),
        ("group-query-attention", Model),
        ("num-query-groups", Model),
        ("kv-channels", Model),
        ("max-position-embeddings", Model),
        ("vocab-size", Model),
        ("padded-vocab-size", Model),
        ("swiglu", Model),
        ("normalization", Model),
        ("norm-epsilon", Model),
        ("untie-embeddings-and-output-weights", Model),
        ("disable-bias-linear", Model),
        ("add-qkv-bias", Model),
        ("position-embedding-type", Model),
        ("use-rotary-position-embeddings", Model),
        ("rotary-base", Model),
        ("rotary-percent", Model),
        ("qk-layernorm", Model),
        ("tensor-model-parallel-size", Is("tp")),
        ("pipeline-model-parallel-size", Is("pp")),
        ("context-parallel-size", Is("cp")),
        ("expert-model-parallel-size", Is("ep")),
        ("num-virtual-stages-per-pipeline-rank", Is("interleave")),
        ("micro-batch-size", Is("micro-batch-size")),
        ("global-batch-size", Is("global-batch-size")),
        ("seq-length", Is("seq-length")),
        ("grad-reduce-in-bf16", Switches("half-gradients")),
        ("disable-parameter-transpose-cache", Switches("no-transpose-cache")),
        ("optimizer-offload-fraction", NothingIf(&["1", "1.0"])),
        ("overlap-cpu-optimizer-d2h-h2d", NotCounted),
        ("empty-unused-memory-level", NotCounted),
        ("main-grads-dtype", NothingIf(&["fp32"])),
        ("main-params-dtype", NothingIf(&["fp32"])),
        ("optimizer-cpu-offload", Switches("offload-optimizer")),
        ("make-vocab-size-divisible-by", NothingIf(&["128"])),
        ("distributed-backend", NothingIf(&["nccl"])),
        ("cross-entropy-fusion-impl", NothingIf(&["native"])),
        ("overlap-grad-reduce", NotCounted),
        ("overlap-param-gather", NotCounted),
    ]],
    nothing: &[&[
        "use-mcore-models",
        "apply-layernorm-1p",
        "decoupled-lr",
        "decoupled-min-lr",
        "calculate-per-token-loss",
        "tiktoken-*",
        "no-mmap-bin-files",
        "no-create-attention-mask-in-dataloader",
        "fp8-amax-*",
        "fp8-margin",
        "fp8-interval",
        "test-data-path",
        "start-weight-decay",
        "end-weight-decay",
        "loss-scale*",
        "initial-loss-scale",
        "min-loss-scale",
        "hysteresis",
        "finetune",
        "eod-mask-loss",
        "train-iters",
        "train-samples",
        "exit-*",
        "lr*",
        "min-lr",
        "weight-decay*",
        "clip-grad",
        "adam-*",
        "init-method-std",
        "seed",
        "split",
        "data-path",
        "data-cache-path",
        "train-data-path",
        "valid-data-path",
        "mock-data",
        "tokenizer-*",
        "vocab-file",
        "merge-file",
        "num-workers",
        "dataloader-type",
        "eval-*",
        "save*",
        "load",
        "no-load-*",
        "no-save-*",
        "ckpt-*",
        "dist-ckpt-*",
        "use-dist-ckpt",
        "async-save",
        "log-*",
        "tensorboard-*",
        "wandb-*",
        "timing-log-*",
        "profile*",
        "manual-gc*",
        "distributed-timeout-minutes",
        "no-check-for-nan-in-loss-and-grad",
    ]],
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
    moments(values, read);
    // It turns itself off without tensor ranks.
    match (values.is_on("sequence-parallel"), read.get("tp")) {
        (true, None | Some("1")) => read.nothing.push("sequence-parallel".to_owned()),
        (is, _) => read.set_if(is, "sequence-parallel", ""),
    }
    context(values, read);
    // In bf16 they add up in fp32 whatever is stated.
    let in_full = values.is_on("accumulate-allreduce-grads-in-fp32");
    read.set_if(values.is_on("fp16") && !in_full, "half-gradients", "");
    match (values.is_on("fp8-format"), values.is_on("fp8-param-gather")) {
        (true, false) => read.not_counted.push("copies of weights in fp8 beside those in bf16".to_owned()),
        (false, true) => read.nothing.push("fp8-param-gather".to_owned()),
        _ => {}
    }
    if read.get("global-batch-size").is_none() {
        read.by_default("accumulate", "1");
    }
    // The default rate is 0.1.
    let rates = ["hidden-dropout", "attention-dropout"].map(|key| values.get(key));
    let drops = |rate: &Option<&str>| rate.is_none_or(|rate| rate.parse() != Ok(0.0f64));
    read.set_if(rates.iter().any(drops), "dropout", "");
    read.set_if(values.is_on("cross-entropy-loss-fusion"), "loss", "fused");
    match (values.get("attention-backend"), values.get("transformer-impl"), values.is_on("use-flash-attn")) {
        (Some("unfused" | "local"), ..) | (None, Some("local"), false) => read.set("attention", "unfused"),
        (None | Some("auto" | "flash" | "fused"), None | Some("transformer_engine" | "local"), _) => {}
        (None | Some("auto" | "flash" | "fused"), Some(other), _) => {
            read.not_read.push(shown("transformer-impl", other));
        }
        (Some(other), ..) => read.not_read.push(shown("attention-backend", other)),
    }
    if values.is_on("defer-embedding-wgrad-compute") {
        // A limit of 0, the default, is none.
        let limit = values.get("wgrad-deferral-limit").filter(|limit| *limit != "0");
        read.set("defer-head-gradients", limit.unwrap_or("1048576"));
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

/// `--use-precision-aware-optimizer` with its formats of moments.
fn moments(values: &Values, read: &mut Read) {
    let formats = ["exp-avg-dtype", "exp-avg-sq-dtype"].map(|key| values.get(key).unwrap_or("fp32"));
    match (values.is_on("use-precision-aware-optimizer"), formats) {
        (_, ["fp32", "fp32"]) => {}
        (true, ["bf16", "bf16"]) if read.get("optimizer") != Some("momentum") => read.set("optimizer", "adamw-bf16"),
        (_, [first, second]) => read.not_read.push(format!("exp-avg-dtype {first}, exp-avg-sq-dtype {second}")),
    }
}

/// `--cp-comm-type`, which has no effect without context ranks.
fn context(values: &Values, read: &mut Read) {
    let Some(kind) = values.get("cp-comm-type") else { return };
    match (kind, read.get("cp")) {
        (_, None | Some("1")) => read.nothing.push(shown("cp-comm-type", kind)),
        ("p2p", _) => read.set("cp-exchange", "ring"),
        ("a2a", _) => read.set("cp-exchange", "alltoall"),
        ("allgather" | "all_gather", _) => read.set("cp-exchange", "allgather"),
        (other, _) => read.not_read.push(shown("cp-comm-type", other)),
    }
}

/// `--recompute-granularity` with its method, blocks and modules.
fn recompute(values: &Values, read: &mut Read) -> Result<(), InputError> {
    let granularity = values.get("recompute-granularity");
    let activations = values.is_on("recompute-activations");
    let granularity = granularity.or(activations.then_some("selective"));
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
    let groups = values.get("num-query-groups");
    if values.is_on("group-query-attention") {
        add(&format!("key_heads={}", groups.unwrap_or("1")));
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
    match values.get("normalization") {
        None | Some("LayerNorm") => {}
        Some("RMSNorm") => add("norm=rms"),
        Some(other) => read.not_read.push(shown("normalization", other)),
    }
    if let Some(epsilon) = values.get("norm-epsilon") {
        add(&format!("epsilon={epsilon}"));
    }
    if values.is_on("untie-embeddings-and-output-weights") {
        add("tied=false");
    }
    let [bare, queries] = ["disable-bias-linear", "add-qkv-bias"].map(|key| values.is_on(key));
    if bare {
        add(&format!("attention_bias={queries},output_bias=false,feed_forward_bias=false"));
    }
    let [base, part] = ["rotary-base", "rotary-percent"].map(|key| values.get(key));
    match (values.is_on("use-rotary-position-embeddings"), values.get("position-embedding-type")) {
        (true, _) | (_, Some("rope")) => {
            add(&format!("learned_positions=false,theta={}", base.unwrap_or("10000")));
            if let Some(part) = part.filter(|part| part.parse() != Ok(1.0f64)) {
                add(&format!("rotary_fraction={part}"));
            }
        }
        (false, None | Some("learned_absolute")) => {}
        (false, Some(other)) => read.not_read.push(shown("position-embedding-type", other)),
    }
    if values.is_on("qk-layernorm") {
        add("query_norm=heads");
    }
    read.set("model", model);
    Ok(())
}
