//! Tests what each framework's keys become, and that all else is named.

mod written;

use crate::{Read, read_file, read_megatron};

fn written(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn read(name: &str, text: &str) -> Read {
    let (_folder, path) = written(name, text);
    read_file(&path, false).unwrap()
}

/// Flags as a line, in alphabetical order.
fn line(of: &Read) -> String {
    let mut flags: Vec<String> =
        of.flags.iter().map(|(flag, value)| format!("--{flag} {value}").trim_end().to_owned()).collect();
    flags.sort();
    flags.join(" ")
}

#[test]
fn arguments_of_megatron_are_a_layout_and_a_model() {
    let of = read_megatron(
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 \\
         --sequence-parallel --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --bf16 \
         --num-layers 80 --hidden-size 8192 --num-attention-heads 64 --group-query-attention --num-query-groups 8 \
         --ffn-hidden-size 28672 --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights --disable-bias-linear \
         --position-embedding-type rope --rotary-base 500000 --max-position-embeddings 8192 --vocab-size 128256 \
         --attention-dropout 0.0 --hidden-dropout 0.0 --recompute-granularity full --recompute-method uniform \
         --recompute-num-layers 2 --lr 1e-4 --adam-beta2 0.95 --log-interval 10 --moe-router-topk 2",
        false,
    )
    .unwrap();
    assert_eq!(
        line(&of),
        "--global-batch-size 128 --interleave 10 --micro-batch-size 1 --model gpt:hidden=8192,layers=80,heads=64,\
         vocabulary=128256,positions=8192,key_heads=8,gated=true,activation=silu,feed_forward=28672,norm=rms,tied=false,\
         attention_bias=false,output_bias=false,feed_forward_bias=false,learned_positions=false,theta=500000 --pp 4 \
         --precision bf16 --recompute full:every=2 --seq-length 8192 --sequence-parallel --stack megatron --strategy zero-1 --tp 8"
    );
    assert_eq!(of.not_read, ["moe-router-topk 2"]);
    assert_eq!(of.nothing, ["adam-beta2 0.95", "log-interval 10", "lr 1e-4"]);
    assert!(of.assumed.is_empty() && of.not_counted.is_empty() && of.replaced.is_empty());
    let error = of.check("--from-megatron", "add --ignore").unwrap_err().to_string();
    assert!(
        error.contains("--from-megatron: moe-router-topk 2: may change memory or time") && error.contains("--ignore")
    );
    // What is described is the model of the zoo, to the parameter.
    let sizes = |name: &str| lockstep_readers::load_model(name).unwrap().parameter_elements();
    assert_eq!(sizes(of.get("model").unwrap()), sizes("llama-3-70b"));
}

/// Defaults of Megatron-LM that are not ours: numbers of 4 bytes, no shared states, dropout.
#[test]
fn defaults_are_those_of_the_framework() {
    let of = read_megatron("--micro-batch-size 4", true).unwrap();
    assert_eq!(
        line(&of),
        "--accumulate 1 --dropout --micro-batch-size 4 --precision fp32 --stack megatron --strategy ddp"
    );
    assert_eq!(of.notes().next().as_deref(), Some("by default, as of its newest version: accumulate 1"));
    let of = read("t.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[activation_checkpoint]\nmode = \"none\"\n");
    assert_eq!(
        line(&of),
        "--micro-batch-size 8 --model llama-3-8b --optimizer adamw --precision bf16 --seq-length 2048 --stack torchtitan --strategy fsdp"
    );
    let of = read("l.yaml", "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\ncutoff_len: 2048\nbf16: true\n");
    assert_eq!(
        line(&of),
        "--lora r=8,modules=all,dropout=0 --micro-batch-size 8 --model qwen3-8b --optimizer adamw --precision bf16 --recompute full \
         --seq-length 2048 --stack trl --strategy ddp"
    );
    // TRL's own keys bring TRL's defaults.
    let of = read("s.json", "{\"model_name_or_path\": \"gpt2\", \"packing\": true}");
    assert_eq!(
        line(&of),
        "--loss chunked --micro-batch-size 8 --model gpt2 --optimizer adamw --precision bf16 --recompute full --seq-length 1024 \
         --stack trl --strategy ddp"
    );
    assert_eq!(of.defaults, ["precision", "recompute", "loss", "seq-length", "micro-batch-size"]);
    let of = read("t.json", "{\"model_name_or_path\": \"gpt2\", \"per_device_train_batch_size\": 2}");
    assert_eq!(
        line(&of),
        "--micro-batch-size 2 --model gpt2 --optimizer adamw --precision fp32 --stack trl --strategy ddp"
    );
    // axolotl loads weights in bf16 and trains them so, unless FSDP or DeepSpeed keeps others.
    let of = |more: &str| read("a.yaml", &format!("base_model: gpt2\n{more}")).get("precision").map(str::to_owned);
    assert_eq!(of("").as_deref(), Some("bf16-true"));
    assert_eq!(of("bf16: true\nfsdp: [full_shard]\n").as_deref(), Some("bf16"));
    assert_eq!(of("adapter: lora\n").as_deref(), Some("bf16"));
    assert_eq!(of("float32: true\n").as_deref(), Some("fp32"));
    assert_eq!(of("bf16: false\n").as_deref(), Some("fp32"));
    let of = read("c.yaml", "distributed_type: DEEPSPEED\nmixed_precision: bf16\n");
    assert_eq!((of.get("strategy"), of.defaults.len()), (Some("zero-2"), 1));
}

/// Keys whose meaning hangs on others.
#[test]
fn keys_mean_what_the_others_make_of_them() {
    let megatron =
        |text: &str| read_megatron(&format!("--micro-batch-size 1 --global-batch-size 8 {text}"), true).unwrap();
    // Without tensor ranks it turns itself off; gradients of fp16 have 2 bytes unless fp32 is asked for.
    let of = megatron("--sequence-parallel --fp16 --cp-comm-type p2p");
    assert_eq!((of.get("sequence-parallel"), of.get("half-gradients"), of.get("cp-exchange")), (None, Some(""), None));
    let of = megatron("--fp16 --accumulate-allreduce-grads-in-fp32 --context-parallel-size 2 --cp-comm-type a2a");
    assert_eq!((of.get("half-gradients"), of.get("cp-exchange")), (None, Some("alltoall")));
    assert_eq!(megatron("--bf16 --fp8-format hybrid").not_counted.len(), 1);
    assert_eq!(megatron("--bf16 --fp8-format hybrid --fp8-param-gather").not_counted.len(), 0);
    let of = megatron("--bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16");
    assert_eq!(of.get("optimizer"), Some("adamw-bf16"));
    assert_eq!(megatron("--bf16 --exp-avg-dtype fp8").not_read, ["exp-avg-dtype fp8, exp-avg-sq-dtype fp32"]);
    let of = megatron("--defer-embedding-wgrad-compute --wgrad-deferral-limit 22 --disable-parameter-transpose-cache");
    assert_eq!((of.get("defer-head-gradients"), of.get("no-transpose-cache")), (Some("22"), Some("")));
    let sizes = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 64 --group-query-attention";
    assert!(read_megatron(sizes, false).unwrap().get("model").unwrap().contains("key_heads=1"));
    let torchtitan = |more: &str| {
        let start = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[activation_checkpoint]\nmode = \"none\"\n";
        read("t.toml", &format!("{start}{more}\n"))
    };
    let of = torchtitan("[parallelism]\ntensor_parallel_degree = 2\ndata_parallel_shard_degree = 1");
    assert_eq!((of.get("precision"), of.get("sequence-parallel")), (Some("fp32"), Some("")));
    let of = torchtitan("[parallelism]\ntensor_parallel_degree = 2\nenable_sequence_parallel = false");
    assert_eq!((of.get("precision"), of.get("sequence-parallel")), (Some("bf16"), None));
    let of =
        torchtitan("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = \"Interleaved1F1B\"");
    assert_eq!((of.get("interleave"), of.not_read.len()), (Some("2"), 0));
    let of = torchtitan("[compile]\nenable = true\ncomponents = [\"model\"]\n[debug]\ndeterministic = true");
    assert_eq!((of.get("loss"), of.not_read.len()), (Some("plain"), 1));
    let of = torchtitan("[training]\nlocal_batch_size = \"many\"\n[parallelism]\npipeline_parallel_degree = 2");
    assert_eq!(of.not_read, ["local_batch_size many in parts of 1"]);
    let of = torchtitan("[quantize.grouped_mm.float8]\nfqns = [\"experts\"]");
    assert_eq!((of.get("precision"), of.not_read.len()), (Some("bf16"), 1));
    let axolotl = |more: &str| read("a.yaml", &format!("base_model: gpt2\n{more}"));
    let of = axolotl("plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\nliger_rope: true\n");
    assert_eq!((of.get("loss"), of.not_read.len(), of.not_counted.len()), (Some("chunked"), 0, 1));
    let of = axolotl("adapter: lora\nlora_target_linear: true\nlora_target_modules: [q_proj]\n");
    assert_eq!(of.get("lora"), Some("r=8,modules=all,dropout=0"));
    let of = read("d.json", "{\"train_batch_size\": 64, \"zero_optimization\": {\"stage\": 1}}");
    assert_eq!(of.not_read, ["train_batch_size 64 without train_micro_batch_size_per_gpu"]);
    let of = read(
        "d.json",
        "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true}, \
         \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1, \"momentum\": 0.9}}}",
    );
    assert_eq!((of.get("optimizer"), of.not_read.len()), (Some("momentum"), 1));
    let trainer = |more: &str| read("t.json", &format!("{{\"model_name_or_path\": \"gpt2\", {more}}}"));
    assert_eq!(trainer("\"fsdp\": \"true\"").get("strategy"), Some("fsdp"));
    assert_eq!(trainer("\"dtype\": \"bfloat16\", \"bf16\": true").get("precision"), Some("bf16-true"));
    assert_eq!(
        trainer("\"use_peft\": true, \"bf16\": true").not_counted,
        ["frozen weights in fp32, counted in 2 bytes"]
    );
    assert_eq!(trainer("\"use_peft\": true").get("lora"), Some("r=16,modules=q_proj+v_proj"));
    assert_eq!(trainer("\"loss_type\": \"nll\"").get("loss"), None);
}

#[test]
fn files_are_recognised_by_their_keys() {
    for (name, text, source, expected) in [
        (
            "train.toml",
            "[model]\nname = \"llama3\"\nflavor = \"70B\"\nconverters = [\"float8\"]\n[training]\nlocal_batch_size = 2\nseq_len = 8192\n\
             steps = 100\n[parallelism]\ntensor_parallel_degree = 8\ndata_parallel_shard_degree = -1\n[activation_checkpoint]\n\
             mode = \"full\"\n[compile]\nenable = true\n[metrics]\nlog_freq = 10\n",
            "torchtitan",
            "--compile --micro-batch-size 2 --model llama-3-70b --optimizer adamw --precision fp8 --recompute full --seq-length 8192 \
             --sequence-parallel --stack torchtitan --strategy fsdp --tp 8",
        ),
        (
            "args.json",
            "{\"model_name_or_path\": \"meta-llama/Meta-Llama-3-8B\", \"per_device_train_batch_size\": 2, \
             \"gradient_accumulation_steps\": 4, \"gradient_checkpointing\": true, \"bf16\": true, \"max_length\": 4096, \
             \"fsdp\": \"full_shard auto_wrap\", \"fsdp_config\": {\"transformer_layer_cls_to_wrap\": [\"LlamaDecoderLayer\"]}, \
             \"learning_rate\": 1e-5, \"logging_steps\": 1, \"optim\": \"paged_adamw_8bit\"}",
            "transformers",
            "--accumulate 4 --loss chunked --micro-batch-size 2 --model llama-3-8b --optimizer adamw8bit --precision bf16 --recompute full \
             --seq-length 4096 --stack trl --strategy fsdp",
        ),
        (
            "ds.json",
            "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 2, \"bf16\": {\"enabled\": true}, \
             \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}, \"overlap_comm\": true}}",
            "deepspeed",
            "--accumulate 2 --micro-batch-size 1 --offload-optimizer --precision bf16 --stack deepspeed --strategy zero-2",
        ),
        (
            "accelerate.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n  \
             fsdp_sharding_strategy: FULL_SHARD\n  fsdp_activation_checkpointing: true\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
            "accelerate",
            "--precision bf16 --recompute full --stack trl --strategy fsdp",
        ),
        (
            "qlora.yml",
            "base_model: NousResearch/Llama-2-7b-hf\nload_in_4bit: true\nadapter: qlora\nlora_r: 32\nlora_alpha: 16\nlora_dropout: 0.05\n\
             lora_target_linear: true\nsequence_len: 4096\nsample_packing: true\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\n\
             optimizer: paged_adamw_32bit\nbf16: auto\ntf32: false\ngradient_checkpointing: true\nflash_attention: true\ndatasets:\n  \
             - path: mhenrichsen/alpaca_2k_test\n    type: alpaca\n",
            "axolotl",
            "--accumulate 4 --lora r=32,modules=all --micro-batch-size 2 --model llama-2-7b --optimizer adamw --precision bf16 --quantize nf4-dq \
             --recompute full --seq-length 4096 --stack trl --strategy ddp",
        ),
    ] {
        let of = read(name, text);
        assert_eq!((of.source, line(&of).as_str()), (source, expected), "{name}: {:?}", of.not_read);
        assert!(of.not_read.is_empty(), "{name}: {:?}", of.not_read);
    }
}

/// What a key says is never dropped: it is read, listed, or named as not understood, whatever stands beside it.
#[test]
fn no_key_is_dropped() {
    let hub = |id: &str| read_file(&written("m.json", &format!("{{\"model_name_or_path\": \"{id}\"}}")).1, false);
    for id in ["unsloth/llama-3-8b-bnb-4bit", "x/Qwen3-8B-AWQ", "mistralai/Mistral-7B-v0.3", "x/Llama-3-8B-262k"] {
        assert!(hub(id).is_err(), "{id}");
    }
    let base = "base_model: gpt2\nsequence_len: 512\n";
    for (more, flag, value) in [
        ("fsdp: [full_shard, auto_wrap]\nfsdp_config:\n  activation_checkpointing: true\n", "recompute", "full"),
        ("fsdp_config:\n  fsdp_activation_checkpointing: true\n", "recompute", "full"),
        ("bf16: full\n", "precision", "bf16-true"),
        (
            "deepspeed:\n  train_micro_batch_size_per_gpu: 4\n  zero_optimization:\n    stage: 2\n",
            "micro-batch-size",
            "4",
        ),
    ] {
        let of = read("a.yaml", &format!("{base}{more}"));
        assert_eq!((of.get(flag), of.not_read.len()), (Some(value), 0), "{more}: {of:?}");
    }
    for (more, named) in [
        ("gradient_checkpointing: offload\n", "gradient_checkpointing offload"),
        ("fsdp_config:\n  offload_params: true\n", "fsdp_config.offload_params"),
        ("fsdp_config:\n  fsdp_reshard_after_forward: false\n", "reshard_after_forward false"),
        ("fsdp: [full_shard, offload]\n", "fsdp full_shard,offload"),
        ("relora_steps: 100\n", "relora_steps 100"),
        (
            "micro_batch_size: 2\ndeepspeed:\n  train_micro_batch_size_per_gpu: 4\n",
            "deepspeed.train_micro_batch_size_per_gpu 4",
        ),
    ] {
        assert_eq!(read("a.yaml", &format!("{base}{more}")).not_read, [named], "{more}");
    }
    let of = read(
        "a.yaml",
        &format!("{base}relora: false\ndeepspeed:\n  zero_optimization:\n    reduce_bucket_size: 1e6\n"),
    );
    assert_eq!(of.assumed, ["relora false"]);
    assert_eq!(of.get("reduce-bucket-size"), Some("1000000"));
    let text = "deepspeed:\n  zero_optimization:\n    stage: 2\n    reduce_bucket_size: auto\n    stage3_max_live_parameters: 1e9\n    \
                overlap_comm: true\n";
    let of = read("a.yaml", &format!("{base}{text}"));
    assert_eq!((of.get("reduce-bucket-size"), of.get("stage3-max-live-parameters")), (Some("auto"), None));
    assert_eq!(of.not_counted, ["deepspeed.zero_optimization.overlap_comm"]);
    let of = read("a.yaml", &format!("{base}adapter: lora\n{text}"));
    assert_eq!((of.get("reduce-bucket-size"), of.not_counted.len()), (None, 2));
    let of = |text: &str| read_megatron(text, true).unwrap();
    assert_eq!(of("--num-layers 3 --swiglu --overlap-grad-reduce").replaced, ["num-layers 3", "swiglu"]);
    assert_eq!(of("--overlap-grad-reduce").not_counted, ["overlap-grad-reduce"]);
    assert_eq!(of("--attention-backend local --foo --bar 0").not_read, ["foo"]);
    let sizes = "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --vocab-size 64";
    for odd in ["--normalization L2Norm", "--position-embedding-type alibi", "--rotary-percent"] {
        let of = read_megatron(&format!("{sizes} {odd}"), false).unwrap();
        assert_eq!(of.not_read.len(), usize::from(!odd.contains("percent")), "{odd}: {:?}", of.not_read);
    }
}

/// Of torchtitan a rank's batch is all micro-batches of a pipeline, and the one that passes at once without stages.
#[test]
fn batches_of_pipelines_are_those_of_a_rank() {
    let of = |more: &str| {
        let text = format!(
            "[training]\nlocal_batch_size = 8\n[model]\nname = \"llama3\"\nflavor = \"8B\"\n[activation_checkpoint]\nmode = \"none\"\n\
             [parallelism]\n{more}\n"
        );
        let of = read("t.toml", &text);
        ["micro-batch-size", "accumulate", "dp"].map(|flag| of.get(flag).map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of(""), [some("8"), None, None]);
    assert_eq!(of("pipeline_parallel_degree = 4"), [some("1"), some("8"), None]);
    let more = "pipeline_parallel_degree = 4\npipeline_parallel_microbatch_size = 2\ndata_parallel_shard_degree = 2";
    assert_eq!(of(more), [some("2"), some("4"), some("2")]);
}

/// A file that names DeepSpeed's is read with it.
#[test]
fn files_of_deepspeed_are_read_where_they_are_named() {
    let (folder, path) =
        written("l.yaml", "model_name_or_path: gpt2\nfinetuning_type: full\nbf16: true\ndeepspeed: ds.json\n");
    assert!(read_file(&path, false).unwrap_err().to_string().contains("ds.json"));
    let text = "{\"zero_optimization\": {\"stage\": 3}, \"bf16\": {\"enabled\": \"auto\"}, \"zero_force_ds_cpu_optimizer\": true}";
    std::fs::write(folder.path().join("ds.json"), text).unwrap();
    let of = read_file(&path, false).unwrap();
    assert_eq!((of.get("strategy"), of.get("stack")), (Some("zero-3"), Some("deepspeed")));
    assert_eq!(of.not_read, ["deepspeed.zero_force_ds_cpu_optimizer"]);
}

#[test]
fn predictions_take_strategies_with_their_axes() {
    let of = |text: &str| read_megatron(text, true).unwrap().for_predictions();
    let strategy = |text: &str| of(text).get("strategy").unwrap().to_owned();
    let tensor = "--tensor-model-parallel-size 2";
    assert_eq!(strategy("--bf16"), "ssgd");
    assert_eq!(strategy("--bf16 --use-distributed-optimizer"), "zero-1");
    assert_eq!(strategy(&format!("{tensor} --bf16")), "megatron");
    assert_eq!(
        strategy(&format!("{tensor} --sequence-parallel --use-distributed-optimizer")),
        "sequence-parallel:zero-1"
    );
    let of = of("--context-parallel-size 2 --optimizer-cpu-offload --grad-reduce-in-bf16");
    assert_eq!(of.not_read, ["cp 2", "offload-optimizer"]);
    assert_eq!((of.get("stack"), of.get("gradients")), (None, Some("half")));
    assert_eq!(of.not_counted, ["dropout"]);
}

#[test]
fn what_is_no_configuration_is_refused_with_its_place() {
    let deep = format!("a: {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for (name, text, says) in [
        ("a.json", "{", "is not JSON"),
        ("a.toml", "a = ", "is not TOML"),
        ("a.yaml", "a: [1\nb: 2", "is not YAML"),
        ("a.yaml", deep.as_str(), "nested more than"),
        ("a.yaml", "", "must be one document"),
        ("a.yaml", "just words", "states nothing"),
        ("a.ini", "a = 1", "must be .json, .toml, .yaml or .yml"),
        ("a.json", "{\"lr\": 1}", "is of none of these: megatron, torchtitan"),
        ("a.json", "{\"model_name_or_path\": \"acme/unknown\"}", "is not among our models"),
        ("a.json", "{\"micro-batch-size\": 1, \"bf16\": true, \"fp16\": true}", "are two formats"),
        ("a.json", "{\"micro_batch_size\": 1, \"tensor_model_parallel_size\": 1}", "--num-layers: is missing"),
    ] {
        let (_folder, path) = written(name, text);
        let error = read_file(&path, false).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(says), "{text:.40}: {error}");
    }
    assert!(read_file("absent.yaml".as_ref(), false).unwrap_err().to_string().contains("absent.yaml"));
    assert!(read_megatron("bf16", true).unwrap_err().to_string().contains("--from-megatron: bf16: must be a flag"));
}
